// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/roottest"
)

// A tampering changes a copy of a sound history and says what must be found:
// one of the kinds, at a record from lo to hi (0: not of a record).
type tampering struct {
	name string
	do   func(t *testing.T, r *rig, rng *rand.Rand) (kinds []string, lo, hi uint64, file string)
}

func rewrite(t testing.TB, path string, f func(raw []byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(raw), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cutOut removes the bytes from a to b.
func cutOut(raw []byte, a, b int64) []byte { return append(slices.Clone(raw[:a]), raw[b:]...) }

// pick returns a record that is neither among the first nor the last few.
func pick(rng *rand.Rand, l []where) int { return 3 + rng.IntN(len(l)-8) }

var tamperings = []tampering{
	{"a record is changed", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		w := l[pick(rng, l)]
		r.flip(t, w)
		return []string{FaultChanged}, w.seq, w.seq, w.path
	}},
	{"the newest record is changed", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		w := l[len(l)-1] // nothing is behind it: some record of the last checkpoint's was changed
		r.flip(t, w)
		return []string{FaultChanged}, r.newest(t).First, w.seq, w.path
	}},
	{"one byte is changed, anywhere", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		w := l[pick(rng, l)]
		rewrite(t, w.path, func(raw []byte) []byte {
			raw[w.begin+rng.Int64N(w.end-w.begin)] ^= 1 << rng.IntN(8)
			return raw
		})
		return []string{FaultChanged, FaultNoRecord, FaultRemoved, FaultOrder, FaultFile}, max(w.seq, 2) - 1, w.seq + 2, w.path
	}},
	{"a record is removed", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		w := l[pick(rng, l)]
		rewrite(t, w.path, func(raw []byte) []byte { return cutOut(raw, w.begin, w.end) })
		return []string{FaultRemoved}, w.seq, w.seq, ""
	}},
	{"records are removed and what follows is numbered anew", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		i := pick(rng, l)
		w := l[i]
		r.rechain(t, w.seq, func(seq uint64, line []byte) []byte {
			if seq == w.seq {
				return nil
			}
			return line
		})
		return []string{FaultChanged}, 1, w.seq + mostNew, ""
	}},
	{"the whole series is rewritten with a chain of its own", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		w := l[pick(rng, l)]
		r.rechain(t, w.seq, func(seq uint64, line []byte) []byte {
			if seq == w.seq {
				return bytes.Replace(line, []byte(`"time":"20`), []byte(`"time":"19`), 1)
			}
			return line
		})
		return []string{FaultChanged}, 1, w.seq, ""
	}},
	{"a record is doubled", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		w := l[pick(rng, l)]
		rewrite(t, w.path, func(raw []byte) []byte {
			return append(append(slices.Clone(raw[:w.end]), raw[w.begin:w.end]...), raw[w.end:]...)
		})
		return []string{FaultOrder, FaultFile}, w.seq, w.seq, w.path
	}},
	{"two records change place", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		i := pick(rng, l)
		for l[i].path != l[i+1].path || l[i].begin == 0 {
			i++
		}
		a, b := l[i], l[i+1]
		rewrite(t, a.path, func(raw []byte) []byte {
			out := append(slices.Clone(raw[:a.begin]), raw[b.begin:b.end]...)
			return append(append(out, raw[a.begin:a.end]...), raw[b.end:]...)
		})
		return []string{FaultOrder}, a.seq, a.seq, a.path
	}},
	{"the newest records are cut off", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		last := l[len(l)-1].path
		i := len(l) - 1 - rng.IntN(5)
		for l[i].path != last {
			i++
		}
		os.Truncate(last, l[i].begin)
		return []string{FaultCut}, l[i].seq, l[i].seq, ""
	}},
	{"the newest file is removed", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		last := l[len(l)-1].path
		i := slices.IndexFunc(l, func(w where) bool { return w.path == last })
		os.Remove(last)
		return []string{FaultCut}, l[i].seq, l[i].seq, ""
	}},
	{"the end of an older file is cut off", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		i := pick(rng, l)
		for i++; l[i].path == l[i-1].path; i++ {
		}
		w := l[i-1]
		os.Truncate(w.path, w.begin)
		return []string{FaultRemoved, FaultFile}, w.seq, w.seq, ""
	}},
	{"an older file is removed", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l, files := r.records(t), r.files(t)
		gone := files[1+rng.IntN(len(files)-3)]
		var lo, hi uint64
		for _, w := range l {
			if w.path == gone {
				lo, hi = cmpOr(lo, w.seq), w.seq
			}
		}
		os.Remove(gone)
		return []string{FaultRemoved, FaultFile}, lo, hi, ""
	}},
	{"two files change place", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		files := r.files(t)
		a := 1 + rng.IntN(len(files)-2)
		tmp := files[a] + ".tmp"
		os.Rename(files[a], tmp)
		os.Rename(files[a+1], files[a])
		os.Rename(tmp, files[a+1])
		return []string{FaultFile}, 0, 0, files[a]
	}},
	{"noise is put inside", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		w := l[pick(rng, l)]
		rewrite(t, w.path, func(raw []byte) []byte {
			return append(append(slices.Clone(raw[:w.begin]), "{}\n"...), raw[w.begin:]...)
		})
		return []string{FaultNoRecord, FaultFile}, w.seq, w.seq, w.path
	}},
	{"a checkpoint is removed", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		return r.changeBook(t, rng, func(lines [][]byte, i int) [][]byte { return slices.Delete(lines, i, i+1) }, FaultBook)
	}},
	{"two checkpoints change place", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		return r.changeBook(t, rng, func(lines [][]byte, i int) [][]byte {
			lines[i], lines[i+1] = lines[i+1], lines[i]
			return lines
		}, FaultBook)
	}},
	{"a checkpoint says something else", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		return r.changeBook(t, rng, func(lines [][]byte, i int) [][]byte {
			lines[i] = regexp.MustCompile(`chain [0-9a-f]{8}`).ReplaceAll(lines[i], []byte("chain 00000000"))
			return lines
		}, FaultForged)
	}},
	{"a checkpoint becomes noise", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		return r.changeBook(t, rng, func(lines [][]byte, i int) [][]byte {
			lines[i] = []byte("{}\n")
			return lines
		}, FaultForged)
	}},
	{"the journal and all checkpoints are made anew with another key", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		l := r.records(t)
		r.rechain(t, l[4].seq, func(seq uint64, line []byte) []byte {
			if seq == l[4].seq {
				return nil
			}
			return line
		})
		r.signAnew(t)
		return []string{FaultForeign}, 0, 0, ""
	}},
	{"the checkpoints are gone", func(t *testing.T, r *rig, rng *rand.Rand) ([]string, uint64, uint64, string) {
		os.RemoveAll(r.Checkpoints())
		return []string{FaultBare}, 1, 1, ""
	}},
}

func cmpOr(a, b uint64) uint64 {
	if a == 0 {
		return b
	}
	return a
}

// changeBook changes the checkpoints of one file, at a line that is neither the
// first nor among the last.
func (r *rig) changeBook(t *testing.T, rng *rand.Rand, f func(lines [][]byte, i int) [][]byte, kind string) ([]string, uint64, uint64, string) {
	books := r.books(t)
	path := books[len(books)-1]
	rewrite(t, path, func(raw []byte) []byte {
		lines := slices.Collect(bytes.Lines(raw))
		return bytes.Join(f(lines, 1+rng.IntN(len(lines)-3)), nil)
	})
	return []string{kind}, 0, 0, path
}

// signAnew replaces the checkpoints by those of somebody else's key, as one does
// who has all of the directory but not the key.
func (r *rig) signAnew(t *testing.T) {
	os.RemoveAll(r.Checkpoints())
	k, err := OpenKey(filepath.Join(r.Dir, "thief.key"), filepath.Join(r.Dir, "thief.pub"), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	thief := *r
	thief.key, thief.signer = k, nil
	thief.restart(t)
	thief.sign(t)
}

var placeForm = regexp.MustCompile(`,"seq":(\d+),"prev":"[0-9a-f]{64}"\}\n$`)

// rechain passes each record from number from on through f and writes the series
// again with right numbers and a right chain, all files of it.
func (r *rig) rechain(t testing.TB, from uint64, f func(seq uint64, line []byte) []byte) {
	t.Helper()
	var hash [32]byte
	seq := uint64(0)
	for _, path := range r.files(t) {
		rewrite(t, path, func(raw []byte) (out []byte) {
			for line := range bytes.Lines(raw) {
				m := placeForm.FindSubmatchIndex(line)
				if m == nil {
					out = append(out, line...) // torn
					continue
				}
				var n uint64
				fmt.Sscan(string(line[m[2]:m[3]]), &n)
				if n < from {
					hash, seq = sha256.Sum256(line[:len(line)-1]), n
					out = append(out, line...)
					continue
				}
				line = f(n, slices.Clone(line))
				if line == nil {
					continue
				}
				m = placeForm.FindSubmatchIndex(line)
				seq++
				line = fmt.Appendf(line[:m[0]:m[0]], `,"seq":%d,"prev":"%s"}`, seq, hex.EncodeToString(hash[:]))
				hash = sha256.Sum256(line)
				out = append(append(out, line...), '\n')
			}
			return out
		})
	}
}

// TestEachTamperingIsFoundWithWhatAndWhere tries each at many places of seeded
// histories.
func TestEachTamperingIsFoundWithWhatAndWhere(t *testing.T) {
	histories, tries := roottest.Count(2, 20), roottest.Count(3, 60)
	for h := range uint64(histories) {
		r := newRig(t, 100+h)
		r.fill(t, 40)
		r.sound(t)
		for _, c := range tamperings {
			for i := range uint64(tries) {
				rng := rand.New(rand.NewPCG(h, i))
				x := r.copied(t)
				kinds, lo, hi, file := c.do(t, x, rng)
				rep := x.verify(t)
				if !found(rep, kinds, lo, hi, file) {
					t.Errorf("%s (history %d, try %d): want one of %v at records %d to %d in %s; got\n%s", c.name, h, i, kinds, lo, hi, filepath.Base(file), lines(rep))
				}
				os.RemoveAll(x.Dir)
			}
		}
	}
}

func lines(rep Report) (s string) {
	for i, f := range rep.All() {
		if i == 8 {
			return s + "...\n"
		}
		s += fmt.Sprintf("  %s %s %d-%d %s\n", f.Kind, f.Place, f.Record, f.To, f.Detail)
	}
	return s
}

func found(rep Report, kinds []string, lo, hi uint64, file string) bool {
	return slices.ContainsFunc(rep.All(), func(f Fault) bool {
		return slices.Contains(kinds, f.Kind) && (lo == 0 || f.Record >= lo && f.Record <= hi) &&
			(file == "" || f.File == filepath.Base(file)) && f.Detail != ""
	})
}

// TestTornIsNoFault: bytes without a newline at the very end, and in front of
// the next file.
func TestTornIsNoFault(t *testing.T) {
	r := newRig(t, 11)
	r.write(t, 5)
	r.sign(t)
	r.tear(t)
	if s := r.sound(t); len(s.Torn) != 1 || s.Covered != s.Last {
		t.Errorf("%+v", s)
	}
	r.close(t)
	r.write(t, 1)
	r.sign(t)
	r.close(t)
	if s := r.sound(t); len(s.Torn) != 1 || s.Files != 2 {
		t.Errorf("%+v", s)
	}
	// The end of the book, too.
	b := r.books(t)
	f, _ := os.OpenFile(b[len(b)-1], os.O_WRONLY|os.O_APPEND, 0)
	f.WriteString(`{"note":"bawn-`)
	f.Close()
	r.sound(t)
	r.restart(t)
	r.write(t, 1)
	r.sign(t)
	r.close(t)
	if s := r.sound(t); s.Covered != s.Last || len(r.books(t)) != len(b)+1 {
		t.Errorf("%+v", s)
	}
}

// TestAnAnchorProvesAgainstWhoHasTheKey takes the host back to an earlier day,
// journal, checkpoints and key and all, and makes a history of its own from
// there: only what was kept elsewhere tells.
func TestAnAnchorProvesAgainstWhoHasTheKey(t *testing.T) {
	r := newRig(t, 12)
	r.fill(t, 10)
	old := r.copied(t)
	early := r.newest(t)
	r.fill(t, 10)
	anchor := r.newest(t)
	if rep := r.verify(t, early, anchor); !rep.OK() {
		t.Fatalf("a false alarm: %s", lines(rep))
	}
	if rep := old.verify(t, early); !rep.OK() {
		t.Fatalf("a false alarm: %s", lines(rep))
	}
	if rep := old.verify(t); !rep.OK() {
		t.Fatal("an old state is not told from a new one without an anchor, and was")
	}
	if rep := old.verify(t, anchor); !found(rep, []string{FaultRollback}, 1, anchor.Last(), "") {
		t.Errorf("an old state passed: %s", lines(rep))
	}
	old.restart(t)
	old.n = 1000
	old.fill(t, 30)
	if rep := old.verify(t); !rep.OK() {
		t.Fatalf("another history with the same key is right in itself: %s", lines(rep))
	}
	if rep := old.verify(t, anchor); !found(rep, []string{FaultRollback}, anchor.Last(), anchor.Last(), "") {
		t.Errorf("another history passed: %s", lines(rep))
	}
	r.close(t)
	for _, f := range r.files(t)[:len(r.files(t))-1] {
		os.Remove(f)
	}
	if rep := r.verify(t, early, anchor); !rep.OK() {
		t.Errorf("an anchor whose records are gone: %s", lines(rep))
	}
}

// TestASeriesThatBeganLaterHidesNoOther from an export of a time before it.
func TestASeriesThatBeganLaterHidesNoOther(t *testing.T) {
	r := newRig(t, 15)
	r.fill(t, 10)
	time.Sleep(5 * time.Millisecond)
	until := time.Now()
	time.Sleep(5 * time.Millisecond)
	if err := os.MkdirAll(r.Journal("admin"), 0o755); err != nil {
		t.Fatal(err)
	}
	j, err := audit.OpenJournal(r.Journal("admin"), audit.Options{Plane: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Act(&audit.Act{Name: audit.ActAdminStart}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	var names []string
	n, err := Export(r.Layout, r.key.Key, time.Time{}, until, func(name string) (io.Writer, error) {
		names = append(names, name)
		return io.Discard, nil
	})
	if err != nil || n == 0 || strings.Contains(strings.Join(names, " "), "admin/journal") {
		t.Errorf("%d records, %v: %v", n, err, names)
	}
}

// TestAnExportEndsBeforeALaterAnchor, and that is no fault of it; an anchor that
// lies within it must agree, and a host that is behind one was taken back.
func TestAnExportEndsBeforeALaterAnchor(t *testing.T) {
	r := newRig(t, 14)
	r.fill(t, 10)
	within := r.newest(t)
	export := r.copied(t)
	ends := r.verify(t).Series[0].Last
	r.fill(t, 10)
	later := r.newest(t)
	export.Export = true
	rep := export.verify(t, within, later)
	late := rep.Uncovered()
	if !rep.OK() || len(late) != 1 || late[0] != (NotCovered{Series: "proxy", Anchor: later.Last(), Signed: later.Time, Ends: ends}) {
		t.Errorf("%s %+v", lines(rep), late)
	}
	export.Export = false
	if rep := export.verify(t, within, later); rep.OK() || len(rep.Uncovered()) != 0 {
		t.Errorf("a host that was taken back passed: %s", lines(rep))
	}
	// Another history of the same length, signed with the same key.
	export.restart(t)
	export.n = 1000
	export.fill(t, 30)
	export.Export = true
	if rep := export.verify(t, later); !found(rep, []string{FaultRollback}, later.Last(), later.Last(), "") {
		t.Errorf("another history passed: %s", lines(rep))
	}
}

func TestAnchorsAreReadBackAsPrinted(t *testing.T) {
	r := newRig(t, 13)
	r.fill(t, 5)
	n := r.newest(t)
	for name, text := range map[string]string{
		"as printed":   string(n.Text),
		"in a mail":    "Dear auditor,\r\n\r\nthese are of today:\r\n\r\n" + string(bytes.ReplaceAll(n.Text, []byte("\n"), []byte("\r\n"))) + "\r\nYours\r\n",
		"two of them":  string(n.Text) + "\n" + string(n.Text),
		"with a title": "2026\n\n" + string(n.Text),
	} {
		notes, bad := ParseAnchors([]byte(text), r.key.Key)
		if len(notes) == 0 || len(bad) > 0 || !bytes.Equal(notes[0].Text, n.Text) {
			t.Errorf("%s: %d notes, %v", name, len(notes), bad)
		}
	}
	if notes, bad := ParseAnchors(bytes.Replace(n.Text, []byte("chain "), []byte("chain 0"), 1), r.key.Key); len(notes) != 0 || len(bad) != 1 {
		t.Errorf("a changed anchor: %d notes, %v", len(notes), bad)
	}
}

// TestWhatRecordsBeyondTheLastCheckpointAreWorth: they are counted, and a change
// of theirs shows in the chain unless it is the newest that was changed.
func TestWhatRecordsBeyondTheLastCheckpointAreWorth(t *testing.T) {
	r := newRig(t, 14)
	r.opt.FileBytes = 1 << 20
	r.write(t, 5)
	r.sign(t)
	r.write(t, 4)
	r.close(t)
	if s := r.sound(t); s.Beyond != 4 || s.Covered != s.Last-4 {
		t.Errorf("%+v", s)
	}
	l := r.records(t)
	r.flip(t, l[len(l)-2])
	if rep := r.verify(t); !has(rep, FaultChanged) {
		t.Error("a change with a record behind it is not found")
	}
	r.flip(t, l[len(l)-2])
	r.flip(t, l[len(l)-1])
	if rep := r.verify(t); !rep.OK() {
		t.Error("the docs say that this cannot be found")
	}
}

// TestARootThatIsNotThatOfTheRecordsIsFound: a signature of the right key over
// the wrong tree, as a fault in the signer would make.
func TestARootThatIsNotThatOfTheRecordsIsFound(t *testing.T) {
	r := newRig(t, 19)
	r.opt.FileBytes = 1 << 20
	r.write(t, 5)
	r.sign(t)
	n := r.newest(t)
	n.Root[3] ^= 1
	wrong, err := r.key.sign(&n.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	r.signer.close()
	os.Remove(r.books(t)[0])
	b := book{dir: r.Checkpoints(), series: "proxy"}
	if err := b.add([][]byte{wrong}); err != nil {
		t.Fatal(err)
	}
	b.close()
	if rep := r.verify(t); !found(rep, []string{FaultForged}, n.Last(), n.Last(), "") {
		t.Errorf("%s", lines(rep))
	}
	r.close(t)
}
