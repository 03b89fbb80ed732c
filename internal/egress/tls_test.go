// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/netplan"
	"bawn/internal/verdict"
)

const splices = `
version: 1
profiles:
  p:
    rules:
      - {id: api, host: api.example.com, inspect: sni}
      - {id: db, host: db.example.com, ports: [5432/tcp], inspect: none}
agents:
  dev: {profile: p}
`

// connect opens a tunnel and leaves it to the caller.
func (r *rig) connect(proxy, authority string) net.Conn {
	r.t.Helper()
	c := r.dial(proxy)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	br := bufio.NewReader(c)
	if head := readHead(br); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		r.t.Fatalf("CONNECT %s: %q", authority, head)
	}
	if br.Buffered() > 0 {
		r.t.Fatal("octets after the head of the tunnel")
	}
	return c
}

// TestI4OneNameInTheGreeting: the SNI is the name of the CONNECT.
func TestI4OneNameInTheGreeting(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		cfg  *tls.Config
		code codes.Code
	}{
		"another name":              {basic, &tls.Config{ServerName: "evil.example"}, codes.SNIMismatch},
		"another name, spliced":     {splices, &tls.Config{ServerName: "evil.example"}, codes.SNIMismatch},
		"no name, spliced":          {splices, &tls.Config{}, codes.SNIMissing},
		"no protocol to inspect":    {basic, &tls.Config{ServerName: apiHost, NextProtos: []string{"imap"}}, codes.ALPNDenied},
		"a client without our root": {basic, &tls.Config{ServerName: apiHost}, codes.ProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.yaml)
			r.upstream(apiHost, apiAddr, 443, echo)
			c.cfg.InsecureSkipVerify = c.code != codes.ProtocolError
			conn := tls.Client(r.connect(r.listen(netplan.Explicit), "api.example.com:443"), c.cfg)
			if err := conn.Handshake(); err == nil {
				t.Error("the handshake succeeded")
			}
			if d := r.journal.lastDecision(t, 1); d.Code != c.code || d.Stage != "tls" || d.Verdict != verdict.Deny || d.Host != apiHost {
				t.Errorf("decision %+v, want code %s", d, c.code)
			}
			if r.net.lookups() != 0 {
				t.Errorf("asked for %v", r.net.looked)
			}
		})
	}
}

func TestNoSNIIsInspected(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	conn := tls.Client(r.connect(r.listen(netplan.Explicit), "api.example.com:443"), &tls.Config{InsecureSkipVerify: true})
	fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
	all, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 200 OK\r\n") {
		t.Fatalf("got %q, %v", all, err)
	}
	if err := conn.ConnectionState().PeerCertificates[0].VerifyHostname(apiHost); err != nil {
		t.Error(err)
	}
}

// slowly writes one octet at a time.
type slowly struct{ net.Conn }

func (s slowly) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := s.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestGreetingInSingleOctets(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	conn := tls.Client(slowly{r.connect(r.listen(netplan.Explicit), "api.example.com:443")}, &tls.Config{RootCAs: r.minterCA, ServerName: apiHost})
	fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	if head := readHead(bufio.NewReader(conn)); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") {
		t.Fatalf("got %q", head)
	}
}

// TestPlainBytesInTunnel: after the 200 the stream is TLS, and nothing is
// answered in HTTP to what is not.
func TestPlainBytesInTunnel(t *testing.T) {
	r := newRig(t, basic)
	conn := r.connect(r.listen(netplan.Explicit), "api.example.com:443")
	fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	if all, _ := io.ReadAll(conn); len(all) != 0 {
		t.Errorf("got %q", all)
	}
	if d := r.journal.lastDecision(t, 1); d.Code != codes.ProtocolError || d.Stage != "tls" {
		t.Errorf("decision %+v", d)
	}
}

func TestPlainPortInTunnel(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 80, echo)
	conn := r.connect(r.listen(netplan.Explicit), "api.example.com:80")
	fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	if head := readHead(bufio.NewReader(conn)); !strings.Contains(head, "X-Got: GET api.example.com /v1/a 0\r\n") {
		t.Errorf("got %q", head)
	}
}

// TestSplice: the client's TLS ends at the server, and the record counts.
func TestSplice(t *testing.T) {
	r := newRig(t, splices)
	r.upstream(apiHost, apiAddr, 443, echo)
	conn := tls.Client(r.connect(r.listen(netplan.Explicit), "api.example.com:443"), &tls.Config{RootCAs: r.cfg.Roots, ServerName: apiHost})
	fmt.Fprint(conn, "GET /any HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
	all, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 200 OK\r\n") {
		t.Fatalf("got %q, %v", all, err)
	}
	conn.Close()
	o := r.journal.lastOutcome(t, 1)
	if o.BytesUp < 200 || o.BytesDown < 500 || o.Upstream != apiAddr+":443" || o.Code != "" {
		t.Errorf("outcome %+v", o)
	}
	if d := r.journal.lastDecision(t, 1); d.Proto != "tls" || d.Inspect != "sni" || d.SNI != apiHost || d.Rule != "api" || d.Verdict != verdict.Allow {
		t.Errorf("decision %+v", d)
	}
}

// TestSpliceHalfClose: the end of one direction arrives as such, and the other
// goes on.
func TestSpliceHalfClose(t *testing.T) {
	r := newRig(t, splices)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	r.net.add("db.example.com", "93.184.215.20")
	r.net.servers[netip.MustParseAddrPort("93.184.215.20:5432")] = ln.Addr().String()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c) // until the client ends its side
		fmt.Fprintf(c, "got %s", all)
	}()
	c := r.dial(r.listen(netplan.Explicit))
	fmt.Fprint(c, "CONNECT db.example.com:5432 HTTP/1.1\r\nHost: db.example.com:5432\r\n\r\nearly ")
	br := bufio.NewReader(c)
	if head := readHead(br); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatalf("got %q", head)
	}
	fmt.Fprint(c, "and late")
	must(t, c.(*net.TCPConn).CloseWrite())
	if all, _ := io.ReadAll(br); string(all) != "got early and late" {
		t.Errorf("got %q", all)
	}
	if d := r.journal.lastDecision(t, 1); d.Proto != "tcp" || d.Inspect != "none" {
		t.Errorf("decision %+v", d)
	}
	if o := r.journal.lastOutcome(t, 1); o.BytesUp != 14 || o.BytesDown != 18 {
		t.Errorf("outcome %+v", o)
	}
}

// TestSpliceResets: a connection that breaks off at one end does so at the
// other, in which nothing would tell a part from the whole otherwise.
func TestSpliceResets(t *testing.T) {
	for name, agentBreaks := range map[string]bool{"the agent": true, "the server": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, splices)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			defer ln.Close()
			r.net.add("db.example.com", "93.184.215.20")
			r.net.servers[netip.MustParseAddrPort("93.184.215.20:5432")] = ln.Addr().String()
			near := r.connect(r.listen(netplan.Explicit), "db.example.com:5432")
			far, err := ln.Accept()
			must(t, err)
			defer far.Close()
			must(t, far.SetDeadline(time.Now().Add(20*time.Second)))
			breaks, hears := near, far
			if !agentBreaks {
				breaks, hears = far, near
			}
			fmt.Fprint(breaks, "a part")
			_, err = io.ReadFull(hears, make([]byte, 6))
			must(t, err)
			must(t, breaks.(*net.TCPConn).SetLinger(0))
			must(t, breaks.Close())
			if n, err := hears.Read(make([]byte, 1)); err == nil || err == io.EOF {
				t.Errorf("read %d, %v, want a reset", n, err)
			}
		})
	}
}

// TestSpliceRefusedAnswersConnect: with nothing to inspect the name is resolved
// before the tunnel is promised, so a refusal still is an answer.
func TestSpliceRefusedAnswersConnect(t *testing.T) {
	r := newRig(t, splices)
	r.net.add("db.example.com", "10.0.0.1")
	c := r.dial(r.listen(netplan.Explicit))
	fmt.Fprint(c, "CONNECT db.example.com:5432 HTTP/1.1\r\nHost: db.example.com:5432\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
	must(t, err)
	if res.StatusCode != 403 || res.Header.Get("Bawn-Code") != string(codes.AddressNotPublic) {
		t.Errorf("got %s, %v", res.Status, res.Header)
	}
	if o := r.journal.lastOutcome(t, 1); o.Code != codes.AddressNotPublic || o.Status != 403 {
		t.Errorf("outcome %+v", o)
	}
}

func redirectedTo(dst string) option {
	return func(r *rig) {
		r.cfg.OriginalDst = func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort(dst), nil }
	}
}

func TestTransparent(t *testing.T) {
	t.Run("TLS", func(t *testing.T) {
		r := newRig(t, basic, redirectedTo("198.18.1.1:443"))
		r.upstream(apiHost, apiAddr, 443, echo)
		conn := tls.Client(r.dial(r.listen(netplan.Transparent)), &tls.Config{RootCAs: r.minterCA, ServerName: apiHost})
		fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
		if head := readHead(bufio.NewReader(conn)); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") {
			t.Fatalf("got %q", head)
		}
		if d := r.journal.lastDecision(t, 1); d.Arrival != "transparent" || d.Host != apiHost {
			t.Errorf("decision %+v", d)
		}
	})
	t.Run("plain", func(t *testing.T) {
		r := newRig(t, basic, redirectedTo("198.18.1.1:80"))
		r.upstream(apiHost, apiAddr, 80, echo)
		conn := r.dial(r.listen(netplan.Transparent))
		fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /v1/a HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		br := bufio.NewReader(conn)
		for _, want := range []int{200, 400} {
			res, err := http.ReadResponse(br, nil)
			must(t, err)
			io.Copy(io.Discard, res.Body)
			if res.StatusCode != want {
				t.Errorf("got %s, want %d", res.Status, want)
			}
		}
		if d := r.journal.lastDecision(t, 2); d.Code != codes.HostHeaderInvalid {
			t.Errorf("decision %+v", d)
		}
	})
	for dst, code := range map[string]codes.Code{
		"198.18.1.1:22":      codes.PortNotAllowed,
		"198.18.9.9:443":     codes.SyntheticUnknown,
		"140.82.114.4:443":   codes.IPLiteralDenied,
		"169.254.169.254:80": codes.IPLiteralDenied,
	} {
		t.Run(dst, func(t *testing.T) {
			r := newRig(t, basic, redirectedTo(dst))
			conn, err := net.Dial("tcp", r.listen(netplan.Transparent))
			if err == nil { // else the reset was faster
				if _, err = conn.Read(make([]byte, 1)); err == nil || err == io.EOF {
					t.Errorf("got %v, want a reset", err)
				}
				conn.Close()
			}
			if d := r.journal.lastDecision(t, 1); d.Code != code {
				t.Errorf("decision %+v, want %s", d, code)
			}
			if r.net.lookups()+r.net.dials() != 0 {
				t.Error("asked or dialled")
			}
		})
	}
}

// TestI9PeerIsChecked: whom the kernel does not vouch for is refused.
func TestI9PeerIsChecked(t *testing.T) {
	r := newRig(t, basic)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.serve(ln, egress.Source{Identity: r.id, Arrival: netplan.Explicit, CheckPeer: func(net.Conn) error {
		return fmt.Errorf("uid 12 is not 34")
	}})
	if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil { // else the reset was faster
		defer conn.Close()
		if all, err := io.ReadAll(conn); len(all) > 0 || err == nil {
			t.Errorf("got %q, %v", all, err)
		}
	}
	if d := r.journal.lastDecision(t, 1); d.Stage != "accept" || !strings.Contains(d.Detail, "uid 12") {
		t.Errorf("decision %+v", d)
	}
}

// TestWhatIsNoTLSIsOnRecordWithItsName: the name and port that such a connection was
// for are known, however it came, and whoever looks for them finds it.
func TestWhatIsNoTLSIsOnRecordWithItsName(t *testing.T) {
	r := newRig(t, strings.Replace(basic, "agents:", "      - {id: ssh, host: ssh.example.com, ports: [22/tcp]}\nagents:", 1))
	c := r.connect(r.listen(netplan.Explicit), "ssh.example.com:22")
	c.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n")) //nolint:errcheck // the record tells
	d := r.journal.lastDecision(t, 1)
	if d.Code != codes.ProtocolError || d.Host != "ssh.example.com" || d.Port != 22 {
		t.Errorf("on record: %+v", d)
	}
}
