// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"bawn/internal/budget"
	"bawn/internal/labels"
	"bawn/internal/names"
	"bawn/internal/resolver"
)

// ask puts the questions of a case to the real resolver: query lines as UDP
// messages, raw bytes as TCP connections.
func (run *running) ask() error {
	meter, err := run.meter()
	if err != nil {
		return err
	}
	server := resolver.New(resolver.Config{
		Policies:  standing{run.policy},
		Recorder:  &run.records,
		Addresses: &addresses{},
		Budget:    budget.NewLabels(labels.Limits{}),
		Meter:     meter,
		Now:       run.now,
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	source := resolver.Source{Identity: run.identity()}
	if len(run.c.Queries) > 0 {
		return run.datagrams(ctx, server, source)
	}
	return run.segments(ctx, server, source)
}

// datagrams asks one question after the other over UDP.
func (run *running) datagrams(ctx context.Context, server *resolver.Server, source resolver.Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pc := newPacketConn()
	served := make(chan error, 1)
	go func() { served <- server.ServeUDP(ctx, pc, source) }()
	for _, q := range run.c.Queries {
		reply, err := pc.exchange(ctx, q.Message)
		if err != nil {
			return fmt.Errorf("asking %s: %w", q.Line, err)
		}
		run.replies = append(run.replies, reply)
	}
	cancel()
	return <-served
}

// segments makes a TCP connection for each stream and reads all that comes back.
func (run *running) segments(ctx context.Context, server *resolver.Server, source resolver.Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ln := newListener(netip.MustParseAddrPort("198.18.0.1:53"))
	served := make(chan error, 1)
	go func() { served <- server.ServeTCP(ctx, ln, source) }()
	for _, s := range run.c.Streams {
		near, far := newConns(netip.MustParseAddrPort("198.18.0.2:50000"), netip.MustParseAddrPort("198.18.0.1:53"))
		near.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // cannot fail
		ln.conns <- far
		near.Write(s)     //nolint:errcheck // the resolver may have closed: the record says why
		near.CloseWrite() //nolint:errcheck // cannot fail
		all, err := io.ReadAll(near)
		near.Close()
		if err != nil {
			return fmt.Errorf("reading the resolver's answers: %w", err)
		}
		list, err := Replies(all)
		run.replies = append(run.replies, list...)
		if err != nil {
			return err
		}
	}
	cancel()
	return <-served
}

// Replies splits what a DNS server sent on a TCP connection.
func Replies(all []byte) (list [][]byte, err error) {
	for len(all) > 0 {
		if len(all) < 2 || len(all)-2 < int(binary.BigEndian.Uint16(all)) {
			return list, errors.New("the resolver's last answer is not whole")
		}
		n := 2 + int(binary.BigEndian.Uint16(all))
		list = append(list, all[2:n])
		all = all[n:]
	}
	return list, nil
}

// answered turns the record's verdicts into what came of each question: an
// answer without data is none of the two that policy knows. What an answer says
// has to be what the record says.
func (run *running) answered(r *Result) {
	for i, reply := range run.replies {
		if i >= len(r.Results) {
			r.fail("%d questions are on record, %d were answered", len(r.Results), len(run.replies))
			return
		}
		if err := CheckReply(&r.Results[i], reply); err != nil {
			r.fail("answer %d: %v", i+1, err)
		}
	}
	for i, q := range run.c.Queries {
		if i < len(run.replies) && !sameQuestion(q.Message, run.replies[i]) {
			r.fail("the answer to %s is about another question", q.Line)
		}
	}
}

// CheckReply holds an answer against the verdict on its question, and makes the
// verdict nodata where the answer has none.
func CheckReply(v *Verdict, reply []byte) error {
	a, err := readReply(reply)
	refused := a.rcode != dnsmessage.RCodeSuccess
	switch {
	case err != nil:
		return fmt.Errorf("the resolver's answer cannot be read: %w", err)
	case refused && v.Verdict == "allow":
		return fmt.Errorf("the record allows it, the answer is %v", a.rcode)
	case !refused && v.Verdict != "allow":
		return fmt.Errorf("the record says %s, the answer is %v", v, a.rcode)
	case refused && a.records > 0:
		return errors.New("a refusal that holds an answer")
	case refused && a.edns && a.extended != string(v.Code):
		return fmt.Errorf("the record says %q, the agent was told %q", v.Code, a.extended)
	case !refused && a.records == 0:
		v.Verdict = "nodata"
	}
	return nil
}

// A dnsReply is what matters of an answer.
type dnsReply struct {
	rcode    dnsmessage.RCode
	records  int
	edns     bool
	extended string // text of the extended error (RFC 8914)
}

// readReply reads an answer; whatever name it is about may be no host name.
func readReply(msg []byte) (a dnsReply, err error) {
	var p dnsmessage.Parser
	head, err := p.Start(msg)
	if err == nil {
		err = p.SkipAllQuestions()
	}
	if err != nil {
		return a, err
	}
	a.rcode = head.RCode
	for {
		err := p.SkipAnswer()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			break
		}
		if err != nil {
			return a, err
		}
		a.records++
	}
	if err := p.SkipAllAuthorities(); err != nil {
		return a, err
	}
	return a, a.additional(&p)
}

// additional looks for the OPT record.
func (a *dnsReply) additional(p *dnsmessage.Parser) error {
	for {
		h, err := p.AdditionalHeader()
		switch {
		case errors.Is(err, dnsmessage.ErrSectionDone):
			return nil
		case err != nil:
			return err
		case h.Type != dnsmessage.TypeOPT:
			if err := p.SkipAdditional(); err != nil {
				return err
			}
			continue
		}
		a.edns, a.rcode = true, h.ExtendedRCode(a.rcode)
		opt, err := p.OPTResource()
		if err != nil {
			return err
		}
		for _, o := range opt.Options {
			if o.Code == 15 && len(o.Data) >= 2 {
				a.extended = string(o.Data[2:])
			}
		}
	}
}

// sameQuestion reports whether an answer has the number of the query and, if it
// repeats the question, every octet of it, the case of letters included.
func sameQuestion(query, reply []byte) bool {
	if len(reply) < 12 || !bytes.Equal(query[:2], reply[:2]) {
		return false
	}
	question := query[12 : len(query)-11]
	return reply[5] == 0 || bytes.HasPrefix(reply[12:], question)
}

// addresses gives names stand-in addresses, in memory.
type addresses struct {
	mu    sync.Mutex
	given map[names.Host]netip.Addr
	last  netip.Addr
}

// Synthetic implements resolver.Addresses.
func (a *addresses) Synthetic(_ string, h names.Host) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if to, ok := a.given[h]; ok {
		return to, nil
	}
	if a.given == nil {
		a.given, a.last = map[names.Host]netip.Addr{}, standIn
	}
	a.given[h] = a.last
	a.last = a.last.Next()
	return a.given[h], nil
}

// A packetConn is a datagram socket in memory, with one peer.
type packetConn struct {
	in, out chan []byte
	done    chan struct{}
	once    sync.Once
}

func newPacketConn() *packetConn {
	return &packetConn{in: make(chan []byte), out: make(chan []byte, 1), done: make(chan struct{})}
}

// exchange sends a datagram and waits for the one that comes back.
func (p *packetConn) exchange(ctx context.Context, msg []byte) ([]byte, error) {
	select {
	case p.in <- msg:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case reply := <-p.out:
		return reply, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case msg := <-p.in:
		return copy(b, msg), &net.UDPAddr{IP: net.IPv4(198, 18, 0, 2), Port: 50000}, nil
	case <-p.done:
		return 0, nil, net.ErrClosed
	}
}

func (p *packetConn) WriteTo(b []byte, _ net.Addr) (int, error) {
	p.out <- bytes.Clone(b)
	return len(b), nil
}

func (p *packetConn) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *packetConn) LocalAddr() net.Addr              { return &net.UDPAddr{IP: net.IPv4(198, 18, 0, 1), Port: 53} }
func (p *packetConn) SetDeadline(time.Time) error      { return nil }
func (p *packetConn) SetReadDeadline(time.Time) error  { return nil }
func (p *packetConn) SetWriteDeadline(time.Time) error { return nil }
