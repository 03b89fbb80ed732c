// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"errors"
	"fmt"
)

// notesOf hands out the checkpoints of one series in their order, and reports
// what is wrong with them as a list: signatures, the chain, numbers.
func notesOf(dir string, files []bookFile, key Key, fault func(Fault), failed *error) func(yield func(Note) bool) {
	return func(yield func(Note) bool) {
		w := bookWalk{key: key, fault: fault, first: true}
		for i, f := range files {
			if i > 0 && f.index != files[i-1].index+1 {
				fault(Fault{Kind: FaultBook, Place: Place{File: f.name}, Detail: fmt.Sprintf("file number %d of the checkpoints is missing", files[i-1].index+1)})
				w.first = true
			}
			stopped := false
			_, err := readBookFile(dir, f, key, func(n Note, bad *badNote) bool {
				if bad != nil {
					w.bad(bad)
					return true
				}
				n, ok := w.note(n)
				stopped = ok && !yield(n)
				return !stopped
			})
			if err != nil {
				*failed = err
				return
			}
			if stopped {
				return
			}
		}
	}
}

// A bookWalk judges the checkpoints of one series one after another.
type bookWalk struct {
	key   Key
	fault func(Fault)
	last  Note
	some  bool // last is set
	first bool // the next note need not follow on the last: that one is gone, and was said to be
}

func (w *bookWalk) bad(b *badNote) {
	f := Fault{Kind: FaultForged, Place: b.at, Detail: "what is here " + b.err.Error()}
	if errors.Is(b.err, errForeign) {
		f.Kind = FaultForeign
		f.Detail = "this checkpoint is not signed by " + w.key.Name()
	}
	if b.cp.Size > 0 {
		f.Record, f.To = b.cp.Last(), b.cp.Last()
	}
	w.fault(f)
	w.first = true
}

// note judges n. It is not to be relied on where it is out of order.
func (w *bookWalk) note(n Note) (Note, bool) {
	f := Fault{Kind: FaultBook, Place: n.At, Record: n.Last(), To: n.Last()}
	if w.some && !w.first && n.Previous != w.last.sum() {
		f.Detail = fmt.Sprintf("this checkpoint does not follow on the one before it (of record %d): some are missing, or were moved", w.last.Last())
		w.fault(f)
	}
	if !w.some && n.At.File == bookName(n.Series, 1) && n.At.Offset == 0 && n.Previous != [32]byte{} {
		f.Detail = "the first checkpoint follows on one that is not there"
		w.fault(f)
	}
	if w.some && !follows(&n, &w.last) {
		f.Detail = fmt.Sprintf("this checkpoint is of tree %d, record %d, behind one of tree %d, record %d", n.Tree, n.Last(), w.last.Tree, w.last.Last())
		w.fault(f)
		return n, false
	}
	w.last, w.some, w.first = n, true, false
	return n, true
}

// follows reports whether n can be the checkpoint behind last.
func follows(n, last *Note) bool {
	if n.Tree == last.Tree {
		return n.Size >= last.Size && n.First == last.First && n.Prev == last.Prev && n.Begin == last.Begin && n.Break == ""
	}
	return n.Tree > last.Tree && n.Break != ""
}
