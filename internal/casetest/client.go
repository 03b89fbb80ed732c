// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"bawn/internal/casetest/talk"
	"bawn/internal/codes"
	"bawn/internal/httpwire"
	"bawn/internal/names"
	"bawn/internal/policy"
)

// A client is the agent of a case: it says what the case says and reads what it
// is told.
type client struct {
	established bool // the connection was let through, as far as one can see before a request
	told        []answer
	judged      int  // streams that have to be on record
	upgraded    bool // a WebSocket was opened
	farewell    talk.Farewell
}

// An answer is what the agent was told about one request.
type answer struct {
	code codes.Code // "" for a response from upstream
	none bool       // there was no response
}

// A halfCloser can end one direction.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// talk speaks for the agent until the proxy has ended the connection. That the
// proxy refuses, in whatever way, is no error; that it lets through what it
// cannot serve is.
func (cl *client) talk(run *running, c *conn) error {
	c.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // cannot fail
	r := bufio.NewReader(c)
	if run.c.Arrive == arriveConnect {
		through, err := cl.connect(run, c, r)
		if err != nil || !through {
			return err
		}
	}
	var stream halfCloser = c
	if run.wantsTLS() {
		secure, err := run.handshake(c, r)
		if err != nil {
			if len(run.records.verdicts()) > 0 {
				return nil
			}
			return fmt.Errorf("TLS with the proxy: %w", err)
		}
		stream, r = secure, bufio.NewReader(secure)
	}
	cl.established = run.c.Arrive != arriveAbsolute
	if run.c.speaksH2() {
		return cl.h2(run, stream)
	}
	if run.c.Arrive == arriveTCP && run.c.Upstream != nil {
		if err := hearFirst(r, run.c.Upstream); err != nil {
			return err
		}
	}
	for i, s := range run.c.Streams {
		if _, err := stream.Write(s); err != nil {
			break // the proxy has closed: the record says why
		}
		if key, ok := talk.IsUpgrade(s); ok && !run.opaque() {
			if p := cl.until101(run, r, i+1); p != nil {
				return cl.webSocket(run, stream, r, p, key, i)
			}
		}
	}
	stream.CloseWrite() //nolint:errcheck // the same
	cl.listen(run, r)
	return nil
}

// until101 reads responses up to the nth final one, or the one that changes the
// protocol, which it returns.
func (cl *client) until101(run *running, r *bufio.Reader, n int) *httpwire.Response {
	for len(cl.told) < n {
		p, ok := cl.response(run, r)
		if !ok {
			return nil
		}
		if p.Status == 101 {
			return p
		}
	}
	return nil
}

// webSocket goes on after the nth stream has opened one.
func (cl *client) webSocket(run *running, c halfCloser, r *bufio.Reader, p *httpwire.Response, key string, n int) error {
	cl.upgraded = true
	agreed, err := talk.Upgraded(p, key)
	if err != nil {
		return err
	}
	cl.farewell = talk.WebSocket(c, r, agreed, run.c.Frames(n))
	if cl.farewell.Fault != "" {
		return errors.New(cl.farewell.Fault)
	}
	return nil
}

// hearFirst waits for what the server of another protocol says first. That the
// connection ends instead is a refusal, and no error.
func hearFirst(r io.Reader, want []byte) error {
	got := make([]byte, len(want))
	n, err := io.ReadFull(r, got)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the server spoke first, and the client did not hear it")
	case !bytes.HasPrefix(want, got[:n]):
		return fmt.Errorf("the server's first words arrived as %q", got[:n])
	}
	return nil
}

// h2 speaks HTTP/2.
func (cl *client) h2(run *running, c halfCloser) error {
	report := talk.H2(c, run.c.H2)
	cl.judged = report.Judged()
	for _, a := range report.Answers {
		cl.told = append(cl.told, answer{code: codes.Code(a.Code), none: a.Status == ""})
	}
	if report.Fault != "" {
		return errors.New(report.Fault)
	}
	return nil
}

// connect asks for the tunnel, and reports whether it stands.
func (cl *client) connect(run *running, c *conn, r *bufio.Reader) (through bool, err error) {
	head := run.c.ConnectRaw
	if head == nil {
		head = []byte("CONNECT " + run.c.Authority + " HTTP/1.1\r\nHost: " + run.c.Authority + "\r\n\r\n")
	}
	if _, err := c.Write(head); err != nil {
		return false, fmt.Errorf("writing CONNECT: %w", err)
	}
	only := run.c.ConnectRaw != nil && run.c.sent() == 0
	if only {
		c.CloseWrite() //nolint:errcheck // cannot fail
	}
	p, err := httpwire.ReadResponse(r, "CONNECT", httpwire.Limits{})
	if err != nil {
		if ended(err) {
			return false, nil // refused without a word
		}
		return false, fmt.Errorf("the answer to CONNECT: %w", err)
	}
	if p.Status == 200 {
		cl.established = true
		if only {
			io.Copy(io.Discard, r) //nolint:errcheck // until the proxy is done
		}
		return !only, nil
	}
	cl.hear(p)
	c.CloseWrite()         //nolint:errcheck // cannot fail
	io.Copy(io.Discard, r) //nolint:errcheck // until the proxy is done
	return false, nil
}

// hear keeps what a response says of a refusal.
func (cl *client) hear(p *httpwire.Response) {
	code, _ := p.Fields.Get("bawn-code")
	cl.told = append(cl.told, answer{code: codes.Code(code)})
}

// listen reads responses to the end of the connection.
func (cl *client) listen(run *running, r *bufio.Reader) {
	defer io.Copy(io.Discard, r) //nolint:errcheck // until the proxy is done
	if run.opaque() {
		return
	}
	for {
		if _, ok := cl.response(run, r); !ok {
			return
		}
	}
}

// response reads one final response with its body. ok is false when there is
// none.
func (cl *client) response(run *running, r *bufio.Reader) (p *httpwire.Response, ok bool) {
	for {
		if _, err := r.Peek(1); err != nil {
			return nil, false
		}
		p, err := httpwire.ReadResponse(r, run.methodOf(len(cl.told)), httpwire.Limits{})
		if err != nil {
			return nil, false
		}
		if p.Informational() && p.Status != 101 {
			continue
		}
		cl.hear(p)
		if p.Status == 101 {
			return p, true
		}
		var body httpwire.Body
		body.Reset(r, p.Framing, httpwire.Limits{})
		_, err = io.Copy(io.Discard, &body)
		return p, err == nil
	}
}

// methodOf returns the method of the nth request on record: responses to HEAD
// have no body.
func (run *running) methodOf(n int) string {
	run.records.mu.Lock()
	defer run.records.mu.Unlock()
	if n < len(run.records.decisions) {
		return run.records.decisions[n].Method
	}
	return ""
}

// wantsTLS reports whether the client of the case speaks TLS: on every port but
// those that the policy says are plain.
func (run *running) wantsTLS() bool {
	var host names.Host
	var port uint16
	switch run.c.Arrive {
	case arriveConnect:
		host, port = run.connectName()
	case arriveTransparent:
		host, port, _ = dstName(run.c.Dst)
	default:
		return false
	}
	d := run.policy.Agent(run.agent).Name(host, port, run.now())
	return port != 80 && !d.Plain && !run.otherTCP(d, port)
}

// otherTCP reports whether the client of a tunnel or a redirected connection
// speaks another protocol, which only inspect: none lets through. On port 443,
// or with a server name in the case, it speaks TLS all the same.
func (run *running) otherTCP(d policy.Decision, port uint16) bool {
	return run.c.Arrive == arriveTCP || d.Inspect == policy.InspectNone && port != 443 && run.c.SNI == nil
}

// opaque reports whether what goes up is no HTTP.
func (run *running) opaque() bool {
	host, port := run.connectName()
	if run.c.Arrive == arriveTransparent {
		host, port, _ = dstName(run.c.Dst)
	}
	return run.otherTCP(run.policy.Agent(run.agent).Name(host, port, run.now()), port)
}

// connectName reads the name and port of the tunnel.
func (run *running) connectName() (names.Host, uint16) {
	authority := run.c.Authority
	if run.c.ConnectRaw != nil {
		if q, err := httpwire.ReadRequest(bufio.NewReader(newReader(run.c.ConnectRaw)), httpwire.Limits{}); err == nil {
			authority = q.Authority
		}
	}
	a, err := names.ParseAuthority(authority)
	if err != nil {
		return names.Host{}, 0
	}
	return a.Host, a.Port
}

// serverName returns the server name of the greeting: what the case says, or
// the name of the connection.
func (run *running) serverName() string {
	if run.c.SNI != nil {
		return *run.c.SNI
	}
	if host, _, ok := dstName(run.c.Dst); ok {
		return host.String()
	}
	host, _ := run.connectName()
	return host.String()
}

var errNoCertificate = errors.New("no certificate")

// handshake makes the client's TLS. The certificate has to come from the
// throw-away root, and to be for the name of the connection.
func (run *running) handshake(c *conn, r *bufio.Reader) (*tls.Conn, error) {
	name := run.serverName()
	secure := tls.Client(readFrom{r, c}, &tls.Config{
		ServerName:         name,
		NextProtos:         run.c.protocols(),
		InsecureSkipVerify: true, //nolint:gosec // verified below, also when the greeting has no name
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errNoCertificate
			}
			between := x509.NewCertPool()
			for _, cert := range state.PeerCertificates[1:] {
				between.AddCert(cert)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
				DNSName: run.verifyName(name), Roots: run.env.roots, Intermediates: between,
			})
			return err
		},
	})
	err := secure.Handshake()
	if agreed := secure.ConnectionState().NegotiatedProtocol; err == nil && run.c.speaksH2() && agreed != "h2" {
		err = fmt.Errorf("the proxy did not agree on h2, but on %q", agreed)
	}
	return secure, err
}

// protocols are those that the client's greeting offers.
func (c *Case) protocols() []string {
	if c.ALPN == nil {
		return []string{"http/1.1"}
	}
	return c.ALPN
}

// verifyName is the name that the certificate has to be for.
func (run *running) verifyName(serverName string) string {
	if host, _ := run.connectName(); !host.IsZero() {
		return host.String()
	}
	if host, _, ok := dstName(run.c.Dst); ok {
		return host.String()
	}
	return serverName
}
