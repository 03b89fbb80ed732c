// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/uptls"
	"bawn/internal/verdict"
)

// secure begins verified TLS on a new connection.
func (x *exchange) secure(raw net.Conn) (*uptls.Secured, verdict.Verdict) {
	ctx, cancel := context.WithTimeout(x.ctx, x.c.s.lim.Dial)
	defer cancel()
	began := time.Now()
	conn, err := x.c.t.tlsUp.Handshake(ctx, raw, uptls.Use{
		Host: x.host.String(), Scope: x.tlsScope(), ALPN: []string{"http/1.1"},
	})
	x.out.TLS = audit.Span(time.Since(began))
	if err == nil {
		return conn, allowed
	}
	if e, ok := errors.AsType[*uptls.Error](err); ok {
		return nil, x.cutVerdict("dial", e.Code, e.Detail)
	}
	return nil, x.cutVerdict("dial", codes.UpstreamUnreachable, "TLS: "+err.Error())
}

// tlsScope is what two connections of a lease to one host have to share to
// resume one TLS session.
func (x *exchange) tlsScope() string {
	return x.d.Verdict.Rule + " " + strconv.Itoa(int(x.port)) + " " + strconv.FormatUint(x.rec.Revision, 10)
}
