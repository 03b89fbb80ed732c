// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"slices"
	"time"

	"bawn/internal/audit"
)

// Health is how the index does.
type Health struct {
	Behind  int64         // bytes of the journals that are not in the index yet
	Lag     time.Duration // since when it has been behind; 0: it is not
	Bytes   int64         // of the database, what is free in it left out
	Series  []SeriesHealth
	Damages uint64 // places where a journal could not be read, or does not follow on what is before it
	// Alarm says what is wrong, and AlarmAt since when; empty: nothing is. That
	// the index was made anew stays here until it has caught up.
	Alarm   string
	AlarmAt time.Time
	Rebuilt int // how often the index was made anew since the start
}

// SeriesHealth is how far one series has been read.
type SeriesHealth struct {
	Plane    string
	Position audit.Position
	Last     time.Time // of the last record
	Records  uint64
	Damages  uint64
	Damage   string // the last one
	// Durable is the file that holds the oldest record which a loss of power
	// could still take out of the index: those in front of it are safe.
	Durable string
}

// Health returns how the index does.
func (x *Index) Health() Health {
	x.health.Lock()
	defer x.health.Unlock()
	h := x.state
	if since := x.o.Now().Sub(x.complete); since > 4*x.o.Every {
		h.Lag = since
	}
	h.Series = append([]SeriesHealth(nil), h.Series...)
	return h
}

// Indexed returns the file up to which a series is safely in the index: those in
// front of it are not needed for it any more. Empty: none.
func (x *Index) Indexed(plane string) string {
	x.health.Lock()
	defer x.health.Unlock()
	for _, s := range x.state.Series {
		if s.Plane == plane {
			return s.Durable
		}
	}
	return ""
}

// alarm tells the log and the health that something is wrong.
func (x *Index) alarm(what string) {
	x.health.Lock()
	news := x.state.Alarm != what
	x.state.Alarm, x.state.AlarmAt = what, x.o.Now()
	x.health.Unlock()
	if news {
		x.o.Log.Error("audit index", "alarm", what)
	}
}

func (x *Index) quiet() {
	x.health.Lock()
	defer x.health.Unlock()
	if x.state.Alarm != "" {
		x.o.Log.Info("audit index: in order again", "was", x.state.Alarm)
	}
	x.state.Alarm, x.state.AlarmAt = "", time.Time{}
}

// CatchUp blocks until everything that the journals held at the time of the call
// is in the index, or ctx is done: then it reports false.
func (x *Index) CatchUp(ctx context.Context) bool {
	done := make(chan struct{})
	x.health.Lock()
	x.waiters = append(x.waiters, done)
	x.health.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		x.health.Lock()
		defer x.health.Unlock()
		x.waiters = slices.DeleteFunc(x.waiters, func(w chan struct{}) bool { return w == done })
		return false
	}
}

func (x *Index) takeWaiters() []chan struct{} {
	x.health.Lock()
	defer x.health.Unlock()
	w := x.waiters
	x.waiters = nil
	return w
}

// answer lets go of those who waited, or keeps them for the next time. It reports
// whether anybody waits.
func (x *Index) answer(waiters []chan struct{}, complete bool) bool {
	x.health.Lock()
	defer x.health.Unlock()
	if complete {
		for _, w := range waiters {
			close(w)
		}
	} else {
		x.waiters = append(waiters, x.waiters...)
	}
	return len(x.waiters) > 0
}
