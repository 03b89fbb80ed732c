// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import "sync/atomic"

// A Room bounds how many octets of bodies connections that share it let wait in
// memory, beyond the 64 KiB that HTTP/2 gives each. A connection takes what its
// window needs when it begins, or what is left, and gives it back when it ends.
type Room struct{ left atomic.Int64 }

// NewRoom returns room for so many octets.
func NewRoom(octets int64) *Room {
	r := &Room{}
	r.left.Store(octets)
	return r
}

// take takes up to n octets. The nil room has no bound.
func (r *Room) take(n int) int {
	for r != nil {
		left := r.left.Load()
		some := max(0, min(left, int64(n)))
		if r.left.CompareAndSwap(left, left-some) {
			return int(some)
		}
	}
	return n
}

func (r *Room) give(n int) {
	if r != nil {
		r.left.Add(int64(n))
	}
}
