// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/uptls"
	"bawn/internal/verdict"
)

// release gets the certificate that the rule names, for a new connection. That
// it is about to be used is on the disk before (I11).
func (x *exchange) release() (*tls.Certificate, verdict.Verdict) {
	name := x.d.Credential
	switch {
	case name == "":
		return nil, allowed
	case x.c.plain:
		return nil, verdict.Refuse("credential", codes.CredentialUnavailable, "no credential is sent without TLS")
	case x.c.s.cfg.Keys == nil:
		return nil, verdict.Refuse("credential", codes.CredentialUnavailable, "there are no credentials")
	}
	if err := x.c.s.cfg.Recorder.SyncNow(); err != nil {
		return nil, verdict.Refuse("journal", codes.JournalUnavailable, "before the use of a credential: "+err.Error())
	}
	cert, err := x.c.s.cfg.Keys.ClientCertificate(x.ctx, name, x.host)
	if err != nil {
		return nil, x.cutVerdict("credential", codes.CredentialUnavailable, err.Error())
	}
	return cert, allowed
}

// secure begins verified TLS on a new connection. cert is for a server that asks
// for one.
func (x *exchange) secure(raw net.Conn, cert *tls.Certificate) (*uptls.Secured, verdict.Verdict) {
	ctx, cancel := context.WithTimeout(x.ctx, x.c.s.lim.Dial)
	defer cancel()
	began := time.Now()
	conn, err := x.c.t.tlsUp.Handshake(ctx, raw, uptls.Use{
		Host: x.host.String(), Scope: x.tlsScope(), ALPN: x.protocols(), Certificate: cert,
	})
	x.out.TLS = audit.Span(time.Since(began))
	if err == nil {
		x.out.Certificate = conn.Fingerprint()
		if conn.Presented {
			x.out.Presented = x.d.Credential
		}
		return conn, allowed
	}
	if e, ok := errors.AsType[*uptls.Error](err); ok {
		return nil, x.cutVerdict("dial", e.Code, e.Detail)
	}
	return nil, x.cutVerdict("dial", codes.UpstreamUnreachable, "TLS: "+err.Error())
}

// upstreamFault is the refusal of a request whose upstream connection failed
// with err while it did something. The server's word on certificates can come at
// any time.
func (x *exchange) upstreamFault(stage, doing string, err error) verdict.Verdict {
	if e, ok := uptls.Late(err); ok {
		return x.cutVerdict(stage, e.Code, e.Detail)
	}
	if err != nil {
		doing += ": " + err.Error()
	}
	return x.cutVerdict(stage, codes.UpstreamUnreachable, doing)
}

// tlsScope is what two connections of a lease to one host have to share to
// resume one TLS session.
func (x *exchange) tlsScope() string {
	return x.d.Verdict.Rule + " " + x.d.Credential + " " + strconv.Itoa(int(x.port)) + " " + strconv.FormatUint(x.rec.Revision, 10)
}
