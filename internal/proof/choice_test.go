// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"bawn/internal/roottest"
)

func (r *rig) choose(t testing.TB, w Wish) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := Choose(&out, r.Layout, r.key.Key, w); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (r *rig) check(t testing.TB, choice []byte, anchors ...Note) Report {
	t.Helper()
	rep, err := ReadChoice(bytes.NewReader(choice), "choice.jsonl", r.key.Key, anchors)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// TestAChoiceIsProven takes records out of histories, whole and pruned, and
// counts them against the journal.
func TestAChoiceIsProven(t *testing.T) {
	for seed := range uint64(roottest.Count(3, 60)) {
		r := newRig(t, 200+seed)
		r.fill(t, 60)
		for _, pruned := range []bool{false, true} {
			if pruned {
				for _, f := range r.files(t)[:len(r.files(t))/2] {
					os.Remove(f)
				}
			}
			for _, w := range []Wish{{}, {Agent: "eve"}, {User: "alice", Agent: "dev"}, {Agent: "nobody"}, {Since: time.Now().Add(time.Hour)}} {
				text := r.choose(t, w)
				rep := r.check(t, text, r.newest(t))
				if !rep.OK() || rep.Choice.Records != r.counted(t, w) {
					t.Fatalf("seed %d, pruned %v, %v: %d records of %d, %s", seed, pruned, w, rep.Choice.Records, r.counted(t, w), lines(rep))
				}
				for _, c := range text {
					if c != '\n' && (c < ' ' || c >= 0x7f) {
						t.Fatalf("the file holds byte %#x", c)
					}
				}
			}
		}
	}
}

// counted is how many records of the journal are in the lines that name an
// agent.
func (r *rig) counted(t testing.TB, w Wish) (n uint64) {
	for _, x := range r.records(t) {
		raw, err := os.ReadFile(x.path)
		if err != nil {
			t.Fatal(err)
		}
		if w.Since.IsZero() && (w.Agent == "" || bytes.Contains(raw[x.begin:x.end], []byte(`"agent":"`+w.Agent+`"`))) {
			n++
		}
	}
	return n
}

func TestEveryTamperingWithAChoiceIsFound(t *testing.T) {
	r := newRig(t, 300)
	r.fill(t, 60)
	sound := r.choose(t, Wish{Agent: "eve"})
	all := slices.Collect(bytes.Lines(sound))
	first := slices.IndexFunc(all, func(l []byte) bool { return bytes.Contains(l, []byte(`"record":`)) })
	thief := newRig(t, 301)
	thief.fill(t, 60)
	cases := map[string]struct {
		do   func(l [][]byte, i int) [][]byte
		kind string
	}{
		"a record is changed": {func(l [][]byte, i int) [][]byte {
			l[i] = bytes.Replace(l[i], []byte(`api.example`), []byte(`xpi.example`), 1)
			return l
		}, FaultChanged},
		"the index is changed": {func(l [][]byte, i int) [][]byte {
			l[i] = bytes.Replace(l[i], []byte(`"index":`), []byte(`"index":1`), 1)
			return l
		}, FaultChanged},
		"the proof is another record's": {func(l [][]byte, i int) [][]byte {
			_, a, _ := bytes.Cut(l[i], []byte(`"proof":`))
			_, b, _ := bytes.Cut(l[i+1], []byte(`"proof":`))
			l[i] = append(bytes.Clone(l[i][:len(l[i])-len(a)]), b...)
			return l
		}, FaultChanged},
		"a record is doubled": {func(l [][]byte, i int) [][]byte { return slices.Insert(l, i, bytes.Clone(l[i])) }, FaultOrder},
		"a record is removed": {func(l [][]byte, i int) [][]byte { return slices.Delete(l, i, i+1) }, FaultCut},
		"the end is cut off":  {func(l [][]byte, i int) [][]byte { return l[:i] }, FaultCut},
		"cut inside a line":   {func(l [][]byte, i int) [][]byte { return append(l[:i], l[i][:20]) }, FaultCut},
		"noise":               {func(l [][]byte, i int) [][]byte { l[i] = []byte("{\"x\":1}\n"); return l }, FaultNoRecord},
		"the checkpoint is changed": {func(l [][]byte, i int) [][]byte {
			l[1] = bytes.Replace(l[1], []byte(`\nchain `), []byte(`\nchain 0`), 1)
			return l
		}, FaultForged},
		"the checkpoint is removed": {func(l [][]byte, i int) [][]byte { return slices.Delete(l, 1, 2) }, FaultBare},
		"all of it is somebody else's": {func([][]byte, int) [][]byte {
			return slices.Collect(bytes.Lines(thief.choose(t, Wish{Agent: "eve"})))
		}, FaultForeign},
	}
	for name, c := range cases {
		for i := range uint64(roottest.Count(6, 60)) {
			rng := rand.New(rand.NewPCG(1, i))
			l := make([][]byte, len(all))
			for i := range all {
				l[i] = bytes.Clone(all[i])
			}
			rep := r.check(t, bytes.Join(c.do(l, first+rng.IntN(len(all)-first-2)), nil))
			if !has(rep, c.kind) {
				t.Errorf("%s: want %s, got %s", name, c.kind, lines(rep))
			}
		}
	}
}

// TestForestAgainstTlog compares every hash of every tree with the module's own
// storage, for all sizes and bases up to some blocks.
func TestForestAgainstTlog(t *testing.T) {
	var stored []tlog.Hash
	full := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, x := range indexes {
			out[i] = stored[x]
		}
		return out, nil
	})
	const n = 3000
	var leaves []tlog.Hash
	for i := range int64(n) {
		text := fmt.Appendf(nil, "record %d", i)
		leaves = append(leaves, tlog.RecordHash(text))
		h, err := tlog.StoredHashes(i, text, full)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, h...)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range roottest.Count(60, 2000) {
		size := 1 + rng.Int64N(n)
		gone := rng.Int64N(size)
		var base Frontier
		for _, h := range leaves[:gone] {
			base.Add(h)
		}
		again, err := NewFrontier(base.Size(), base.Nodes())
		if err != nil || again.Root() != base.Root() {
			t.Fatal(err)
		}
		f := newForest(again)
		for _, h := range leaves[gone:size] {
			f.add(h)
			base.Add(h)
		}
		want, err := tlog.TreeHash(size, full)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tlog.TreeHash(size, f); err != nil || got != want || base.Root() != want {
			t.Fatalf("root of %d, %d gone: %v", size, gone, err)
		}
		i := gone + rng.Int64N(size-gone)
		begin := max(i&^(1<<blockLevel-1), gone)
		f.hold(begin, leaves[begin:min(i&^(1<<blockLevel-1)+1<<blockLevel, size)])
		p, err := tlog.ProveRecord(size, i, f)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(p, size, want, i, leaves[i]); err != nil {
			t.Fatalf("record %d of %d, %d gone: %v", i, size, gone, err)
		}
	}
}

// dirSink writes an export to a directory.
func dirSink(t testing.TB, dir string) Sink {
	return func(name string) (io.Writer, error) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		f, err := os.Create(path)
		t.Cleanup(func() { f.Close() })
		return f, err
	}
}

func TestAnExportOfWholeSeriesIsProven(t *testing.T) {
	r := newRig(t, 310)
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	r.opt.Now = func() time.Time { now = now.Add(time.Minute); return now }
	r.fill(t, 60)
	whole := r.sound(t)
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) // some files in
	for name, c := range map[string]struct{ since, until time.Time }{
		"all":     {},
		"a range": {begin, begin.Add(time.Hour)},
		"a start": {since: begin},
		"an end":  {until: begin},
	} {
		x := rig{Layout: Layout{Dir: memoryDir(t)}, key: r.key, log: new(bytes.Buffer)}
		n, err := Export(r.Layout, r.key.Key, c.since, c.until, dirSink(t, x.Dir))
		if err != nil {
			t.Fatal(err)
		}
		s := x.sound(t)
		if s.Records != n || s.Covered != s.Last || s.Gone != !c.since.IsZero() || (name == "all") != (s.Records == whole.Records) || s.Records == 0 {
			t.Errorf("%s: %d records, %+v", name, n, s)
		}
		for _, w := range r.records(t) { // each record of the time is there
			raw, _ := os.ReadFile(w.path)
			var rec struct{ Time time.Time }
			if err := json.Unmarshal(raw[w.begin:w.end], &rec); err != nil {
				t.Fatal(err)
			}
			in := !rec.Time.Before(c.since) && (c.until.IsZero() || rec.Time.Before(c.until))
			if in && (w.seq < s.First || w.seq > s.Last) {
				t.Errorf("%s: record %d of %s is missing", name, w.seq, rec.Time)
			}
		}
		l := x.records(t)
		x.flip(t, l[len(l)/2])
		if rep := x.verify(t); !has(rep, FaultChanged) {
			t.Errorf("%s: a change is not found", name)
		}
	}
}

func TestNothingIsChosenFromAChangedJournal(t *testing.T) {
	r := newRig(t, 320)
	r.fill(t, 20)
	l := r.records(t)
	r.flip(t, l[len(l)/2])
	if _, err := Choose(io.Discard, r.Layout, r.key.Key, Wish{}); err == nil || !strings.Contains(err.Error(), "audit verify") {
		t.Errorf("got %v", err)
	}
}
