// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tcp connects to an address directly and looks who is there.
func (p *prober) tcp(check Check, to netip.AddrPort) trial {
	return func(ctx context.Context) Try {
		t := Try{Check: check, Target: "tcp " + to.String(), Outcome: Blocked}
		c, err := dial(ctx, "tcp", to.String())
		if err != nil {
			t.Detail, t.Silent = reason(err), silent(err)
			return t
		}
		defer c.Close()
		if !p.enclosed {
			t.Outcome, t.Detail = GotOut, "connected"
			return t
		}
		counted := &counter{Conn: c}
		switch to.Port() {
		case 443, 8443, 853:
			p.speakTLS(ctx, counted, &t)
		default:
			p.speakHTTP(counted, "GET / HTTP/1.1\r\nHost: "+p.Canary+"\r\nConnection: close\r\n\r\n", &t)
		}
		return t
	}
}

// dial connects within the time that ctx leaves, and bounds the connection's
// whole life by it.
func dial(ctx context.Context, network, to string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, to)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		c.SetDeadline(end)
	}
	return c, nil
}

// silent reports whether nothing refused what was sent: the time ran out.
func silent(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT)
}

// reason shortens an error to what the kernel said.
func reason(err error) string {
	if silent(err) {
		return "no answer"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return err.Error()
}

// A counter counts the bytes that come in.
type counter struct {
	net.Conn
	n int
}

// Read counts what it reads.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n += n
	return n, err
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 8 << 10

// speakHTTP sends one request and looks whether it was Bawn that answered. That
// a service of another kind speaks first is an answer too.
func (p *prober) speakHTTP(c io.ReadWriter, request string, t *Try) {
	if _, err := io.WriteString(c, request); err != nil {
		t.Outcome, t.Detail = Answered, "cut: "+reason(err)
		return
	}
	head, err := readHead(c)
	status, code := parseHead(head)
	switch {
	case len(head) == 0 && errors.Is(err, os.ErrDeadlineExceeded):
		t.Outcome, t.Detail = Blocked, "held, and nothing came"
	case len(head) == 0:
		t.Outcome, t.Detail = Answered, "cut"
	case code != "":
		t.Outcome, t.Code, t.Detail = Answered, code, strconv.Itoa(status)
	default:
		t.Outcome, t.Detail = GotOut, fmt.Sprintf("answered %q", firstLine(head))
	}
}

// readHead reads up to the end of a response's head, or as much as comes.
func readHead(r io.Reader) ([]byte, error) {
	var head []byte
	b := bufio.NewReader(io.LimitReader(r, maxAnswer))
	for {
		line, err := b.ReadBytes('\n')
		head = append(head, line...)
		if err != nil || len(bytes.TrimRight(line, "\r\n")) == 0 {
			return head, err
		}
	}
}

// parseHead finds the status and the Bawn-Code of a response's head; a code is
// given only by a refusal, once.
func parseHead(head []byte) (status int, code string) {
	lines := strings.Split(string(head), "\r\n")
	f := strings.Fields(lines[0])
	if len(f) < 2 || !strings.HasPrefix(lines[0], "HTTP/1.") || len(f[1]) != 3 {
		return 0, ""
	}
	status, err := strconv.Atoi(f[1])
	if err != nil || status < 400 {
		return status, ""
	}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		switch {
		case line == "":
			return status, code
		case ok && strings.EqualFold(name, "Bawn-Code") && code != "":
			return status, ""
		case ok && strings.EqualFold(name, "Bawn-Code"):
			code = strings.TrimSpace(value)
		}
	}
	return status, "" // the head has no end
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(line[:min(len(line), 80)])
}

// speakTLS looks who presents a certificate. Bawn presents one of its own and
// then refuses; that it says nothing and cuts is as good.
func (p *prober) speakTLS(ctx context.Context, c *counter, t *Try) {
	var seen []*x509.Certificate
	conn := tls.Client(c, &tls.Config{
		ServerName:         p.Canary,
		InsecureSkipVerify: true, // whoever it is: that is the question
		NextProtos:         []string{"http/1.1"},
		VerifyConnection: func(s tls.ConnectionState) error {
			seen = s.PeerCertificates
			return nil
		},
	})
	err := conn.HandshakeContext(ctx)
	switch {
	case err == nil && p.isBawn(seen):
		p.speakHTTP(conn, "GET / HTTP/1.1\r\nHost: "+p.Canary+"\r\nConnection: close\r\n\r\n", t)
	case len(seen) > 0:
		t.Outcome, t.Detail = GotOut, "a certificate of "+strconv.Quote(seen[0].Subject.String())
	case isAlert(err):
		t.Outcome, t.Detail = Answered, "refused: "+err.Error()
	case c.n > 0:
		t.Outcome, t.Detail = GotOut, "answered with something else than TLS"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		t.Detail = "held, and nothing came"
	default:
		t.Outcome, t.Detail = Answered, "cut"
	}
}

func isAlert(err error) bool {
	_, ok := errors.AsType[tls.AlertError](err)
	if op, isOp := errors.AsType[*net.OpError](err); isOp {
		ok = ok || op.Op == "remote error"
	}
	return ok
}

// isBawn reports whether the chain was signed by Bawn's root.
func (p *prober) isBawn(chain []*x509.Certificate) bool {
	pem, err := os.ReadFile(p.CA)
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	if err != nil || len(chain) == 0 || !roots.AppendCertsFromPEM(pem) {
		return false
	}
	for _, c := range chain[1:] {
		others.AddCert(c)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others})
	return err == nil
}

// byProxy asks the explicit proxy for what it must refuse.
func (p *prober) byProxy(check Check, method, target, host string) trial {
	return func(ctx context.Context) Try {
		t := Try{Check: check, Target: "proxy " + method + " " + target, Outcome: Blocked}
		c, err := dial(ctx, "tcp", p.Proxy.String())
		if err != nil {
			t.Detail = "the proxy: " + reason(err)
			return t
		}
		defer c.Close()
		p.speakHTTP(c, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n", &t)
		if t.Code == "" && t.Outcome == Answered {
			t.Outcome, t.Detail = Blocked, "the proxy cut without a code"
		}
		return t
	}
}

// udp sends what a server on that port would answer.
func (p *prober) udp(check Check, to netip.AddrPort) trial {
	return func(ctx context.Context) Try {
		t := Try{Check: check, Target: "udp " + to.String(), Outcome: Blocked}
		c, err := dial(ctx, "udp", to.String())
		if err != nil {
			t.Detail = reason(err)
			return t
		}
		defer c.Close()
		n, err := exchange(c, p.datagram(to.Port()))
		if err != nil {
			t.Detail, t.Silent = reason(err), silent(err)
			return t
		}
		t.Outcome, t.Detail = GotOut, fmt.Sprintf("%d bytes came back", n)
		return t
	}
}

// exchange sends a datagram, twice, since a refusal of the first is reported at
// the second, and waits for an answer.
func exchange(c net.Conn, datagram []byte) (int, error) {
	for range 2 {
		if _, err := c.Write(datagram); err != nil {
			return 0, err
		}
		time.Sleep(time.Millisecond)
	}
	return c.Read(make([]byte, 2048))
}

// datagram is something to which a server of the usual kind on port answers.
func (p *prober) datagram(port uint16) []byte {
	switch port {
	case 53:
		return question(p.Canary)
	case 123: // NTP, version 3, client
		return append([]byte{0x1b}, make([]byte, 47)...)
	case 443: // QUIC of no known version (RFC 9000 section 6): servers say which they have
		return append([]byte{0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0}, make([]byte, 1185)...)
	case 3478: // STUN binding request (RFC 8489)
		return append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...)
	}
	return []byte("bawn probe\n")
}
