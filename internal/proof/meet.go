// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"maps"
	"slices"

	"bawn/internal/audit"
)

// oldest judges how a series begins whose older files may be gone: a checkpoint
// must end where it begins.
func (v *verifier) oldest(at Place, line audit.RawLine) {
	r := &v.report
	r.First, v.proven = line.Seq, line.Seq-1
	if rec, err := audit.ParseRecord(line.Text); err == nil {
		r.Oldest = rec.Time()
	}
	var base *Note
	for v.note != nil && v.note.Last() < line.Seq {
		base = v.note
		v.advance()
	}
	begins := v.note != nil && v.note.First == line.Seq && v.note.Prev == line.Prev
	switch {
	case line.Seq == 1 && line.Prev != [32]byte{}:
		v.fault(Fault{Kind: FaultChanged, Place: at, Record: 1, To: 1, Detail: "the first record names one before it"})
	case line.Seq == 1 || begins:
	case base != nil && base.Last() == line.Seq-1 && base.Chain == line.Prev:
		r.Gone = true
		v.root(base)
	case r.Checkpoints == 0:
		r.Gone = true // and nothing is covered, which is said at the end
	default:
		v.fault(Fault{Kind: FaultRemoved, Place: at, Record: 1, To: line.Seq - 1, Detail: fmt.Sprintf("the series begins with record %d, and no checkpoint ends in front of it", line.Seq)})
	}
}

// root takes up the tree behind a checkpoint that has all it needs.
func (v *verifier) root(n *Note) {
	if f, err := NewFrontier(n.Size, n.Frontier); err == nil && len(n.Frontier) > 0 {
		v.tree, v.first, v.frontier, v.rooted = n.Tree, n.First, f, true
	}
}

// meet compares the record at hand with the checkpoints and anchors that end
// with it.
func (v *verifier) meet(at Place, end int64) {
	last := v.report.Last
	for _, a := range v.anchors[last] {
		if a.Chain != v.hash {
			v.fault(Fault{Kind: FaultRollback, Place: at, Record: last, To: last, Detail: fmt.Sprintf("record %d is not that of the anchor signed at %s", last, a.Time)})
			continue
		}
		v.met[a.sum()] = true
	}
	for v.note != nil && v.note.Last() <= last {
		if v.note.Last() == last {
			v.compare(v.note, at, end)
		}
		v.advance()
	}
}

func (v *verifier) compare(n *Note, at Place, end int64) {
	r := &v.report
	switch {
	case n.Chain != v.hash:
		from := max(v.proven+1, n.First)
		v.fault(Fault{Kind: FaultChanged, Place: v.segmentOr(at), Record: from, To: n.Last(), Detail: fmt.Sprintf("what is from record %d on is not what the checkpoint of record %d proves (signed %s)", from, n.Last(), n.Time)})
		v.rooted = false
	case n.End != Place{at.File, end}:
		v.fault(Fault{Kind: FaultFile, Place: at, Record: n.Last(), To: n.Last(), Detail: fmt.Sprintf("record %d was in %s", n.Last(), n.End)})
	case v.rooted && v.tree == n.Tree && (v.frontier.Size() != n.Size || v.frontier.Root() != n.Root):
		v.fault(Fault{Kind: FaultForged, Place: n.At, Record: n.Last(), To: n.Last(), Detail: "the root of this checkpoint is not that of the records"})
		v.rooted = false
	case !v.rooted:
		v.root(n)
	}
	if n.Chain == v.hash {
		r.Covered = n.Last()
	}
	v.proven, v.seg = n.Last(), false
}

func (v *verifier) segmentOr(at Place) Place {
	if v.seg {
		return v.segment
	}
	return at
}

// end is called behind the last file: what is open now is torn, or is being
// written; what the checkpoints prove beyond is missing.
func (v *verifier) end() {
	r := &v.report
	r.Torn = append(r.Torn, v.open...)
	if r.Records == 0 && v.note != nil {
		r.First = v.note.First
	}
	for v.note != nil {
		v.advance()
	}
	if n := v.newest; n != nil {
		r.Signed = n.Time
		if n.Last() > r.Last {
			v.fault(Fault{Kind: FaultCut, Place: v.at, Record: r.Last + 1, To: n.Last(), Detail: fmt.Sprintf("the journal ends with record %d, and the checkpoint signed at %s proves records up to %d", r.Last, n.Time, n.Last())})
		}
	} else if r.Records > 0 {
		v.fault(Fault{Kind: FaultBare, Place: Place{File: v.holder}, Record: r.First, To: r.Last, Detail: "no checkpoint covers this series"})
	}
	if covered := max(r.Covered, r.First-min(r.First, 1)); r.Last > covered {
		r.Beyond = r.Last - covered
	}
	v.unmet()
	v.moved()
}

// unmet reports the anchors that nothing bears out.
func (v *verifier) unmet() {
	r := &v.report
	for _, last := range slices.Sorted(maps.Keys(v.anchors)) {
		for _, a := range v.anchors[last] {
			n := v.newest
			newer := n != nil && (a.Tree > n.Tree || a.Tree == n.Tree && a.Size > n.Size)
			switch {
			case v.met[a.sum()]:
			case v.export && newer && a.Last() > r.Last:
				r.NotCovered = append(r.NotCovered, NotCovered{Series: r.Series, Anchor: a.Last(), Signed: a.Time, Ends: r.Last})
			case n == nil || newer || a.Last() > r.Last:
				v.fault(Fault{Kind: FaultRollback, Place: v.at, Record: r.Last + 1, To: a.Last(), Detail: fmt.Sprintf("the anchor signed at %s proves records up to %d; what is here is older", a.Time, a.Last())})
			case a.Last() < r.First && r.Gone: // with what it was about
			default:
				v.fault(Fault{Kind: FaultRollback, Place: v.at, Record: a.Last(), To: a.Last(), Detail: fmt.Sprintf("nothing here is what the anchor signed at %s proves of record %d", a.Time, a.Last())})
			}
		}
	}
}

// moved takes out what was reported as missing and was found elsewhere.
func (v *verifier) moved() {
	faults := v.report.Faults
	v.report.Faults = slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool {
		return f.Kind == FaultRemoved && slices.ContainsFunc(faults, func(o Fault) bool {
			return o.Kind == FaultOrder && o.Record <= f.Record && o.To >= f.To
		})
	})
}

// ParseAnchors reads checkpoints that were kept elsewhere: notes, one behind the
// other, as they were printed; lines of other text between them are passed over.
func ParseAnchors(text []byte, key Key) (notes []Note, bad []Fault) {
	for _, msg := range splitNotes(text) {
		c, err := key.open(msg)
		if err != nil {
			f := Fault{Kind: FaultForged, Detail: "an anchor " + err.Error()}
			if err == errForeign {
				f = Fault{Kind: FaultForeign, Detail: "an anchor of " + c.Origin() + " is not signed by " + key.Name()}
			}
			bad = append(bad, f)
			continue
		}
		notes = append(notes, Note{Checkpoint: c, Text: msg})
	}
	return notes, bad
}
