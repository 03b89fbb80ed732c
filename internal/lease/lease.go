// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lease is a plane's hold on policy.
//
// A [Holder] asks admin once a beat and keeps what it got for a short time,
// counted from the moment at which it asked, on a clock that goes on while the
// machine sleeps. When admin or its database is gone, or the proxy was frozen,
// the lease lapses and [Holder.Current] refuses: no policy past its lease (I2),
// and none older than the one that `policy apply` has reported as in force
// (I10).
//
// A Holder may be used by many goroutines; Current takes no lock.
package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/apitype"
	"bawn/internal/codes"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// NoLease is the detail of the refusal that stands until admin has answered for
// the first time.
const NoLease = "no lease was had yet"

// stage is what verdicts of this package name.
const stage = "lease"

// An Admin answers the beats of a plane.
type Admin interface {
	Lease(ctx context.Context, ask apitype.LeaseAsk) (apitype.LeaseAnswer, error)
}

// A Holder keeps one plane's lease.
type Holder struct {
	admin Admin
	plane string
	log   *slog.Logger
	now   func() time.Duration // since boot, sleep included
	learn func([]apitype.SnapshotAgent)

	parent  func() apitype.ParentHealth // nil: there is none
	checks  func(context.Context) apitype.ResolverReport
	report  atomic.Pointer[apitype.ResolverReport] // of the newest check
	asked   uint64                                 // its number; of Run
	running sync.WaitGroup                         // checks
	through func(map[string]string)
	held    atomic.Pointer[held]
	mu      sync.Mutex
	changed chan struct{}
}

// held is one snapshot and how long it may be used. It is replaced, not
// changed, but for until, which each beat moves on.
type held struct {
	tag      string
	revision uint64
	policy   *policy.Policy // nil: there is none, or it could not be understood
	refusal  verdict.Verdict
	until    atomic.Int64 // nanoseconds since boot
}

// New returns a Holder without a lease. Its log gets one line when the lease
// is lost and one when it is found again.
func New(admin Admin, plane string, log *slog.Logger) *Holder {
	return &Holder{admin: admin, plane: plane, log: log, now: bootTime, changed: make(chan struct{})}
}

// Learn has f called with the agents of each snapshot, before the snapshot is in
// force: what a plane keeps for an agent ends when its registration does. It is
// to be called before Run.
func (h *Holder) Learn(f func([]apitype.SnapshotAgent)) { h.learn = f }

// Hears has f called with what admin says of the plane's journal, at each beat.
// It is to be called before Run, and f must not block.
func (h *Holder) Hears(f func(through map[string]string)) { h.through = f }

// Reports has each beat say how the parent proxy does. Call it before Run.
func (h *Holder) Reports(parent func() apitype.ParentHealth) { h.parent = parent }

// Checks has resolvers asked when admin wants to know how they do. Call it
// before Run.
func (h *Holder) Checks(check func(context.Context) apitype.ResolverReport) { h.checks = check }

// check starts the check that admin asks for. No beat waits for it.
func (h *Holder) check(ctx context.Context, number uint64) {
	if number == 0 || number == h.asked || h.checks == nil {
		return
	}
	h.asked = number
	h.running.Go(func() {
		r := h.checks(ctx)
		r.Check = number
		h.report.Store(&r)
	})
}

// bootTime reads CLOCK_BOOTTIME, which goes on while the machine is suspended.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 1<<63 - 1 // no clock: every lease has lapsed
	}
	return time.Duration(t.Nano())
}

// Current returns the policy in force and its revision, or the refusal that
// stands for it: lease_lapsed, policy_unavailable (none was applied), or
// policy_invalid (this plane cannot understand the one that was).
func (h *Holder) Current() (*policy.Policy, uint64, verdict.Verdict) {
	s := h.held.Load()
	if s == nil {
		return nil, 0, verdict.Refuse(stage, codes.PolicyUnavailable, NoLease)
	}
	if int64(h.now()) >= s.until.Load() {
		return nil, s.revision, verdict.Refuse(stage, codes.LeaseLapsed, "admin has not answered in time")
	}
	if s.policy == nil {
		return nil, s.revision, s.refusal
	}
	return s.policy, s.revision, verdict.Verdict{Effect: verdict.Allow}
}

// Changed returns a channel that is closed when another snapshot is in force
// or the lease has lapsed: live flows are to be judged again.
func (h *Holder) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

func (h *Holder) announce() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.changed)
	h.changed = make(chan struct{})
}

// pause is waited after an ask that failed, so that a dead admin is not
// hammered and one that comes back is soon found.
const pause = 100 * time.Millisecond

// Run keeps the lease until ctx is done. It never gives up.
func (h *Holder) Run(ctx context.Context) error {
	watch := sync.WaitGroup{}
	watch.Go(func() { h.watchLapse(ctx) })
	defer watch.Wait()
	defer h.running.Wait()
	failing := false
	for ctx.Err() == nil {
		err := h.beat(ctx)
		if err == nil && failing {
			h.log.Info("lease is held again", "plane", h.plane)
		}
		if err != nil && !failing && ctx.Err() == nil {
			h.log.Warn("lease cannot be renewed", "plane", h.plane, "error", err)
		}
		failing = err != nil
		if failing {
			sleep(ctx, pause)
		}
	}
	return nil
}

// watchLapse announces each lapse, so that flows that are open then are cut.
func (h *Holder) watchLapse(ctx context.Context) {
	lapsed := false
	for sleep(ctx, apitype.LeaseTTL/20) {
		s := h.held.Load()
		now := s != nil && int64(h.now()) >= s.until.Load()
		if now && !lapsed {
			h.announce()
		}
		lapsed = now
	}
}

func (h *Holder) beat(ctx context.Context) error {
	asked := h.now()
	life := ctx
	ctx, cancel := context.WithTimeout(ctx, apitype.LeaseTTL)
	defer cancel()
	old := h.held.Load()
	ask := apitype.LeaseAsk{Plane: h.plane, Resolvers: h.report.Load()}
	if old != nil {
		ask.Have = old.tag
	}
	if h.parent != nil {
		health := h.parent()
		ask.Parent = &health
	}
	answer, err := h.admin.Lease(ctx, ask)
	if err != nil {
		return fmt.Errorf("asking for the lease: %w", err)
	}
	h.check(life, answer.Check)
	if h.through != nil && len(answer.Through) > 0 {
		h.through(answer.Through)
	}
	until := int64(asked + apitype.LeaseTTL)
	if answer.Snapshot == nil {
		if old == nil || answer.Tag != old.tag {
			return fmt.Errorf("asking for the lease: answer extends %q, held is another", answer.Tag)
		}
		old.until.Store(until)
		return nil
	}
	h.install(*answer.Snapshot, until)
	return nil
}

// install puts s in force. What cannot be compiled is in force as well, as a
// refusal of everything: the older policy must not outlive it.
func (h *Holder) install(s apitype.Snapshot, until int64) {
	if h.learn != nil {
		h.learn(s.Agents)
	}
	next := &held{tag: s.Tag, revision: s.Revision}
	next.until.Store(until)
	p, err := Compile(s)
	switch {
	case err != nil:
		next.refusal = verdict.Refuse(stage, codes.PolicyInvalid, err.Error())
		h.log.Error("policy cannot be understood, everything is denied", "revision", s.Revision, "error", err)
	case p == nil:
		next.refusal = verdict.Refuse(stage, codes.PolicyUnavailable, "no policy was applied yet")
	default:
		next.policy = p
	}
	h.held.Store(next)
	h.announce()
}

// sleep waits for d and reports whether ctx is still wanted.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
