// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// A store is room for what is kept of one lease until guards have judged it and
// it has gone up: bodies, and messages of WebSockets.
type store struct{ left atomic.Int64 }

func (s *store) take(n int64) bool {
	if s.left.Add(-n) >= 0 {
		return true
	}
	s.left.Add(n)
	return false
}

// A hold is what somebody has taken of a store. Any goroutine may release it.
type hold struct {
	of *store
	n  atomic.Int64
}

func (h *hold) take(n int64) bool {
	if !h.of.take(n) {
		return false
	}
	h.n.Add(n)
	return true
}

// release gives everything back. It may be called again.
func (h *hold) release() {
	if n := h.n.Swap(0); n != 0 {
		h.of.left.Add(n)
	}
}

var errNoRoom = errors.New("as much waits to be judged as may")

const leastGrowth = 4 << 10

// collect appends all that from has to dst, at most limit octets and one more.
// What dst has no room for is taken of h as it comes, and not as it was
// announced.
func collect(dst []byte, from io.Reader, limit int64, h *hold) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			if int64(len(dst)) > limit {
				return dst, nil
			}
			size := min(int64(max(2*cap(dst), leastGrowth)), limit+1)
			if !h.take(size - int64(cap(dst))) {
				return dst, errNoRoom
			}
			dst = append(make([]byte, 0, size), dst...)
		}
		n, err := from.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// judging is how many bodies and messages of one lease are decoded and judged at
// a time. Some take much more memory for that moment than for themselves.
const judging = 2

// judge waits for a turn to judge, and reports whether it has come. The caller
// gives it back by judged.
func (t *tenant) judge(ctx context.Context) bool {
	select {
	case t.turns <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *tenant) judged() { <-t.turns }
