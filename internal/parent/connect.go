// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"time"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

// errPassword is why a parent refuses everything.
var errPassword = errors.New("the parent proxy does not take the username and password")

// ask has the parent open a tunnel to authority.
func (p *Proxy) ask(ctx context.Context, conn net.Conn, authority string) (net.Conn, error) {
	until, _ := ctx.Deadline() // zero: none
	if err := conn.SetDeadline(until); err != nil {
		return nil, unreachable(err, "cannot be asked: %v", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // shows in the read
	tunnel, err := p.exchange(conn, authority)
	if !stop() && err == nil {
		err = unreachable(ctx.Err(), "does not answer: %v", ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, unreachable(err, "cannot be asked: %v", err)
	}
	return tunnel, nil
}

func (p *Proxy) exchange(conn net.Conn, authority string) (net.Conn, error) {
	if _, err := conn.Write(p.request(authority)); err != nil {
		return nil, unreachable(err, "cannot be asked: %v", err)
	}
	r := bufio.NewReaderSize(conn, headBuffer)
	if err := readAnswer(r, !p.cfg.Password.IsZero()); err != nil {
		return nil, err
	}
	if n := r.Buffered(); n > 0 {
		early, _ := r.Peek(n) // what is buffered
		return &tunnel{Conn: conn, early: early}, nil
	}
	return conn, nil
}

func (p *Proxy) request(authority string) []byte {
	q := httpwire.Request{Method: "CONNECT", Fields: httpwire.Fields{{Name: "Host", Value: authority}}}
	if !p.cfg.Password.IsZero() {
		pair := base64.StdEncoding.EncodeToString([]byte(p.cfg.Username + ":" + p.cfg.Password.Reveal()))
		q.Fields = append(q.Fields, httpwire.Field{Name: "Proxy-Authorization", Value: "Basic " + pair})
	}
	return httpwire.AppendRequest(nil, &q, authority)
}

// Bounds of the parent's answer.
const (
	headBuffer = 4 << 10
	maxHead    = 32 << 10
	maxInterim = 8
)

// readAnswer reads the answer to a CONNECT, and leaves r behind it, where the
// tunnel begins if there is one (RFC 9110 section 9.3.6).
func readAnswer(r *bufio.Reader, password bool) error {
	var a httpwire.Response
	for range maxInterim {
		if err := a.Read(r, "CONNECT", httpwire.Limits{Head: maxHead}); err != nil {
			if e, ok := errors.AsType[*httpwire.Error](err); ok {
				return &Error{Code: codes.ParentProxyRefused, Detail: "the answer of the parent proxy is malformed: " + e.Error(), err: err}
			}
			return unreachable(err, "closed the connection without an answer: %v", err)
		}
		if !a.Informational() {
			break
		}
	}
	switch said := fmt.Sprintf("the parent proxy answered %d %s", a.Status, a.Reason); {
	case a.Status/100 == 2:
		return nil
	case a.Status == 407 && password:
		return &Error{Code: codes.ParentProxyRefused, Detail: said + ": it does not take the username and password", err: errPassword}
	case a.Status == 407:
		return &Error{Code: codes.ParentProxyRefused, Detail: said + ": it wants a username and password", err: errPassword}
	case a.Status/100 == 5: // Squid says 500 of a name that has no address
		return &Error{Code: codes.UpstreamUnreachable, Detail: said}
	default:
		return &Error{Code: codes.ParentProxyRefused, Detail: said}
	}
}

// A tunnel is a connection of which something came along with the parent's
// answer: a server that speaks first.
type tunnel struct {
	net.Conn
	early []byte
}

// Read gives what came early first.
func (t *tunnel) Read(p []byte) (int, error) {
	if len(t.early) == 0 {
		return t.Conn.Read(p)
	}
	n := copy(p, t.early)
	if t.early = t.early[n:]; len(t.early) == 0 {
		t.early = nil
	}
	return n, nil
}

// CloseWrite ends what is sent, where the connection can.
func (t *tunnel) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection under the tunnel.
func (t *tunnel) NetConn() net.Conn { return t.Conn }
