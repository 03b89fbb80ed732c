// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"slices"
	"time"

	"bawn/internal/audit"
)

// The kinds of fault, which scripts may tell apart.
const (
	FaultChanged  = "changed"  // records are not those that were written
	FaultRemoved  = "removed"  // records are missing inside of a series
	FaultOrder    = "order"    // records stand where they do not belong: moved, doubled, replayed
	FaultCut      = "cut"      // the newest records are missing
	FaultFile     = "file"     // a file is missing, or stands under another's name
	FaultNoRecord = "noise"    // bytes that are no record, and no torn end
	FaultForged   = "forged"   // a checkpoint whose signature or content is not right
	FaultForeign  = "foreign"  // something is signed by another key
	FaultBook     = "book"     // checkpoints are missing or out of order
	FaultBare     = "bare"     // no checkpoint covers the series
	FaultBreak    = "break"    // admin itself found the journal changed, and says so in a checkpoint
	FaultRollback = "rollback" // what there is is older than an anchor, or other than it says
)

// A Fault is one thing that is not as it was written, and where.
type Fault struct {
	Kind   string `json:"kind"`
	Place         // where it shows
	Record uint64 `json:"record,omitempty"` // the first that is concerned
	To     uint64 `json:"to,omitempty"`     // and the last
	Detail string `json:"detail"`
}

// A SeriesReport is about the journal of one plane.
type SeriesReport struct {
	Series  string `json:"series"`
	Files   int    `json:"files"`
	Records uint64 `json:"records"`
	First   uint64 `json:"first"` // number of the first record that is there
	Last    uint64 `json:"last"`
	// Gone says that older files were removed as a whole, which retention does
	// and the checkpoints cannot tell from a theft; nothing that is there was
	// before these.
	Gone        bool         `json:"gone,omitempty"`
	Oldest      time.Time    `json:"oldest,omitzero"` // time of the first record
	Checkpoints uint64       `json:"checkpoints"`
	Covered     uint64       `json:"covered"`         // number of the last record that a checkpoint proves
	Signed      time.Time    `json:"signed,omitzero"` // time of the newest checkpoint
	Beyond      uint64       `json:"beyond"`          // records behind, which only the chain holds
	Torn        []audit.Torn `json:"torn,omitempty"`  // ends that a crash left: no fault
	// NotCovered are the anchors of later than an export ends.
	NotCovered []NotCovered `json:"not_covered,omitempty"`
	Faults     []Fault      `json:"faults,omitempty"`
}

// NotCovered is an anchor that an export says nothing of: it proves records that
// were written after the export was made, or were left out of it. Which of the two
// an export cannot show, so it is no fault, and no proof.
type NotCovered struct {
	Series string    `json:"series"`
	Anchor uint64    `json:"anchor"` // number of the last record that the anchor proves
	Signed time.Time `json:"signed"`
	Ends   uint64    `json:"ends"` // number of the export's last record; 0: it has no such series
}

// A Report says what [Verify] or [CheckChoice] found.
type Report struct {
	Key    string         `json:"key"`
	Series []SeriesReport `json:"series,omitempty"`
	Choice *ChoiceReport  `json:"choice,omitempty"`
	Faults []Fault        `json:"faults,omitempty"` // of none of the series
	// NotCovered are anchors of series that an export does not have.
	NotCovered []NotCovered `json:"not_covered,omitempty"`
}

// OK reports whether everything is as it was written, as far as can be known.
func (r *Report) OK() bool { return len(r.All()) == 0 }

// All returns every fault.
func (r *Report) All() []Fault {
	all := slices.Clone(r.Faults)
	for _, s := range r.Series {
		all = append(all, s.Faults...)
	}
	return all
}

// Uncovered returns every anchor that an export does not reach to.
func (r *Report) Uncovered() []NotCovered {
	all := slices.Clone(r.NotCovered)
	for _, s := range r.Series {
		all = append(all, s.NotCovered...)
	}
	return all
}

// A ChoiceReport is about records that were taken out.
type ChoiceReport struct {
	Records uint64 `json:"records"`
	Says    string `json:"says"` // what was chosen, as the file says; nothing proves it
	// Unrelated is how many anchors are of another size than the checkpoints of
	// the file, and so say nothing of it.
	Unrelated int `json:"unrelated,omitempty"`
}
