// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/budget"
	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/quota"
	"bawn/internal/verdict"
)

const (
	sweepEvery = 250 * time.Millisecond
	// rejudgeEvery is how many sweeps pass between two judgements of all that
	// is open. A change of policy does not wait for it; rules that expire do.
	rejudgeEvery = 2
)

// live is everything that is open, and the one goroutine that bounds it in
// time and judges it again. It takes the place of a timer for each read and
// write, which a request would pay for.
type live struct {
	s       *Server
	started time.Time
	clock   atomic.Int64 // nanoseconds since started, as of the last sweep
	idle    atomic.Int64 // upstream connections that wait; each began to while a flow was open

	mu       sync.Mutex
	flows    map[*flow]struct{}
	sweeping bool
}

func (l *live) init(s *Server) {
	l.s, l.started, l.flows = s, time.Now(), map[*flow]struct{}{}
}

// tick brings the clock up to date.
func (l *live) tick() time.Duration {
	now := time.Since(l.started)
	l.clock.Store(int64(now))
	return now
}

// A flow is one accepted connection as the sweep sees it, or one stream of it.
type flow struct {
	l        *live
	parent   *flow // of the connection that this is a stream of
	agent    string
	cancel   context.CancelFunc
	deadline atomic.Int64 // on live.clock; 0: none
	life     atomic.Int64 // a deadline that no phase puts off; 0: none
	until    atomic.Int64 // the end of the request or tunnel at hand, likewise
	phase    atomic.Uint32
	secure   atomic.Bool // TLS with the agent has begun

	look time.Duration // when the sweep asks next how long a tunnel has been silent

	mu     sync.Mutex
	client flowEnd
	quiet  func() time.Duration // of a tunnel: since when neither end has said anything
	stand  stand
	up     aborter // shares the flow's fate
	ended  *cut
}

// A flowEnd is the agent's end of a flow.
type flowEnd interface {
	// abort ends it so that the agent sees a failure, and close in good order.
	abort()
	close()
	// gone reports whether the agent has gone away. With mayEnd it has not if it
	// only ended what it sends.
	gone(mayEnd bool) bool
}

// An aborter is the server's end of a flow.
type aborter interface{ abort() }

// A stand is what a flow has been allowed and stands on. The zero stand, of a
// connection that has asked for nothing yet, cannot be taken back.
type stand struct {
	host    names.Host
	port    uint16
	request bool         // query and guards count
	query   policy.Query // as it was allowed
	guards  guard.Chain  // that it has passed
	key     string       // the credential that it uses
	inspect policy.Inspect
	upAddr  netip.Addr // that was dialled
	pass    *budget.Pass
}

// A cut is why Bawn ended a flow.
type cut struct {
	code   codes.Code
	why    string // policy, lease, limit, budget, shutdown; empty: the agent went away
	detail string
}

// What a flow waits for.
const (
	phaseIdle uint32 = iota
	phaseHandshake
	phaseHead
	phaseUpstream
	phaseResponse
	phaseBody
	phaseSplice
	phaseMessages
	phaseClosing
	phaseStreams
)

var phaseNames = [...]string{
	phaseIdle:      "the next request",
	phaseHandshake: "the TLS handshake",
	phaseHead:      "the end of a head",
	phaseUpstream:  "the upstream connection",
	phaseResponse:  "the response",
	phaseBody:      "the rest of a body",
	phaseSplice:    "either end",
	phaseMessages:  "a message, or a ping",
	phaseClosing:   "the end of the closing handshake",
	phaseStreams:   "its streams",
}

func (l *live) add(agent string, client flowEnd, cancel context.CancelFunc) *flow {
	f := &flow{l: l, agent: agent, client: client, cancel: cancel}
	l.tick()
	f.await(phaseHead)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flows[f] = struct{}{}
	l.wake()
	return f
}

// addStream adds a flow that is a part of another and ends with it.
func (l *live) addStream(parent *flow, client flowEnd, cancel context.CancelFunc) *flow {
	f := &flow{l: l, parent: parent, agent: parent.agent, client: client, cancel: cancel}
	f.secure.Store(true)
	f.begins()
	f.await(phaseHead)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flows[f] = struct{}{}
	return f
}

func (l *live) remove(f *flow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.flows, f)
}

// wake starts the sweep unless it runs. The caller holds mu.
func (l *live) wake() {
	if !l.sweeping {
		l.sweeping = true
		go l.sweep()
	}
}

// sweep runs while anything is open.
func (l *live) sweep() {
	timer := time.NewTicker(sweepEvery)
	defer timer.Stop()
	for n := 1; ; n++ {
		changed := l.s.cfg.Policies.Changed()
		flows := l.snapshot()
		if flows == nil {
			return
		}
		now := l.tick()
		for _, f := range flows {
			f.check(now)
		}
		if n%rejudgeEvery == 0 {
			l.rejudge(flows)
		}
		for _, t := range l.s.allTenants() {
			t.pool.expire(now - l.s.lim.IdleUpstream)
		}
		select {
		case <-timer.C:
		case <-changed:
			l.policyChanged()
		}
	}
}

// snapshot returns the open flows; nil, and the sweep has ended, if nothing is
// open.
func (l *live) snapshot() []*flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flows) == 0 && l.idle.Load() == 0 {
		l.sweeping = false
		return nil
	}
	flows := make([]*flow, 0, len(l.flows))
	for f := range l.flows {
		flows = append(flows, f)
	}
	return flows
}

// policyChanged judges every flow by the new policy, and closes the upstream
// connections that wait: they were opened under the old one.
func (l *live) policyChanged() {
	l.mu.Lock()
	flows := make([]*flow, 0, len(l.flows))
	for f := range l.flows {
		flows = append(flows, f)
	}
	l.mu.Unlock()
	l.rejudge(flows)
	for _, t := range l.s.allTenants() {
		t.pool.drain()
	}
}

func (l *live) rejudge(flows []*flow) {
	p, _, v := l.s.cfg.Policies.Current()
	now := l.s.cfg.Now()
	for _, f := range flows {
		st := f.standing()
		switch {
		case st.host.IsZero():
		case !v.Allowed():
			f.cut(cut{code: v.Why(), why: "lease", detail: v.Detail})
		default:
			if v := l.s.still(p.Agent(f.agent), &st, now); !v.Allowed() {
				f.cut(cut{code: v.Why(), why: whyCut(v), detail: v.Detail})
			}
		}
	}
}

// still judges a flow again: may it go on as it is?
func (s *Server) still(a *policy.Agent, st *stand, now time.Time) verdict.Verdict {
	var d policy.Decision
	if st.request {
		d = a.Request(st.query, now)
	} else {
		d = a.Name(st.host, st.port, now)
	}
	switch {
	case !d.Verdict.Allowed():
		return d.Verdict
	case d.Inspect < st.inspect:
		return verdict.Refuse("name", codes.PolicyDenied, "the connection would have to be inspected now")
	case st.request && d.Credential != st.key:
		return verdict.Refuse("name", codes.PolicyDenied, "the request would have to be made with another credential, or none")
	}
	for _, step := range d.Guards {
		if !passed(st.guards, step.Name) {
			return verdict.Refuse("guard", codes.PolicyDenied, "guard "+step.Name+" has not seen the request")
		}
	}
	if st.upAddr.IsValid() {
		if detail, ok := s.vet(d).Check(st.upAddr); !ok {
			return verdict.Refuse("resolve", codes.AddressNotPublic, detail)
		}
	}
	if v := st.afford(a, d, s); !v.Allowed() {
		return v
	}
	return d.Verdict
}

func whyCut(v verdict.Verdict) string {
	if v.Stage == quota.Stage {
		return cutBudget
	}
	return "policy"
}

func passed(chain guard.Chain, name string) bool {
	for i := range chain {
		if chain[i].Name == name {
			return true
		}
	}
	return false
}

// await says what the flow waits for now, which sets how long it may.
func (f *flow) await(phase uint32) {
	f.phase.Store(phase)
	deadline, life := int64(0), f.life.Load()
	if limit := f.l.s.limitOf(phase); limit != 0 {
		deadline = f.l.clock.Load() + int64(limit+sweepEvery)
	}
	if life != 0 && (deadline == 0 || life < deadline) {
		deadline = life
	}
	f.deadline.Store(deadline)
}

// bound bounds what the flow does from now on as a whole.
func (f *flow) bound(limit time.Duration) {
	f.life.Store(f.l.clock.Load() + int64(limit+sweepEvery))
}

func (s *Server) limitOf(phase uint32) time.Duration {
	switch phase {
	case phaseIdle:
		return s.lim.Idle
	case phaseHandshake:
		return s.lim.Handshake
	case phaseHead:
		return s.lim.Head
	case phaseUpstream:
		return s.lim.Resolve + s.lim.Dial
	case phaseResponse:
		return s.lim.Response
	case phaseBody:
		return s.lim.Stall
	case phaseMessages:
		return s.lim.MessageIdle
	case phaseClosing:
		return s.lim.Closing
	}
	return 0 // a splice ends when one of its ends does, and streams have their own
}

// begins says that a request or a tunnel begins, which bounds how long it may
// take in all.
func (f *flow) begins() { f.until.Store(f.l.clock.Load() + int64(f.l.s.lim.Total+sweepEvery)) }

// tunnels says which two connections the octets go between.
func (f *flow) tunnels(agent, server socket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = func() time.Duration { return min(agent.quiet(), server.quiet()) }
}

// rests says that nothing is under way.
func (f *flow) rests() { f.until.Store(0) }

// check bounds the flow in time, and notices that the agent went away in the
// middle of a request.
func (f *flow) check(now time.Duration) {
	phase := f.phase.Load()
	if d := f.deadline.Load(); d != 0 && int64(now) > d {
		detail := "waited too long for " + phaseNames[phase]
		if d == f.life.Load() {
			detail = "was open for as long as it may be"
		}
		f.cut(cut{why: "limit", detail: detail})
		return
	}
	if d := f.until.Load(); d != 0 && int64(now) > d {
		f.cut(cut{why: "limit", detail: "took longer than anything may"})
		return
	}
	if phase == phaseSplice {
		f.checkSilence(now)
	}
	if (phase == phaseUpstream || phase == phaseResponse || phase == phaseBody) && f.end().gone(!f.secure.Load()) {
		f.cut(cut{detail: "the agent closed the connection"})
	}
}

func (f *flow) end() flowEnd {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.client
}

// takeOver makes both ends one, which ends them in a way of its own. It reports
// false if the flow has ended already.
func (f *flow) takeOver(both flowEnd) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil {
		return false
	}
	f.client, f.up = both, nil
	return true
}

// checkSilence ends a tunnel in which nobody says anything. Its octets pass by
// without a word to the flow, so the kernel is asked, and not at each sweep.
func (f *flow) checkSilence(now time.Duration) {
	limit := f.l.s.lim.Silence
	if now < f.look {
		return
	}
	f.look = now + limit/8
	f.mu.Lock()
	quiet := f.quiet
	f.mu.Unlock()
	if quiet != nil && quiet() > limit {
		f.cut(cut{why: "limit", detail: "waited too long for " + phaseNames[phaseSplice]})
	}
}

// stands says what the flow stands on from now.
func (f *flow) stands(st stand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stand = st
}

func (f *flow) standing() stand {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stand
}

// join makes up share the flow's fate; nil parts it. It reports false if the
// flow has ended already: then up is the caller's to close.
func (f *flow) join(up aborter, a netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if up != nil && (f.ended != nil || f.parent != nil && f.parent.wasCut() != nil) {
		return false
	}
	f.up, f.stand.upAddr = up, a
	return true
}

// cut ends the flow. The first reason stays.
func (f *flow) cut(why cut) {
	f.mu.Lock()
	if f.ended != nil {
		f.mu.Unlock()
		return
	}
	f.ended = &why
	client, up := f.client, f.up
	f.mu.Unlock()
	f.cancel()
	if f.phase.Load() == phaseIdle && why.why == "limit" {
		client.close() // nothing is under way: an ordinary end
		return
	}
	client.abort()
	if up != nil {
		up.abort()
	}
}

// wasCut returns why the flow was cut, nil if it was not. A stream ends with its
// connection.
func (f *flow) wasCut() *cut {
	f.mu.Lock()
	why := f.ended
	f.mu.Unlock()
	if why == nil && f.parent != nil {
		return f.parent.wasCut()
	}
	return why
}
