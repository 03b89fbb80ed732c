// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"math/rand/v2"
	"time"
)

// The times of the self-tests that nobody asks for.
const (
	lookEvery   = 2 * time.Second // for what sets one off
	lossesEvery = 5               // looks: netd is asked for the firewall's losses
	settleTime  = 5 * time.Second // whoever started Bawn may ask for one first; changes of policy come in rows
	quietTime   = 5 * time.Minute // at least this between two that a change sets off
	mendedFirst = 2 * time.Second // while a placement is shut, and twice as long each time
	mendedEvery = time.Minute     // at most
)

// keepTesting repeats the self-test until ctx is done: on the timer, after a
// start that nobody has followed up, after a change of policy or a loss of the
// firewall, and, while a placement is shut, soon again, so that what was mended
// is opened without a hand. One runs at a time, whoever asks.
func (s *Server) keepTesting(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w := watch{every: s.o.Config.Doctor.Every, jitter: rand.Float64, began: time.Now()}
	for look := 0; ; look++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case cause := <-s.retest:
			w.changed(cause, time.Now())
		}
		if look%lossesEvery == 0 {
			if n, ok := s.losses(ctx); ok && w.lost(n) {
				w.changed(causeFirewall, time.Now())
			}
		}
		at, lacking := s.newestTest()
		cause := w.due(time.Now(), s.standing(), at, lacking)
		if cause == "" {
			continue
		}
		w.ran(cause, time.Now())
		if _, err := s.selfTest(ctx, cause); err != nil && ctx.Err() == nil {
			s.o.Log.Error("the self-test could not run", "cause", cause, "error", err)
		}
	}
}

// standing reports whether there is all that a self-test needs.
func (s *Server) standing() bool {
	if _, err := s.netd.client(); err != nil {
		return false
	}
	for _, p := range s.planes.list() {
		if p.Live {
			return true
		}
	}
	return false
}

// losses asks netd how often the firewall was lost, where there is one.
func (s *Server) losses(ctx context.Context) (int, bool) {
	c, err := s.netd.client()
	if err != nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := c.Status(ctx)
	if err != nil || st.Firewall.State != "standing" {
		return 0, false
	}
	return st.Firewall.Losses, true
}

// wantTest asks for a self-test soon, if none is asked for already.
func (s *Server) wantTest(cause string) {
	select {
	case s.retest <- cause:
	default:
	}
}

// A watch decides when a self-test is due. It acts on nothing.
type watch struct {
	every  time.Duration // 0: not on a timer
	jitter func() float64
	began  time.Time

	last     time.Time     // of the newest that this watch has set off
	mended   time.Duration // the pause before the next, while a placement is shut
	next     time.Time     // on the timer; zero: to be chosen
	nextFor  time.Time     // the run that next follows
	cause    string        // of a change that waits
	since    time.Time     // when that came
	lossSeen int
	lossInit bool
}

// changed notes that something has changed.
func (w *watch) changed(cause string, now time.Time) {
	if w.cause == "" {
		w.cause, w.since = cause, now
	}
}

// lost reports whether the firewall was lost since the last look. netd counts
// from its own start.
func (w *watch) lost(n int) bool {
	more := w.lossInit && n > w.lossSeen
	w.lossSeen, w.lossInit = n, true
	return more
}

// ran notes that a self-test is being set off now.
func (w *watch) ran(cause string, now time.Time) {
	w.last, w.cause = now, ""
	if cause == causeFailed {
		w.mended = min(2*w.mended, mendedEvery)
	}
}

// due says what a self-test is due for, or nothing. newest is when the newest
// ended, whoever asked for it, and lacking that it shut a placement that agents
// are in. A reason that passes, such as a process that was just being started
// again, shall not keep agents waiting; one that stays is not tried all the time.
func (w *watch) due(now time.Time, standing bool, newest time.Time, lacking bool) string {
	if !standing {
		return ""
	}
	at := w.last
	if newest.After(at) {
		at = newest
	}
	if !lacking || w.mended == 0 {
		w.mended = mendedFirst
	}
	switch {
	case newest.IsZero():
		if now.Sub(w.began) >= settleTime && now.Sub(w.last) >= settleTime {
			return causeStart
		}
		return ""
	case w.cause != "" && at.After(w.since):
		w.cause = "" // one has run since
	case w.cause != "" && now.Sub(w.since) >= settleTime && now.Sub(at) >= quietTime:
		return w.cause
	}
	if lacking && now.Sub(at) >= w.mended {
		return causeFailed
	}
	if w.every > 0 && !now.Before(w.timer(at)) {
		return causeTimer
	}
	return ""
}

// timer is when the run after that of at is due: every, and up to a tenth less,
// so that hosts that were started together do not stay together.
func (w *watch) timer(at time.Time) time.Time {
	if !w.nextFor.Equal(at) {
		w.nextFor = at
		w.next = at.Add(w.every - time.Duration(w.jitter()*float64(w.every)/10))
	}
	return w.next
}
