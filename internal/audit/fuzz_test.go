// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func seeds() [][]byte {
	var e encoder
	d, o := testDecision("r-1"), testOutcome("r-1")
	d.Time, o.Time = start, start
	var all [][]byte
	for i, body := range [][]byte{
		e.decision(nil, d), e.outcome(nil, o), e.gap(nil, &Gap{Time: start, From: start}),
		e.summary(nil, &Summary{Time: start, From: start, To: start}),
		e.dial(nil, testDial("r-1")),
		e.head(nil, &FileHead{Time: start, Torn: []Torn{{"a", 1, 2}}}),
		e.act(nil, &Act{Time: start, ID: "a-1", Name: ActPolicyApply, Result: ActDone, Error: "x"}),
	} {
		all = append(all, bytes.TrimSuffix(chain(body, uint64(i), &[32]byte{}), []byte("\n")))
	}
	return all
}

// FuzzParseLine takes records through the encoder and back: what was read must
// come out the same, whatever it was.
func FuzzParseLine(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		rec, err := parseLine(line)
		if fast, ok := parseFast(line); ok && len(line) <= maxLine {
			slow, err := parseSlow(line)
			if err != nil {
				t.Fatalf("only the fast reader takes %s: %v", line, err)
			}
			if diff := cmp.Diff(slow, fast); diff != "" {
				t.Fatalf("-slow +fast\n%s", diff)
			}
		}
		if err != nil {
			return
		}
		if !json.Valid(line) {
			t.Fatal("took what is no JSON")
		}
		again, err := parseLine(encode(rec))
		if err != nil {
			t.Fatalf("%v in %s", err, encode(rec))
		}
		if !bounded(rec) {
			return // longer than the journal writes: clipped
		}
		if diff := cmp.Diff(rec, again, cmpopts.EquateApproxTime(time.Microsecond), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}

// encode writes a record as the journal does.
func encode(rec Record) []byte {
	var e encoder
	var body []byte
	switch {
	case rec.Decision != nil:
		body = e.decision(nil, rec.Decision)
	case rec.Outcome != nil:
		body = e.outcome(nil, rec.Outcome)
	case rec.Dial != nil:
		body = e.dial(nil, rec.Dial)
	case rec.Summary != nil:
		body = e.summary(nil, rec.Summary)
	case rec.Gap != nil:
		body = e.gap(nil, rec.Gap)
	case rec.Act != nil:
		body = e.act(nil, rec.Act)
	case rec.File != nil:
		body = e.head(nil, rec.File)
	}
	return bytes.TrimSuffix(chain(body, rec.Seq, &rec.Prev), []byte("\n"))
}

// bounded reports whether the journal would write all of rec: no field beyond
// its bound, years of four digits.
func bounded(rec Record) bool {
	std, err := json.Marshal(rec)
	return err == nil && len(std) < maxText
}

// FuzzReadFile puts foreign bytes behind good records. The reader must give
// back the good ones, never more than there are lines, and a journal that opens
// on them must leave a chain that verifies.
func FuzzReadFile(f *testing.F) {
	for _, s := range seeds() {
		f.Add(append(bytes.Clone(s), '\n'))
		f.Add(s[:len(s)/2])
	}
	f.Add(bytes.Repeat([]byte{0}, 300<<10))
	f.Add(bytes.Repeat([]byte("\n"), 1000))
	f.Fuzz(func(t *testing.T, tail []byte) {
		lr, total := newLineReader(bytes.NewReader(tail), 0), int64(0)
		for {
			line, whole, err := lr.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(line) > maxLine+1 || bytes.IndexByte(line, '\n') >= 0 {
				t.Fatalf("line of %d bytes, %v", len(line), err)
			}
			if !whole {
				break
			}
			if total += 1; lr.offset <= 0 || lr.offset > int64(len(tail)) {
				t.Fatalf("offset %d of %d", lr.offset, len(tail))
			}
		}
		if n := int64(bytes.Count(tail, []byte("\n"))); total != n {
			t.Fatalf("got %d lines of %d", total, n)
		}
		reopened(t, tail)
	})
}

// memoryDir returns a directory in memory where there is one: a fuzzer would
// spend all its time on syncing a disk.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "audit")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func reopened(t *testing.T, tail []byte) {
	dir := memoryDir(t)
	j, err := OpenJournal(dir, Options{Plane: "egress"})
	if err != nil {
		t.Fatal(err)
	}
	decide(t, j, testDecision("r-0"))
	path := filepath.Join(dir, j.w.name)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if parses(tail) {
		return // a record that nobody wrote in good faith: not what a crash leaves
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(tail)
	f.Close()
	if j, err = OpenJournal(dir, Options{Plane: "egress"}); err != nil {
		t.Fatal(err)
	}
	decide(t, j, testDecision("r-1"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(dir)
	if err != nil || !report.OK() {
		t.Fatalf("%+v, %v", report, err)
	}
	var got []string
	for e, err := range Scan(dir, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Decision != nil {
			got = append(got, e.Decision.Request)
		}
	}
	if diff := cmp.Diff([]string{"r-0", "r-1"}, got); diff != "" {
		t.Error(diff)
	}
}

func parses(tail []byte) bool {
	for line := range bytes.Lines(tail) {
		if _, err := parseLine(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
			return true
		}
	}
	return false
}
