// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"

	"bawn/internal/audit"
)

// A choice is a file of JSON lines: a head, the checkpoints, the records with
// their proofs, and an end. Each line has one of these forms.
type (
	choiceHead struct {
		Version   int    `json:"bawn_choice"` // 1
		Key       string `json:"key"`         // which must be known from elsewhere
		Chosen    string `json:"chosen"`
		NotProven string `json:"not_proven"`
	}
	choiceNote struct {
		Checkpoint string `json:"checkpoint"` // signed note
	}
	choiceRecord struct {
		Series string      `json:"series"`
		Tree   uint64      `json:"tree"`
		Index  int64       `json:"index"`            // of the leaf, from 0
		Record string      `json:"record,omitempty"` // the line, without its newline
		Base64 []byte      `json:"record_base64,omitempty"`
		Proof  []tlog.Hash `json:"proof"` // RFC 6962 audit path, from the leaf up
	}
	choiceEnd struct {
		End       bool   `json:"end"`
		Records   uint64 `json:"records"`
		Uncovered uint64 `json:"uncovered,omitempty"` // chosen, and covered by no checkpoint: left out
	}
	choiceLine struct {
		choiceHead
		choiceNote
		choiceRecord
		choiceEnd
	}
)

const (
	choiceVersion = 1
	notProven     = "that these are all records of that kind: only whole series show that nothing is missing"
	maxChoiceLine = 1 << 20 // a record with each byte escaped, and 64 hashes
)

// CheckChoice checks a file of chosen records by the checkpoints that are in it,
// and these by the key. An error is a file that could not be read.
func CheckChoice(path string, key Key, anchors []Note) (Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return Report{}, err
	}
	defer f.Close()
	return ReadChoice(f, path, key, anchors)
}

// ReadChoice is [CheckChoice] of what is read from r; name is what faults call
// it.
func ReadChoice(r io.Reader, name string, key Key, anchors []Note) (Report, error) {
	c := choiceCheck{key: key, name: name, trees: map[string]Note{}, seen: map[string]bool{}}
	c.report = Report{Key: key.String(), Choice: new(ChoiceReport)}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, whole, err := readLine(in, maxChoiceLine)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c.report, fmt.Errorf("reading %s: %w", name, err)
		}
		if len(line) > maxChoiceLine || !whole {
			c.fault(FaultCut, 0, "the file ends inside a line, or the line is too long")
			break
		}
		c.line(line)
		c.offset += int64(len(line)) + 1
	}
	c.finish(anchors)
	return c.report, nil
}

type choiceCheck struct {
	key    Key
	name   string
	offset int64
	report Report
	trees  map[string]Note // newest checkpoint, by its origin
	seen   map[string]bool // records
	headed bool
	ended  bool
}

func (c *choiceCheck) fault(kind string, record uint64, detail string) {
	if len(c.report.Faults) < mostFaults {
		c.report.Faults = append(c.report.Faults, Fault{Kind: kind, Place: Place{c.name, c.offset}, Record: record, To: record, Detail: detail})
	}
}

func (c *choiceCheck) line(text []byte) {
	var l choiceLine
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil || dec.More() {
		c.fault(FaultNoRecord, 0, "is no line of a choice")
		return
	}
	if c.ended {
		c.fault(FaultNoRecord, 0, "a line behind the end")
		return
	}
	switch {
	case !c.headed:
		c.head(l)
	case l.choiceNote.Checkpoint != "":
		c.note(l.choiceNote)
	case l.choiceEnd.End:
		c.ended = true
		if l.Records != c.report.Choice.Records {
			c.fault(FaultCut, 0, fmt.Sprintf("the end says %d records, and %d are here", l.Records, c.report.Choice.Records))
		}
		if l.Uncovered > 0 {
			c.report.Choice.Says += fmt.Sprintf(" (%d more are covered by no checkpoint and were left out)", l.Uncovered)
		}
	default:
		c.record(l.choiceRecord)
	}
}

func (c *choiceCheck) head(l choiceLine) {
	c.headed = true
	if l.Version != choiceVersion {
		c.fault(FaultNoRecord, 0, "the file does not begin with the head of a choice of version "+strconv.Itoa(choiceVersion))
		return
	}
	c.report.Choice.Says = l.Chosen
	if l.choiceHead.Key != c.key.String() {
		c.fault(FaultForeign, 0, "the file says that it is checked by another key: "+strconv.QuoteToASCII(l.choiceHead.Key))
	}
}

func (c *choiceCheck) note(l choiceNote) {
	n, err := c.key.open([]byte(l.Checkpoint))
	switch {
	case errors.Is(err, errForeign):
		c.fault(FaultForeign, 0, "this checkpoint is not signed by "+c.key.Name())
	case err != nil:
		c.fault(FaultForged, 0, "this checkpoint "+err.Error())
	default:
		c.trees[n.Origin()] = Note{Checkpoint: n, Text: []byte(l.Checkpoint)}
	}
}

func (c *choiceCheck) record(l choiceRecord) {
	text := []byte(l.Record)
	if l.Record == "" {
		text = l.Base64
	}
	id := l.Series + "/" + strconv.FormatUint(l.Tree, 10)
	n, ok := c.trees[c.key.Name()+"/"+id]
	if !ok {
		c.fault(FaultBare, 0, "a record of tree "+strconv.QuoteToASCII(id)+", of which no good checkpoint is here")
		return
	}
	seq := n.First + uint64(l.Index)
	rec, err := audit.ParseRecord(text)
	if err != nil || l.Index < 0 {
		c.fault(FaultNoRecord, seq, "what is here is no record")
		return
	}
	if err := tlog.CheckRecord(l.Proof, n.Size, n.Root, l.Index, tlog.RecordHash(text)); err != nil {
		c.fault(FaultChanged, seq, fmt.Sprintf("record %d is not proven to be in the record: it, its number or its proof was changed", seq))
		return
	}
	if rec.Seq != seq {
		c.fault(FaultOrder, seq, fmt.Sprintf("record %d says of itself that it is record %d", seq, rec.Seq))
		return
	}
	if key := id + "/" + strconv.FormatInt(l.Index, 10); c.seen[key] {
		c.fault(FaultOrder, seq, fmt.Sprintf("record %d is there twice", seq))
		return
	} else {
		c.seen[key] = true
	}
	c.report.Choice.Records++
}

func (c *choiceCheck) finish(anchors []Note) {
	if !c.headed {
		c.fault(FaultNoRecord, 0, "the file is empty")
	} else if !c.ended {
		c.fault(FaultCut, 0, "the file has no end: something is missing")
	}
	for _, a := range anchors {
		n, ok := c.trees[a.Origin()]
		switch {
		case !ok || n.Size != a.Size:
			c.report.Choice.Unrelated++
		case n.Root != a.Root:
			c.fault(FaultRollback, a.Last(), fmt.Sprintf("the anchor signed at %s proves another tree of this size", a.Time))
		}
	}
}

// textOf puts a record's line into the form in which it is read back the same.
func (l *choiceRecord) textOf(line []byte) {
	if utf8.Valid(line) && len(line) > 0 {
		l.Record = string(line)
	} else {
		l.Base64 = bytes.Clone(line)
	}
}
