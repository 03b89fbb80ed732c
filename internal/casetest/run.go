// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"bawn/internal/audit"
	"bawn/internal/budget"
	"bawn/internal/casetest/talk"
	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/ids"
	"bawn/internal/labels"
	"bawn/internal/names"
	"bawn/internal/netplan"
	"bawn/internal/policy"
	"bawn/internal/quota"
	"bawn/internal/verdict"
)

// patience is how long a case may take. It bounds a proxy that hangs and is
// reached by no other.
const patience = 30 * time.Second

// Run runs one case. env is the same for any number of cases, which may run at
// the same time.
func Run(c *Case, env *Env) Result {
	r := Result{File: c.File, Agent: c.Agent, Results: []Verdict{}, OK: true}
	for _, w := range c.Want {
		r.Wanted = append(r.Wanted, w.String())
	}
	if len(c.Unsupported) > 0 {
		r.fail("not yet supported: %s", strings.Join(c.Unsupported, ", "))
		return r
	}
	p, err := policy.Load([]byte(c.Policy), policy.Known{AnyAgent: true})
	if err != nil {
		r.Results = []Verdict{{Verdict: "deny", Code: codes.PolicyInvalid, Stage: "policy", detail: err.Error()}}
		if r.compare(c.Want); !r.OK || c.Want[0].Code != codes.PolicyInvalid {
			r.fail("the policy is refused: %v", err)
		}
		return r
	}
	if c.Want[0].Code == codes.PolicyInvalid {
		r.fail("the policy is accepted")
		return r
	}
	if r.Agent, err = agentOf(c, p); err != nil {
		r.fail("%v", err)
		return r
	}
	run := &running{c: c, env: env, policy: p, agent: r.Agent, records: recorder{changed: make(chan struct{}, 1)}}
	if err := run.do(); err != nil {
		r.fail("%v", err)
	}
	run.judge(&r)
	return r
}

// agentOf names the agent of the case.
func agentOf(c *Case, p *policy.Policy) (string, error) {
	if c.Agent != "" {
		return c.Agent, nil
	}
	all := p.Agents()
	if len(all) != 1 {
		return "", fmt.Errorf("the policy has %d agents: section agent has to name one", len(all))
	}
	return all[0], nil
}

// A running is one run of a case: the server, what it stands on, and what was
// seen.
type running struct {
	c        *Case
	env      *Env
	policy   *policy.Policy
	agent    string
	records  recorder
	resolver pretendResolver
	upstream pretendUpstream
	client   client
	replies  [][]byte // that the resolver gave
}

// do serves one connection of the case's client to its end.
func (run *running) do() error {
	if run.c.Arrive == arriveDNS {
		return run.ask()
	}
	run.resolver.lines = run.c.DNS
	run.upstream.answer = run.c.Upstream
	run.upstream.opens = len(run.c.Messages) > 0
	run.upstream.opaque = run.opaque()
	run.upstream.raw = run.c.Arrive == arriveTCP
	run.upstream.protocols = run.c.UpstreamProtocols()
	run.upstream.mint = run.env.upstreamCertificate

	arrival := netplan.Explicit
	if run.c.Arrive == arriveTransparent || run.c.Arrive == arriveTCP {
		arrival = netplan.Transparent
	}
	dst, named, err := destination(run.c.Dst)
	if err != nil {
		return err
	}
	meter, err := run.meter()
	if err != nil {
		return err
	}
	server := egress.New(egress.Config{
		Policies:    standing{run.policy},
		Recorder:    &run.records,
		Resolver:    &run.resolver,
		Minter:      run.env.minter,
		Names:       table{run.agent, dst.Addr(), named},
		Budget:      budget.NewLabels(labels.Limits{}),
		Meter:       meter,
		Dialer:      &run.upstream,
		Roots:       run.env.roots,
		OriginalDst: func(net.Conn) (netip.AddrPort, error) { return dst, nil },
		Now:         run.now,
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ln := newListener(netip.MustParseAddrPort("198.18.0.1:3128"))
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, ln, egress.Source{
			Identity: run.identity(),
			Arrival:  arrival,
		})
	}()
	near, far := newConns(netip.MustParseAddrPort("198.18.0.2:50000"), netip.MustParseAddrPort("198.18.0.1:3128"))
	ln.conns <- far
	err = run.client.talk(run, near)
	near.Close()
	if err == nil {
		err = run.records.settle(ctx, run.client.judged)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("the proxy did not come to an end within %v", patience)
	}
	cancel()
	<-served
	return err
}

func (run *running) identity() ids.Identity {
	return ids.Identity{Slot: 1, Gen: ids.Generation{Epoch: 1, Count: 1}, Session: "s-case", Agent: run.agent, User: "case"}
}

// now is the time of the case.
func (run *running) now() time.Time {
	if run.c.Time.IsZero() {
		return time.Now()
	}
	return run.c.Time
}

// destination reads dst. A name gets the first of the stand-in addresses.
func destination(dst string) (netip.AddrPort, names.Host, error) {
	if dst == "" {
		return netip.AddrPort{}, names.Host{}, nil
	}
	if host, port, ok := dstName(dst); ok {
		return netip.AddrPortFrom(standIn, port), host, nil
	}
	a, err := netip.ParseAddrPort(dst)
	if err != nil {
		return netip.AddrPort{}, names.Host{}, fmt.Errorf("dst=%s is neither ADDRESS:PORT nor NAME:PORT", dst)
	}
	return a, names.Host{}, nil
}

// standIn is the stand-in address of the one name that a case can have.
var standIn = netip.MustParseAddr("198.18.1.1")

// A table says which name a stand-in address stands for.
type table struct {
	agent string
	addr  netip.Addr
	host  names.Host
}

// Name implements egress.Names.
func (t table) Name(agent string, a netip.Addr) (names.Host, bool) {
	if t.host.IsZero() || agent != t.agent || a != t.addr {
		return names.Host{}, false
	}
	return t.host, true
}

// A standing policy is in force from the beginning to the end.
type standing struct{ policy *policy.Policy }

// Current implements egress.Policies.
func (s standing) Current() (*policy.Policy, uint64, verdict.Verdict) {
	return s.policy, 1, verdict.Verdict{Effect: verdict.Allow}
}

// Changed implements egress.Policies.
func (s standing) Changed() <-chan struct{} { return nil }

// A recorder keeps the records of a case.
type recorder struct {
	mu        sync.Mutex
	decisions []audit.Decision
	outcomes  map[string]audit.Outcome
	changed   chan struct{} // for whoever waits for a record
}

// tell wakes whoever waits. The lock is held.
func (r *recorder) tell() {
	select {
	case r.changed <- struct{}{}:
	default: // nobody waits, or who waits has not looked yet
	}
}

// settle waits until so many decisions are on record, and what was allowed has
// come to its end.
func (r *recorder) settle(ctx context.Context, decisions int) error {
	for r.count() < decisions || r.open() {
		select {
		case <-r.changed:
		case <-ctx.Done():
			return fmt.Errorf("not everything is on record after %v", patience)
		}
	}
	return nil
}

// open reports whether an outcome is still to come.
func (r *recorder) open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.decisions {
		if _, ended := r.outcomes[d.Request]; d.Verdict == verdict.Allow && !ended {
			return true
		}
	}
	return false
}

// count is how many decisions there are.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.decisions)
}

// Decide implements egress.Recorder.
func (r *recorder) Decide(d *audit.Decision) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decisions = append(r.decisions, *d)
	r.tell()
	return nil
}

// Dial implements egress.Recorder. Cases are about what is decided.
func (r *recorder) Dial(*audit.Dial) error { return nil }

// SyncNow implements egress.Recorder.
func (r *recorder) SyncNow() error { return nil }

// Outcome implements egress.Recorder.
func (r *recorder) Outcome(o *audit.Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes == nil {
		r.outcomes = map[string]audit.Outcome{}
	}
	r.outcomes[o.Request] = *o
	r.tell()
	return nil
}

// verdicts gives what came of each request. A request that was allowed and then
// refused all the same (its name has no good address, its body breaks off) was
// refused.
func (r *recorder) verdicts() []Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []Verdict{}
	for _, d := range r.decisions {
		if d.Message > 0 {
			continue // a message: what reached the server counts
		}
		v := Verdict{Verdict: d.Verdict.String(), Code: d.Code, Stage: d.Stage, Rule: d.Rule, detail: d.Detail}
		if o, ok := r.outcomes[d.Request]; ok && d.Verdict == verdict.Allow && RefusedLate(o.Code, o.BytesUp, o.Status) {
			v = Verdict{Verdict: "deny", Code: o.Code, Stage: stageOf(o.Code), Rule: d.Rule, detail: o.Error, late: true}
		}
		list = append(list, v)
	}
	return list
}

// A webSocket is what the record says of the one that a case opened.
type webSocket struct {
	rule    string
	outcome audit.Outcome
	judged  int // messages that a guard let through
	refused int
}

// webSocket finds it; ok is false when there is none.
func (r *recorder) webSocket() (ws webSocket, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.decisions {
		o, ended := r.outcomes[d.Request]
		switch {
		case d.Message > 0 && d.Verdict == verdict.Allow:
			ws.judged++
		case d.Message > 0:
			ws.refused++
		case ended && o.Status == 101:
			ws.rule, ws.outcome, ok = d.Rule, o, true
		}
	}
	return ws, ok
}

// allowed counts the requests that were let through. read is false when some
// were not looked into, so that nobody can say how many there were.
func (r *recorder) allowed() (n int, read bool) {
	for _, v := range r.verdicts() {
		if v.Verdict == "allow" {
			n++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.decisions {
		if d.Verdict == verdict.Allow && d.Inspect != policy.InspectFull.String() {
			return n, false
		}
	}
	return n, true
}

// RefusedLate reports whether an outcome with this code, so many octets sent up
// and this status is that of an allowed request which was refused all the same,
// and which no server got whole: nothing went up, or what the agent sent was at
// fault. What is wrong with a WebSocket is not wrong with its handshake.
func RefusedLate(code codes.Code, bytesUp int64, status int) bool {
	if code == "" || status == 101 {
		return false
	}
	e, _ := codes.Lookup(code)
	return bytesUp == 0 || e.Group == codes.GroupRequests || ofBudget(code) && status == e.Status
}

func ofBudget(code codes.Code) bool {
	return code == codes.BudgetExceeded || code == codes.RateLimited
}

// stageOf says where a request ended that had been allowed.
func stageOf(code codes.Code) string {
	switch code {
	case codes.AddressNotPublic, codes.AddressUnresolved:
		return "resolve"
	case codes.UpstreamUnreachable, codes.UpstreamTLSInvalid, codes.ALPNDenied:
		return "dial"
	}
	if ofBudget(code) {
		return quota.Stage
	}
	if e, _ := codes.Lookup(code); e.Group == codes.GroupRequests {
		return "body"
	}
	return "upstream"
}

// judge fills in the result and holds it against the case.
func (run *running) judge(r *Result) {
	requests, parts, messages, faults, dialled := run.upstream.seen()
	asked := run.resolver.names()
	r.Forwarded = shown(append(requests[:len(requests):len(requests)], parts...), messages)
	r.Results = run.records.verdicts()
	if run.client.upgraded {
		run.conversation(r, messages)
	}
	r.Recorded = len(r.Results)
	if len(r.Results) == 0 && r.OK && run.client.established && run.c.sent() == 0 {
		// Nothing was asked for inside the connection, and it was let through.
		r.Results = []Verdict{{Verdict: "allow", Stage: "name"}}
	}
	run.answered(r)
	run.pad(r)
	r.compare(run.c.Want)
	run.coherent(r)
	for _, f := range faults {
		r.fail("%s", f)
	}
	// Whoever breaks off inside a body has been let through as far as the head.
	refusedOnly, afterDNS := len(r.Results) > 0, len(parts) > 0
	for _, v := range r.Results {
		refusedOnly = refusedOnly && v.Verdict != "allow"
		afterDNS = afterDNS || v.late
	}
	switch {
	case refusedOnly && len(requests) > 0:
		r.fail("everything was refused, and %d requests were forwarded all the same", len(requests))
	case refusedOnly && !afterDNS && len(asked)+dialled > 0:
		r.fail("everything was refused, and %v was asked for all the same", asked)
	}
	if allowed, read := run.records.allowed(); read && allowed != len(requests) {
		r.fail("%d requests were allowed, %d were forwarded", allowed, len(requests))
	}
	if run.c.Forwarded != nil {
		if why := differ(run.c.Forwarded, requests, run.c.lastForwarded, messages); why != "" {
			r.fail("%s", why)
		}
	}
}

// conversation is what came of the messages of a WebSocket: those that reached
// the server were allowed, and the proxy may have ended it. All who saw it have to
// agree.
func (run *running) conversation(r *Result, messages []talk.Message) {
	ws, ok := run.records.webSocket()
	if !ok {
		r.fail("a WebSocket was opened, and its outcome is not on record")
		return
	}
	for range messages {
		r.Results = append(r.Results, Verdict{Verdict: "allow", Stage: "message", Rule: ws.rule})
	}
	o := ws.outcome
	if o.Code != "" {
		r.Results = append(r.Results, Verdict{
			Verdict: "close", Code: o.Code, Stage: "message", Rule: ws.rule, Status: run.client.farewell.Status, detail: o.Error,
		})
		if said := run.client.farewell; said.Reason != string(o.Code) || said.Status != o.Close {
			r.fail("the record says %d %q of the end of the WebSocket, the agent was told %d %q", o.Close, o.Code, said.Status, said.Reason)
		}
	}
	if n := ws.judged + ws.refused; o.MessagesUp != int64(len(messages)) || n > 0 && ws.judged != len(messages) {
		r.fail("%d messages reached the server, the record says %d, of which %d were judged", len(messages), o.MessagesUp, ws.judged)
	}
}

// pad gives requests that were never read, since a refusal had ended the
// connection, the verdict of that refusal.
func (run *running) pad(r *Result) {
	if n := len(r.Results); n > 0 && n < len(run.c.Want) {
		last := r.Results[n-1]
		for last.Verdict != "allow" && len(r.Results) < min(len(run.c.Want), max(run.c.sent(), len(run.client.told))) {
			r.Results = append(r.Results, last)
		}
	}
}

// coherent checks that the agent was told what the record says.
func (run *running) coherent(r *Result) {
	told := run.client.told
	for i, v := range run.records.verdicts() {
		if i >= len(told) || told[i].none || v.Verdict == "allow" {
			continue
		}
		if told[i].code != v.Code {
			r.fail("verdict %d: the record says %q, the agent was told %q", i+1, v.Code, told[i].code)
		}
	}
}
