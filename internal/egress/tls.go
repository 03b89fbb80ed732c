// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"

	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/tlshello"
	"bawn/internal/verdict"
)

// connected is the answer to a CONNECT that is allowed.
const connected = "HTTP/1.1 200 Connection established\r\n\r\n"

// tunnel serves a connection whose name and port are allowed, as far as they
// have to be looked into.
func (c *conn) tunnel(d policy.Decision) {
	switch {
	case d.Plain:
		if c.open() {
			c.rest = c.serveHTTP
		}
	case d.Inspect == policy.InspectNone:
		c.splice(d, "tcp", nil, "")
	default:
		if c.open() {
			c.greeted(d)
		}
	}
}

// open tells the client of a CONNECT that its tunnel stands.
func (c *conn) open() bool {
	c.flow.stands(stand{host: c.host, port: c.port})
	c.flow.await(phaseHandshake)
	if c.arrival != guard.ArrivalConnect {
		return true
	}
	_, err := c.raw.Write([]byte(connected))
	return err == nil
}

// serveHTTP serves one request after the other.
func (c *conn) serveHTTP() {
	for c.next() && c.x.run() {
	}
}

// greeted reads the client's TLS greeting and decides what to do with it.
func (c *conn) greeted(d policy.Decision) {
	hello, raw, err := tlshello.Read(c.r)
	if err != nil {
		c.noGreeting(err)
		return
	}
	if v := c.checkHello(d, hello); !v.Allowed() {
		c.refuseTLS(v, hello)
		return
	}
	if d.Inspect == policy.InspectSNI {
		c.splice(d, "tls", raw, hello.ServerName)
		return
	}
	c.terminate(hello, raw)
}

// noGreeting ends a connection that does not begin with TLS. One that says
// nothing at all has done nothing to record.
func (c *conn) noGreeting(err error) {
	_, malformed := errors.AsType[*tlshello.Error](err)
	switch {
	case malformed, errors.Is(err, tlshello.ErrTooLarge):
		c.refuse(malformedGreeting(err), "tls")
	case c.flow.wasCut() != nil:
		c.refuse(verdict.Refuse("tls", codes.ProtocolError, c.flow.wasCut().detail), "tls")
	}
}

func malformedGreeting(err error) verdict.Verdict {
	return verdict.Refuse("tls", codes.ProtocolError, err.Error())
}

// checkHello judges a greeting. Whoever ends TLS knows the name of the tunnel
// and needs none in the greeting; what is spliced has to say where it goes, and
// in the clear.
func (c *conn) checkHello(d policy.Decision, hello tlshello.Hello) verdict.Verdict {
	code, detail := hello.Check(c.host)
	full := d.Inspect == policy.InspectFull
	switch {
	case code == codes.SNIMissing && full:
	case code != "":
		return verdict.Refuse("tls", code, detail)
	case hello.ECH && !full:
		return verdict.Refuse("tls", codes.SNIMismatch, "an encrypted client hello: the name inside cannot be read")
	}
	if full && hello.ALPN != nil && !slices.Contains(hello.ALPN, "h2") && !slices.Contains(hello.ALPN, "http/1.1") {
		return verdict.Refuse("tls", codes.ALPNDenied, "the greeting offers neither h2 nor http/1.1")
	}
	return allowed
}

// Alerts (RFC 8446 section 6), so that clients say more than "reset".
const (
	alertAccessDenied          = 49
	alertUnrecognizedName      = 112
	alertNoApplicationProtocol = 120
)

// refuseTLS puts the refusal of a greeting on record and sends an alert.
func (c *conn) refuseTLS(v verdict.Verdict, hello tlshello.Hello) {
	alert := byte(alertAccessDenied)
	switch v.Code {
	case codes.SNIMismatch, codes.SNIMissing:
		alert = alertUnrecognizedName
	case codes.ALPNDenied:
		alert = alertNoApplicationProtocol
	}
	c.x.begin()
	c.x.rec.Proto, c.x.rec.SNI = "tls", hello.ServerName
	c.x.host, c.x.port = c.host, c.port
	c.x.record(v)
	c.raw.Write([]byte{21, 3, 3, 0, 2, 2, alert}) //nolint:errcheck // a courtesy
	c.linger()
}

// nameKey is where the name of a tunnel travels to the certificate.
type nameKey struct{}

// downConfig is the TLS that agents meet. The certificate is for the name that
// the connection is for, whatever the greeting says.
func (s *Server) downConfig() *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS12,
		NextProtos:                  []string{"h2", "http/1.1"},
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			host, _ := hello.Context().Value(nameKey{}).(names.Host)
			return s.cfg.Minter.Certificate(host.String())
		},
	}
}

// terminate ends the client's TLS here and serves what it carries.
func (c *conn) terminate(hello tlshello.Hello, raw []byte) {
	buffered, _ := c.r.Peek(c.r.Buffered())
	under := &replayed{Conn: c.raw, first: append(raw, buffered...)}
	secure := tls.Server(under, c.s.tlsDown)
	c.flow.secure.Store(true)
	if err := secure.HandshakeContext(context.WithValue(c.ctx, nameKey{}, c.host)); err != nil {
		c.handshakeFailed(err, hello)
		return
	}
	c.cl = secure
	c.tls.ALPN = secure.ConnectionState().NegotiatedProtocol
	if hello.HasSNI {
		c.tls.ServerName = c.host
	}
	if c.tls.ALPN == "h2" {
		c.giveReader()
		c.rest = c.serveH2
		return
	}
	c.r.Reset(secure)
	c.rest = c.serveHTTP
}

// handshakeFailed records a handshake that did not succeed: most often a client
// that does not trust Bawn's root, which its operator will want to know.
func (c *conn) handshakeFailed(err error, hello tlshello.Hello) {
	c.x.begin()
	c.x.rec.Proto, c.x.rec.SNI = "tls", hello.ServerName
	c.x.host, c.x.port = c.host, c.port
	detail := "handshake with the agent: " + err.Error()
	if why := c.flow.wasCut(); why != nil {
		detail = why.detail
	}
	c.x.record(verdict.Refuse("tls", codes.ProtocolError, detail))
}

// replayed is a connection of which something has been read already.
type replayed struct {
	net.Conn
	first []byte
}

// Read gives what had been read first.
func (c *replayed) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	if c.first = c.first[n:]; len(c.first) == 0 {
		c.first = nil
	}
	return n, nil
}
