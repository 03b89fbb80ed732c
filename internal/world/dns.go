// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// An Answer is what the resolver of the world says about a name, once.
type Answer struct {
	Addrs []string // IPv4 and IPv6 addresses
	CNAME string   // another name of the zone
	Ask   string   // the question is passed on to the resolver at this address
	Fail  bool     // SERVFAIL
	TTL   uint32   // seconds
}

// A Query is one question that reached the resolver of the world.
type Query struct {
	Proto string // udp or tcp
	From  string // address and port
	Name  string // as asked, lower case, without the last dot
	Type  string // A, AAAA, TXT, ...
}

// String gives the form that test failures print.
func (q Query) String() string {
	return fmt.Sprintf("%s %s %s from %s", q.Proto, q.Type, q.Name, q.From)
}

// resolver answers for the whole internet of the world, from one table.
type resolver struct {
	mu      sync.Mutex
	zone    map[string][]Answer // answers are used one after the other, the last again and again
	asked   map[string]int
	queries []Query
}

func newResolver(zone map[string][]Answer) *resolver {
	return &resolver{zone: zone, asked: map[string]int{}}
}

func (r *resolver) set(name string, answers []Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zone[name] = answers
	delete(r.asked, name)
}

func (r *resolver) replace(zone map[string][]Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zone, r.asked = zone, map[string]int{}
}

func (r *resolver) list(reset bool) []Query {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := append([]Query(nil), r.queries...)
	if reset {
		r.queries = nil
	}
	return out
}

// serve answers on one address until the sockets close.
func (r *resolver) serve(addr string) error {
	hostport := net.JoinHostPort(addr, "53")
	pc, err := net.ListenPacket("udp", hostport)
	if err != nil {
		return fmt.Errorf("opening resolver: %w", err)
	}
	ln, err := net.Listen("tcp", hostport)
	if err != nil {
		return fmt.Errorf("opening resolver: %w", err)
	}
	go r.serveUDP(pc)
	go r.serveTCP(ln)
	return nil
}

func (r *resolver) serveUDP(pc net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		msg := append([]byte(nil), buf[:n]...)
		go func() {
			if out := r.answer("udp", from.String(), msg); out != nil {
				_, _ = pc.WriteTo(out, from)
			}
		}()
	}
}

func (r *resolver) serveTCP(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(c, size[:]); err != nil {
					return
				}
				msg := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(c, msg); err != nil {
					return
				}
				out := r.answer("tcp", c.RemoteAddr().String(), msg)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
			}
		}()
	}
}

// answer records the question and builds the reply; nil for what is no question.
func (r *resolver) answer(proto, from string, msg []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(msg)
	if err != nil || head.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	kind := strings.TrimPrefix(q.Type.String(), "Type")
	a, known := r.pick(name, q.Type, Query{Proto: proto, From: from, Name: name, Type: kind})
	if a.Ask != "" {
		return forward(a.Ask, msg)
	}
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: head.ID, Response: true, Authoritative: true,
			RecursionDesired: head.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{q},
	}
	switch {
	case a.Fail:
		reply.RCode = dnsmessage.RCodeServerFailure
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	default:
		reply.Answers = r.records(q, a)
	}
	out, err := reply.Pack()
	if err != nil {
		return nil
	}
	return out
}

// pick records q and chooses the answer that is next in turn. Only questions
// for an IPv4 address move the turn on, since a client asks for both kinds.
func (r *resolver) pick(name string, kind dnsmessage.Type, q Query) (Answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queries) < 100_000 {
		r.queries = append(r.queries, q)
	}
	answers, key := r.zone[name], name
	for rest := name; len(answers) == 0; {
		_, after, ok := strings.Cut(rest, ".")
		if !ok && rest == "" {
			return Answer{}, false
		}
		rest, key = after, strings.TrimSuffix("*."+after, ".")
		answers = r.zone[key]
	}
	turn := min(r.asked[name], len(answers)-1)
	if kind == dnsmessage.TypeA {
		r.asked[name]++
	}
	return answers[turn], true
}

func (r *resolver) records(q dnsmessage.Question, a Answer) []dnsmessage.Resource {
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: a.TTL}
	var out []dnsmessage.Resource
	if a.CNAME != "" {
		target := dnsmessage.MustNewName(a.CNAME + ".")
		out = append(out, dnsmessage.Resource{Header: head, Body: &dnsmessage.CNAMEResource{CNAME: target}})
		head.Name = target
		r.mu.Lock()
		if next := r.zone[a.CNAME]; len(next) > 0 {
			a = next[0]
		}
		r.mu.Unlock()
	}
	for _, s := range a.Addrs {
		ip := netip.MustParseAddr(s)
		switch {
		case ip.Is4() && q.Type == dnsmessage.TypeA:
			out = append(out, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: ip.As4()}})
		case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
			out = append(out, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	return out
}

// forward asks the resolver at addr, as a recursive resolver asks the one that
// is responsible for a name: this is how a name carries data to its owner.
func forward(addr string, msg []byte) []byte {
	c, err := net.Dial("udp", net.JoinHostPort(addr, "53"))
	if err != nil {
		return nil
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write(msg); err != nil {
		return nil
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}
