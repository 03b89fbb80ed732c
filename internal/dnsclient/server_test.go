// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnsclient_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// A zone holds the answer section for each "NAME TYPE". A name with no entry at
// all does not exist.
type zone map[string][]string

func (z zone) exists(name string) bool {
	for k := range z {
		if strings.HasPrefix(k, name+" ") {
			return true
		}
	}
	return false
}

// A request is one question on its way to be answered; a test may spoil it.
type request struct {
	network string
	reply   dnsmessage.Message
	drop    bool
	strays  int // UDP packets with a wrong id in front of the answer
	mangle  func([]byte) []byte
}

// A server is a real DNS server on one UDP and one TCP port of 127.0.0.1.
type server struct {
	addr netip.AddrPort
	zone zone

	mu    sync.Mutex
	cond  *sync.Cond
	log   []string
	spoil func(*request)
}

func serve(t *testing.T, z zone) *server {
	t.Helper()
	s := &server{zone: z}
	s.cond = sync.NewCond(&s.mu)
	ln, pc := listen(t)
	s.addr = ln.Addr().(*net.TCPAddr).AddrPort()
	var wg sync.WaitGroup
	wg.Go(func() { s.serveUDP(pc) })
	wg.Go(func() { s.serveTCP(ln) })
	t.Cleanup(func() { pc.Close(); ln.Close(); wg.Wait() })
	return s
}

// listen takes one port for both networks.
func listen(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 20 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		pc, err := net.ListenPacket("udp", ln.Addr().String())
		if err == nil {
			return ln, pc
		}
		ln.Close()
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

func (s *server) set(spoil func(*request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil = spoil
}

// asked lists the questions so far, sorted within neither network nor time but
// with A before AAAA where both came together.
func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append([]string(nil), s.log...)
	for i := 0; i+1 < len(list); i++ {
		if strings.HasSuffix(list[i], " AAAA") && strings.HasSuffix(list[i+1], " A") {
			list[i], list[i+1] = list[i+1], list[i]
		}
	}
	return list
}

func (s *server) waitAsked(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.log) < n {
		s.cond.Wait()
	}
}

// answer reads one query and gives the packets to send back.
func (s *server) answer(network string, query []byte) [][]byte {
	var q dnsmessage.Message
	if err := q.Unpack(query); err != nil || len(q.Questions) != 1 {
		return nil
	}
	asked := q.Questions[0]
	key := asked.Name.String() + " " + strings.TrimPrefix(asked.Type.String(), "Type")
	s.mu.Lock()
	s.log = append(s.log, network+" "+key)
	s.cond.Broadcast()
	spoil := s.spoil
	s.mu.Unlock()

	r := request{network: network, reply: dnsmessage.Message{
		Header:    dnsmessage.Header{ID: q.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: q.Questions,
	}}
	if !s.zone.exists(asked.Name.String()) {
		r.reply.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range s.zone[key] {
		r.reply.Answers = append(r.reply.Answers, rr(text))
	}
	if spoil != nil {
		spoil(&r)
	}
	return r.packets()
}

func (r *request) packets() [][]byte {
	if r.drop {
		return nil
	}
	var out [][]byte
	for i := range r.strays {
		stray := r.reply
		if i%2 == 0 {
			stray.ID++
		} else {
			stray.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("evil.example."), Type: 1, Class: 1}}
		}
		out = append(out, mustPack(stray))
	}
	b := mustPack(r.reply)
	if r.mangle != nil {
		b = r.mangle(b)
	}
	return append(out, b)
}

func mustPack(m dnsmessage.Message) []byte {
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func (s *server) serveUDP(pc net.PacketConn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		buf := make([]byte, 4096)
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		wg.Go(func() {
			for _, b := range s.answer("udp", buf[:n]) {
				_, _ = pc.WriteTo(b, from)
			}
		})
	}
}

func (s *server) serveTCP(ln net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer conn.Close()
			var size [2]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(conn, query); err != nil {
				return
			}
			for _, b := range s.answer("tcp", query) {
				_, _ = conn.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
			}
		})
	}
}

// rr writes one record from text: "owner A address", "owner CNAME target", each
// with an optional "/TTL" behind the type.
func rr(text string) dnsmessage.Resource {
	var owner, kind, value string
	if _, err := fmt.Sscan(text, &owner, &kind, &value); err != nil {
		panic(err)
	}
	kind, ttlText, _ := strings.Cut(kind, "/")
	ttl := uint32(300)
	if ttlText != "" {
		if _, err := fmt.Sscan(ttlText, &ttl); err != nil {
			panic(err)
		}
	}
	r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET, TTL: ttl}}
	switch kind {
	case "A":
		r.Body = &dnsmessage.AResource{A: netip.MustParseAddr(value).As4()}
	case "AAAA":
		r.Body = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(value).As16()}
	case "CNAME":
		r.Body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(value)}
	default:
		panic("rr: " + text)
	}
	return r
}
