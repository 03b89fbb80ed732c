// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"math/bits"
	"sync"
)

// chunks are the octets of a body that wait to be read. They take at most about
// twice the memory that they count: small pieces are put together.
type chunks struct {
	first, last *chunk
	size        int
}

type chunk struct {
	b    []byte // as long as it can be
	r, w int    // what is between is to be read
	next *chunk
}

const (
	smallestChunk = 1 << 10
	chunkClasses  = 5 // up to maxFrame
)

var chunkPools = [chunkClasses]sync.Pool{}

func chunkClass(n int) int { return bits.Len(uint(max(n-1, 0)) / smallestChunk) }

// newChunk gives a chunk with room for n octets, at most maxFrame.
func newChunk(n int) *chunk {
	class := chunkClass(n)
	if k, ok := chunkPools[class].Get().(*chunk); ok {
		return k
	}
	return &chunk{b: make([]byte, smallestChunk<<class)}
}

func (k *chunk) free() {
	k.r, k.w, k.next = 0, 0, nil
	chunkPools[chunkClass(len(k.b))].Put(k)
}

// push adds a chunk that is filled.
func (q *chunks) push(k *chunk) {
	if q.last == nil {
		q.first = k
	} else {
		q.last.next = k
	}
	q.last = k
	q.size += k.w - k.r
}

// append adds a copy of p, a small piece, to the last chunk if it has room.
func (q *chunks) append(p []byte) {
	if q.last != nil && len(q.last.b)-q.last.w >= len(p) {
		q.last.w += copy(q.last.b[q.last.w:], p)
		q.size += len(p)
		return
	}
	k := newChunk(len(p))
	k.w = copy(k.b, p)
	q.push(k)
}

// read takes octets off the start.
func (q *chunks) read(p []byte) (n int) {
	for n < len(p) && q.first != nil {
		k := q.first
		m := copy(p[n:], k.b[k.r:k.w])
		k.r += m
		n += m
		if k.r == k.w {
			q.pop()
		}
	}
	q.size -= n
	return n
}

func (q *chunks) pop() {
	k := q.first
	q.first = k.next
	if q.first == nil {
		q.last = nil
	}
	k.free()
}

// drop frees everything and returns how much it was.
func (q *chunks) drop() int {
	n := q.size
	for q.first != nil {
		q.pop()
	}
	q.size = 0
	return n
}
