// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/codes"
)

const someYAML = `version: 1
profiles: {reader: {rules: [{host: api.example.com}]}}
agents: {dev: {profile: reader, rules: []}}
`

// admin answers as the test says.
type admin struct {
	answer func(apitype.LeaseAsk) (apitype.LeaseAnswer, error)
}

func (a *admin) Lease(ctx context.Context, ask apitype.LeaseAsk) (apitype.LeaseAnswer, error) {
	answer, err := a.answer(ask)
	select {
	case <-ctx.Done():
		return answer, ctx.Err()
	case <-time.After(apitype.LeaseBeat):
		return answer, err
	}
}

func snapshot(tag string, revision uint64, yaml string) apitype.LeaseAnswer {
	return apitype.LeaseAnswer{Tag: tag, Snapshot: &apitype.Snapshot{Tag: tag, Revision: revision, YAML: yaml, Agents: []apitype.SnapshotAgent{{Name: "dev", ID: "a-" + tag}}}}
}

// hold runs a Holder over a on the bubble's clock; stop ends it and waits.
func hold(t *testing.T, a *admin) (h *Holder, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	h = New(a, "proxy", slog.New(slog.DiscardHandler))
	start := time.Now()
	h.now = func() time.Duration { return time.Since(start) }
	done := make(chan struct{})
	go func() { h.Run(ctx); close(done) }()
	return h, func() { cancel(); <-done }
}

func code(h *Holder) codes.Code {
	_, _, v := h.Current()
	if v.Allowed() {
		return ""
	}
	return v.Why()
}

func TestI2NoPolicyPastItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alive atomic.Bool
		alive.Store(true)
		a := &admin{answer: func(ask apitype.LeaseAsk) (apitype.LeaseAnswer, error) {
			switch {
			case !alive.Load():
				return apitype.LeaseAnswer{}, errors.New("gone")
			case ask.Have == "1":
				return apitype.LeaseAnswer{Tag: "1"}, nil
			}
			return snapshot("1", 7, someYAML), nil
		}}
		h, stop := hold(t, a)
		defer stop()
		if c := code(h); c != codes.PolicyUnavailable {
			t.Errorf("before the first answer: %q", c)
		}
		time.Sleep(10 * time.Second)
		if c := code(h); c != "" {
			t.Fatalf("with beats: %q", c)
		}
		if _, rev, _ := h.Current(); rev != 7 {
			t.Errorf("revision %d", rev)
		}
		alive.Store(false)
		changed := h.Changed()
		time.Sleep(apitype.LeaseTTL + apitype.LeaseTTL/20)
		if c := code(h); c != codes.LeaseLapsed {
			t.Errorf("after admin was gone for the time to live: %q", c)
		}
		select {
		case <-changed:
		case <-time.After(apitype.LeaseTTL / 10):
			t.Error("the lapse was not announced, so open flows go on")
		}
		alive.Store(true)
		time.Sleep(2 * time.Second)
		if c := code(h); c != "" {
			t.Errorf("after admin came back: %q", c)
		}
	})
}

func TestI2AnAnswerThatComesLateExtendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		a := &admin{answer: func(ask apitype.LeaseAsk) (apitype.LeaseAnswer, error) {
			if first {
				first = false
				return snapshot("1", 1, someYAML), nil
			}
			time.Sleep(2500 * time.Millisecond) // plus the beat: later than the time to live
			return apitype.LeaseAnswer{Tag: "1"}, nil
		}}
		h, stop := hold(t, a)
		defer stop()
		time.Sleep(apitype.LeaseBeat + apitype.LeaseTTL + 100*time.Millisecond)
		if c := code(h); c != codes.LeaseLapsed {
			t.Errorf("an answer after the time to live counted from the asking: %q", c)
		}
	})
}

func TestI2WhatCannotBeUnderstoodIsInForceAsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admin{answer: func(ask apitype.LeaseAsk) (apitype.LeaseAnswer, error) {
			switch ask.Have {
			case "":
				return snapshot("1", 1, someYAML), nil
			case "1":
				return snapshot("2", 2, "version: 1\nprofiles: ["), nil
			}
			return apitype.LeaseAnswer{Tag: ask.Have}, nil
		}}
		h, stop := hold(t, a)
		defer stop()
		time.Sleep(5 * time.Second)
		if c := code(h); c != codes.PolicyInvalid {
			t.Errorf("a policy that cannot be compiled: %q; the older one must not outlive it", c)
		}
	})
}

func TestNoPolicyYetDeniesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admin{answer: func(apitype.LeaseAsk) (apitype.LeaseAnswer, error) { return snapshot("0", 0, ""), nil }}
		h, stop := hold(t, a)
		defer stop()
		time.Sleep(1500 * time.Millisecond)
		if c := code(h); c != codes.PolicyUnavailable {
			t.Errorf("%q", c)
		}
	})
}

// TestPlanesLearnWhoIsRegistered: what a plane keeps for agents is told of every
// snapshot before that is in force, one that cannot be understood included.
func TestPlanesLearnWhoIsRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admin{answer: func(ask apitype.LeaseAsk) (apitype.LeaseAnswer, error) {
			switch ask.Have {
			case "":
				return snapshot("1", 7, someYAML), nil
			case "1":
				return snapshot("2", 8, "version: 7"), nil
			}
			return apitype.LeaseAnswer{Tag: ask.Have}, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		h := New(a, "proxy", slog.New(slog.DiscardHandler))
		var learned []string
		h.Learn(func(agents []apitype.SnapshotAgent) {
			_, revision, _ := h.Current()
			learned = append(learned, fmt.Sprint(revision, agents))
		})
		done := make(chan struct{})
		go func() { h.Run(ctx); close(done) }()
		time.Sleep(10 * time.Second)
		cancel()
		<-done
		if want := []string{"0 [{dev a-1 }]", "7 [{dev a-2 }]"}; !slices.Equal(learned, want) {
			t.Errorf("%q, want %q", learned, want)
		}
	})
}
