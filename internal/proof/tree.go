// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// A Frontier is what is needed of a Merkle tree (RFC 6962) to go on with it: the
// roots of the largest perfect trees that it is made of, left to right. It is a
// few dozen hashes, however many records there were, and these may be gone.
type Frontier struct {
	size  int64
	nodes []tlog.Hash
}

// NewFrontier takes up a tree of the given size. The hashes are not checked:
// its root shows whether they are right.
func NewFrontier(size int64, nodes []tlog.Hash) (Frontier, error) {
	if size < 0 || len(nodes) != bits.OnesCount64(uint64(size)) {
		return Frontier{}, fmt.Errorf("taking up a tree of %d records: has %d hashes", size, len(nodes))
	}
	return Frontier{size, slices.Clone(nodes)}, nil
}

// Size is how many records the tree has.
func (f *Frontier) Size() int64 { return f.size }

// Nodes are the hashes, left to right.
func (f *Frontier) Nodes() []tlog.Hash { return slices.Clone(f.nodes) }

// Add adds the hash of the next record.
func (f *Frontier) Add(leaf tlog.Hash) {
	f.nodes = append(f.nodes, leaf)
	for n := f.size; n&1 == 1; n >>= 1 {
		last := len(f.nodes) - 1
		f.nodes[last-1] = tlog.NodeHash(f.nodes[last-1], f.nodes[last])
		f.nodes = f.nodes[:last]
	}
	f.size++
}

// Root is the hash of the tree; that of none is zero here, since no checkpoint
// is made of none.
func (f *Frontier) Root() tlog.Hash {
	if len(f.nodes) == 0 {
		return tlog.Hash{}
	}
	h := f.nodes[len(f.nodes)-1]
	for i := len(f.nodes) - 2; i >= 0; i-- {
		h = tlog.NodeHash(f.nodes[i], h)
	}
	return h
}

func (f *Frontier) clone() Frontier { return Frontier{f.size, slices.Clone(f.nodes)} }

// node returns the hash of the n'th perfect tree of 2^level records, where it is
// one of the frontier's.
func (f *Frontier) node(level int, n int64) (tlog.Hash, bool) {
	start, i := int64(0), 0
	for k := 62; k >= 0; k-- {
		if f.size>>k&1 == 0 {
			continue
		}
		if k == level && start>>k == n {
			return f.nodes[i], true
		}
		start += 1 << k
		i++
	}
	return tlog.Hash{}, false
}

// blockLevel says how large the trees are of which a forest keeps only the root:
// 256 records.
const blockLevel = 8

// A forest gives the hashes that a proof of a tree is made of, without keeping
// those of all records: those before base are gone but for the frontier, and of
// the others it has the roots of the blocks, and one block in full.
type forest struct {
	base   Frontier
	size   int64
	upper  [][]tlog.Hash // by level from blockLevel up: the trees that end behind base, from the first on
	open   []tlog.Hash   // records behind the last whole block, from the block's or base's beginning
	leaves []tlog.Hash   // records of the block in hand, where there is one
	from   int64         // number of the first of them
}

func newForest(base Frontier) *forest { return &forest{base: base.clone(), size: base.size} }

// add adds the hash of the next record.
func (f *forest) add(leaf tlog.Hash) {
	f.open = append(f.open, leaf)
	f.size++
	if f.size&(1<<blockLevel-1) != 0 {
		return
	}
	f.leaves, f.from = f.open, f.size-int64(len(f.open))
	for level := blockLevel; f.size&(1<<level-1) == 0; level++ {
		h := f.mustNode(level, f.size>>level-1)
		k := level - blockLevel
		if k == len(f.upper) {
			f.upper = append(f.upper, nil)
		}
		f.upper[k] = append(f.upper[k], h)
	}
	f.open, f.leaves = f.open[:0], nil
}

// hold makes the records of one block available, from the first that there is.
func (f *forest) hold(from int64, leaves []tlog.Hash) { f.from, f.leaves = from, leaves }

func (f *forest) mustNode(level int, n int64) tlog.Hash {
	h, err := f.nodeAt(level, n)
	if err != nil {
		panic(err) // of a block that was just filled
	}
	return h
}

// ReadHashes is what tlog asks.
func (f *forest) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		level, n := tlog.SplitStoredHashIndex(x)
		h, err := f.nodeAt(level, n)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

func (f *forest) nodeAt(level int, n int64) (tlog.Hash, error) {
	begin, end := n<<level, (n+1)<<level
	if end > f.size {
		return tlog.Hash{}, fmt.Errorf("hash of records %d to %d: the tree has %d", begin, end, f.size)
	}
	if end <= f.base.size {
		h, ok := f.base.node(level, n)
		if !ok {
			return h, fmt.Errorf("hash of records %d to %d: they are gone", begin, end)
		}
		return h, nil
	}
	if k := level - blockLevel; k >= 0 && k < len(f.upper) {
		if i := n - f.base.size>>level; i < int64(len(f.upper[k])) {
			return f.upper[k][i], nil
		}
	}
	if level == 0 {
		return f.leaf(n)
	}
	left, err := f.nodeAt(level-1, 2*n)
	if err != nil {
		return left, err
	}
	right, err := f.nodeAt(level-1, 2*n+1)
	if err != nil {
		return right, err
	}
	return tlog.NodeHash(left, right), nil
}

func (f *forest) leaf(n int64) (tlog.Hash, error) {
	if i := n - f.from; f.leaves != nil && i >= 0 && i < int64(len(f.leaves)) {
		return f.leaves[i], nil
	}
	if i := n - (f.size - int64(len(f.open))); i >= 0 && i < int64(len(f.open)) {
		return f.open[i], nil
	}
	return tlog.Hash{}, fmt.Errorf("hash of record %d: its block is not at hand", n)
}
