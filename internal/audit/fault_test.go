// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A disk fails on request.
type disk struct {
	mu       sync.Mutex
	room     int   // bytes that still fit; negative: any number
	write    error // when there is no room
	truncate error
	sync     error
	create   error
}

func (d *disk) set(f func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *disk) createFile(path string, mode fs.FileMode) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.create != nil {
		return nil, d.create
	}
	f, err := createFile(path, mode)
	return diskFile{f, d}, err
}

type diskFile struct {
	file
	d *disk
}

func (f diskFile) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.room < 0 || len(b) <= f.d.room {
		return f.file.Write(b)
	}
	n, err := f.file.Write(b[:f.d.room])
	return n, errors.Join(f.d.write, err)
}

func (f diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.truncate != nil {
		return f.d.truncate
	}
	return f.file.Truncate(size)
}

func (f diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.sync != nil {
		return f.d.sync
	}
	return f.file.Sync()
}

// openOn opens a journal whose next files are on d.
func openOn(t *testing.T, dir string, d *disk) *Journal {
	j := open(t, dir, Options{})
	j.w.create = d.createFile
	j.w.mu.Lock()
	j.w.cur = diskFile{j.w.cur, d}
	j.w.mu.Unlock()
	return j
}

func requests(entries []Entry) (decisions, outcomes []string) {
	for _, e := range entries {
		if e.Decision != nil {
			decisions = append(decisions, e.Decision.Request)
		}
		if e.Outcome != nil {
			outcomes = append(outcomes, e.Outcome.Request)
		}
	}
	return decisions, outcomes
}

// TestI7RefusesWhileTheDiskFails lets a write fail after each possible number
// of bytes, with and without the means to take the part back.
func TestI7RefusesWhileTheDiskFails(t *testing.T) {
	for _, cannotTruncate := range []bool{false, true} {
		for _, room := range []int{0, 1, 100, 500, 701, 1000} {
			t.Run(fmt.Sprintf("room %d, truncate fails %v", room, cannotTruncate), func(t *testing.T) {
				dir, d := t.TempDir(), &disk{room: -1}
				j := openOn(t, dir, d)
				decide(t, j, testDecision("r-before"))
				j.Outcome(testOutcome("r-before"))
				d.set(func(d *disk) {
					d.room, d.write = room, syscall.ENOSPC
					if cannotTruncate {
						d.truncate = syscall.EIO
					}
				})
				for i := range 3 {
					d := testDecision(fmt.Sprintf("r-refused-%d", i))
					d.Detail = strings.Repeat("x", 1000)
					if err := j.Decide(d); !errors.Is(err, syscall.ENOSPC) {
						t.Fatalf("got %v", err)
					}
				}
				d.set(func(d *disk) { d.room, d.truncate = -1, nil })
				decide(t, j, testDecision("r-after"))
				j.Outcome(testOutcome("r-after"))
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				verified(t, dir)
				got := entries(t, dir, Filter{})
				decisions, outcomes := requests(got)
				// A whole line that could not be taken back may say more than
				// what was done, never less.
				decisions = slices.DeleteFunc(decisions, func(r string) bool { return cannotTruncate && strings.HasPrefix(r, "r-refused") })
				if diff := cmp.Diff([]string{"r-before", "r-after"}, decisions); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"r-before", "r-after"}, outcomes); diff != "" {
					t.Error(diff)
				}
				gap := slices.IndexFunc(got, func(e Entry) bool { return e.Gap != nil })
				if gap < 0 || got[gap].Gap.Refused != 3 || !strings.Contains(got[gap].Gap.Error, "no space left") {
					t.Errorf("no gap of 3 refusals in %+v", got)
				}
			})
		}
	}
}

func TestNewFileThatCannotBeMade(t *testing.T) {
	dir, d := t.TempDir(), &disk{room: -1}
	j := openOn(t, dir, d)
	j.w.maxBytes = 1
	d.set(func(d *disk) { d.create = syscall.EMFILE })
	if err := j.Decide(testDecision("r-1")); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("got %v", err)
	}
	d.set(func(d *disk) { d.create = nil })
	decide(t, j, testDecision("r-2"))
	if report := verified(t, dir); report.Files != 2 {
		t.Errorf("got %d files", report.Files)
	}
}

func TestSyncThatFailsRefusesAndBeginsANewFile(t *testing.T) {
	dir, d := t.TempDir(), &disk{room: -1}
	j := openOn(t, dir, d)
	decide(t, j, testDecision("r-1"))
	d.set(func(d *disk) { d.sync = syscall.EIO })
	if err := j.SyncNow(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	d.set(func(d *disk) { d.sync = nil })
	// What the kernel dropped, a second sync cannot bring back.
	if err := j.SyncNow(); err == nil {
		t.Error("a later sync vouched for what the failed one lost")
	}
	decide(t, j, testDecision("r-2"))
	if err := j.SyncNow(); err != nil {
		t.Error(err)
	}
	if report := verified(t, dir); report.Files != 2 {
		t.Errorf("got %d files", report.Files)
	}
}

func TestOutcomesAreKeptUpToABoundWhileTheDiskFails(t *testing.T) {
	dir, d := t.TempDir(), &disk{room: -1}
	j := openOn(t, dir, d)
	d.set(func(d *disk) { d.room, d.write = 0, syscall.EIO })
	long := strings.Repeat("x", maxText)
	const many = 3 * keepBytes / maxText
	for i := range many {
		o := testOutcome(fmt.Sprintf("r-%d", i))
		o.Error = long
		j.Outcome(o)
		if i%100 == 0 {
			j.Decide(testDecision("r-refused")) // each failure drops what is too much
		}
	}
	j.Decide(testDecision("r-refused"))
	j.mu.Lock()
	kept, lost := len(j.kept.bodies), j.gap.Lost
	j.mu.Unlock()
	if kept > keepBytes || lost == 0 {
		t.Errorf("kept %d bytes and lost %d outcomes", kept, lost)
	}
	d.set(func(d *disk) { d.room = -1 })
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	var outcomes, gaps uint64
	for _, rec := range lines(t, dir) {
		if rec.Outcome != nil {
			outcomes++
		}
		if rec.Gap != nil {
			gaps += rec.Gap.Lost
		}
	}
	if outcomes+gaps != many {
		t.Errorf("%d outcomes and %d lost, of %d", outcomes, gaps, many)
	}
	verified(t, dir)
}

func TestRestartChainsOnFromTheLastWholeRecord(t *testing.T) {
	spoils := map[string]struct {
		spoil func(t *testing.T, path string)
		torn  int64
		gone  int // records that were spoilt
	}{
		"clean":                           {func(*testing.T, string) {}, 0, 0},
		"half a line":                     {func(t *testing.T, path string) { appendTo(t, path, `{"v":1,"kind":"deci`) }, 19, 0},
		"a line cut short":                {func(t *testing.T, path string) { cut(t, path, 10) }, -1, 1},
		"only the newline":                {func(t *testing.T, path string) { cut(t, path, 1) }, -1, 1},
		"zeros, as after a power failure": {func(t *testing.T, path string) { appendTo(t, path, strings.Repeat("\x00", 200<<10)) }, 200 << 10, 0},
		"noise with newlines":             {func(t *testing.T, path string) { appendTo(t, path, "\n\n{}\nnoise\n") }, 11, 0},
		"everything":                      {func(t *testing.T, path string) { os.Truncate(path, 0) }, 0, 4},
		"all but a bit":                   {func(t *testing.T, path string) { os.Truncate(path, 7) }, 7, 4},
	}
	for name, c := range spoils {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			older := open(t, dir, Options{})
			decide(t, older, testDecision("r-0"))
			if err := older.Close(); err != nil {
				t.Fatal(err)
			}
			j := open(t, dir, Options{})
			for i := range 3 {
				decide(t, j, testDecision(fmt.Sprintf("r-%d", i+1)))
			}
			path := filepath.Join(dir, j.w.name)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			before := int64(len(lines(t, dir)))
			c.spoil(t, path)
			after := open(t, dir, Options{})
			decide(t, after, testDecision("r-9"))
			report := verified(t, dir)
			if want := before - int64(c.gone) + 2; int64(report.Records) != want {
				t.Errorf("got %d records, want %d", report.Records, want)
			}
			switch wantTorn := c.torn != 0 || c.gone > 0; {
			case wantTorn != (len(report.Torn) == 1):
				t.Errorf("torn: %+v", report.Torn)
			case c.torn > 0 && report.Torn[0].Bytes != c.torn:
				t.Errorf("torn: %+v, want %d bytes", report.Torn, c.torn)
			}
		})
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, path string, n int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-n); err != nil {
		t.Fatal(err)
	}
}

func TestSecondWriterIsKeptOut(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	if _, err := OpenJournal(dir, Options{Plane: "egress"}); err == nil || !strings.Contains(err.Error(), "another process holds") {
		t.Errorf("got %v", err)
	}
	other := open(t, dir, Options{Plane: "resolver"})
	decide(t, other, testDecision("r-1"))
	j.Close()
	open(t, dir, Options{}).Close()
}

func TestOpenThatFailsSaysWhatAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenJournal(filepath.Join(dir, "none"), Options{Plane: "egress"}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("got %v", err)
	}
	for _, plane := range []string{"", "Egress", "a-b", "../x"} {
		if _, err := OpenJournal(dir, Options{Plane: plane}); err == nil {
			t.Errorf("took the plane %q", plane)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// TestAFileThatIsReplacedGetsNoMoreRecords: what is written to a file that is not
// in the directory any more would be on no record. The chain shows the loss.
func TestAFileThatIsReplacedGetsNoMoreRecords(t *testing.T) {
	for name, do := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced by a copy": func(path string) error {
			raw, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".new", raw, 0o600)
			}
			return errors.Join(err, os.Rename(path+".new", path))
		},
	} {
		dir := t.TempDir()
		j := open(t, dir, Options{})
		decide(t, j, testDecision("r-0"))
		if err := do(filepath.Join(dir, j.w.name)); err != nil {
			t.Fatal(err)
		}
		decide(t, j, testDecision("r-1")) // lost
		if err := j.SyncNow(); err != nil {
			t.Fatal(err)
		}
		decide(t, j, testDecision("r-2"))
		raw, err := os.ReadFile(filepath.Join(dir, j.w.name))
		if err != nil || !bytes.Contains(raw, []byte("r-2")) {
			t.Errorf("%s: the next record is in %s: %v", name, j.w.name, err)
		}
		if report, err := Verify(dir); err != nil || name != "removed" && report.OK() {
			t.Errorf("%s: the loss does not show: %v, %+v", name, err, report)
		}
	}
}
