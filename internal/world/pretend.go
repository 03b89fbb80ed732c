// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"

	"bawn/internal/casetest/talk"
)

// PretendAddr is what every name leads to in a world that pretends, but for
// those that [Pretence.Zone] has.
const PretendAddr = "93.184.215.14"

// A Pretence is what every address of the internet is, from [Upstream.Pretend]
// on: one server, which speaks TLS under any name when greeted in TLS, and
// gives each request the same answer. A new Pretence ends the connections
// under the one before.
type Pretence struct {
	Answer []byte              // exact bytes; empty: 200 without a body
	Opens  bool                // a WebSocket handshake gets a 101 when there is no Answer
	H2     bool                // HTTP/2 is spoken to whoever offers it
	Opaque bool                // neither TLS nor HTTP: Answer is said first, and what comes is kept
	Zone   map[string][]Answer // the resolver's table; all other names lead to PretendAddr
}

// pretender is the server of a [Pretence].
type pretender struct {
	mu     sync.Mutex
	now    Pretence
	serves bool
	open   map[net.Conn]bool
}

// Pretend turns every address into one server, or changes what it answers.
func (i *Internet) Pretend(p Pretence, _ *None) error {
	zone := map[string][]Answer{"*": {{Addrs: []string{PretendAddr}}}}
	maps.Copy(zone, p.Zone)
	i.dns.replace(zone)
	i.pretends.mu.Lock()
	defer i.pretends.mu.Unlock()
	i.pretends.now = p
	for c := range i.pretends.open { // they belong to what was pretended before
		c.Close()
	}
	i.pretends.open = map[net.Conn]bool{}
	if i.pretends.serves {
		return nil
	}
	i.pretends.serves = true
	return i.catchAll()
}

// catchAll leads every address that has no place of its own to this namespace,
// and every TCP port of theirs to one listener.
func (i *Internet) catchAll() error {
	if err := everywhere(); err != nil {
		return err
	}
	var own4, own6 []string
	for _, a := range ownAddresses() {
		if netip.MustParseAddr(a).Is4() {
			own4 = append(own4, a)
		} else {
			own6 = append(own6, a)
		}
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(fmt.Sprintf(`table inet everywhere {
	chain in {
		type nat hook prerouting priority dstnat
		ip daddr { %s } accept
		ip6 daddr { %s } accept
		iifname "host0" meta l4proto tcp redirect to :9
	}
}
`, strings.Join(own4, ", "), strings.Join(own6, ", ")))
	if out, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("redirecting every address: %w: %s", err, bytes.TrimSpace(out))
	}
	ln, err := net.Listen("tcp", ":9")
	if err != nil {
		return fmt.Errorf("listening for every address: %w", err)
	}
	conf := &tls.Config{
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return i.root.leaf(h.ServerName) },
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go i.pretends.serve(i.rec, c, conf)
		}
	}()
	return nil
}

// begin notes a connection and says what is pretended on it.
func (p *pretender) begin(c net.Conn) Pretence {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = true
	return p.now
}

func (p *pretender) end(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *pretender) serve(rec *recorder, c net.Conn, conf *tls.Config) {
	now := p.begin(c)
	defer p.end(c)
	if now.Opaque {
		tee := &teeConn{c, rec.splitter(c.LocalAddr().String(), c.RemoteAddr().String(), "")}
		_, _ = tee.Write(now.Answer)
		_, _ = io.Copy(io.Discard, tee)
		return
	}
	peeked := &peekedConn{c, bufio.NewReader(c)}
	first, err := peeked.r.Peek(1)
	if err != nil {
		return
	}
	var plain net.Conn = peeked
	sni := ""
	speaksH2 := false
	if first[0] == 0x16 {
		conf = conf.Clone()
		conf.NextProtos = []string{"http/1.1"}
		if now.H2 {
			conf.NextProtos = []string{"h2", "http/1.1"}
		}
		t := tls.Server(plain, conf)
		if t.Handshake() != nil {
			return
		}
		plain, sni = t, t.ConnectionState().ServerName
		speaksH2 = t.ConnectionState().NegotiatedProtocol == "h2"
	}
	tee := &teeConn{plain, rec.splitter(c.LocalAddr().String(), c.RemoteAddr().String(), sni)}
	if speaksH2 {
		ignore := func([]byte) {}
		talk.ServeH2(tee, tee, talk.Server{Answer: now.Answer, Keep: ignore, Part: ignore, Fault: func(string) {}})
		return
	}
	now.answerAll(tee)
}

// answerAll answers each request until the answer ends with the connection.
func (p Pretence) answerAll(c net.Conn) {
	answer := p.Answer
	if len(answer) == 0 {
		answer = []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
	interim, final := talk.SplitAnswer(talk.AsHTTP1(answer))
	head, body, _ := bytes.Cut(final, []byte("\r\n\r\n"))
	lower := strings.ToLower(string(head))
	framed := strings.Contains(lower, "\r\ncontent-length:") || strings.Contains(lower, "\r\ntransfer-encoding:") || strings.Contains(lower, " 204 ")
	for r := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if key := req.Header.Get("Sec-Websocket-Key"); key != "" && p.switches(final) {
			p.webSocket(r, c, interim, final, key)
			return
		}
		text := append(append(bytes.Clone(interim), head...), "\r\n\r\n"...)
		if req.Method != http.MethodHead {
			text = append(text, body...)
		}
		if _, err := c.Write(text); err != nil || !framed {
			return
		}
	}
}

// switches reports whether a handshake is answered by a change of protocol.
func (p Pretence) switches(final []byte) bool {
	return p.Opens && len(p.Answer) == 0 || bytes.HasPrefix(final, []byte("HTTP/1.1 101"))
}

// webSocket answers a handshake and reads frames, which the recorder keeps.
func (p Pretence) webSocket(r *bufio.Reader, c net.Conn, interim, final []byte, key string) {
	if len(p.Answer) == 0 {
		final = []byte(talk.DefaultSwitch)
	}
	head, deflate := talk.Switch(final, key)
	if _, err := c.Write(append(bytes.Clone(interim), head...)); err != nil {
		return
	}
	talk.ServeWebSocket(r, c, deflate, talk.WebSocketServer{Keep: func(talk.Message) {}, Fault: func(string) {}})
}
