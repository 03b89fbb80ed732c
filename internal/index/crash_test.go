// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/index"
)

// TestMain is also the process that tests kill: one that indexes.
func TestMain(m *testing.M) {
	if dir := os.Getenv("INDEX_TEST_DIR"); dir != "" {
		x := index.Open(context.Background(), index.Options{
			Path: filepath.Join(dir, "index.db"), Journals: []string{filepath.Join(dir, "proxy"), filepath.Join(dir, "admin")}, Every: time.Millisecond,
		})
		os.Stdout.WriteString("up\n") //nolint:errcheck // the test waits for it
		x.Run(context.Background())   //nolint:errcheck // it is killed
	}
	os.Exit(m.Run())
}

// rounds is how often a test kills: more in a soak.
func rounds(usual, soak int) int {
	if os.Getenv("BAWN_SOAK") != "" {
		return soak
	}
	return usual
}

// seed is one that can be given again.
func seed(t *testing.T) uint64 {
	if s, err := strconv.ParseUint(os.Getenv("BAWN_SEED"), 10, 64); err == nil {
		return s
	}
	s := rand.Uint64N(1 << 32)
	t.Logf("BAWN_SEED=%d replays this", s)
	return s
}

// TestI13EachRecordOnceThroughKills kills the process that indexes again and
// again while journals are written and rotated: in the end each record is in the
// index once.
func TestI13EachRecordOnceThroughKills(t *testing.T) {
	w := newWorld(t, seed(t))
	w.size = 32 << 10
	w.reopen()
	for range rounds(12, 400) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "INDEX_TEST_DIR="+w.dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		must(t, err)
		end := time.Now().Add(time.Duration(w.r.Int64N(int64(60 * time.Millisecond))))
		for time.Now().Before(end) {
			w.write(1 + w.r.IntN(40))
		}
		must(t, cmd.Process.Kill())
		cmd.Wait() //nolint:errcheck // it was killed
		if w.r.IntN(4) == 0 {
			w.tear()
		}
	}
	w.close()
	x := run(t, w.options())
	same(t, "after kills", w.oracle(audit.Filter{}), x.read(audit.Filter{}))
	if h := x.Health(); h.Damages != 0 || h.Rebuilt != 0 {
		t.Errorf("health %+v", h)
	}
}

// tear ends the journal as a crash of the plane does: in the middle of a line.
func (w *world) tear() {
	w.t.Helper()
	w.close()
	f, err := os.OpenFile(w.newest(), os.O_WRONLY|os.O_APPEND, 0)
	must(w.t, err)
	_, err = f.WriteString(`{"v":1,"kind":"decision","time":"2026`)
	must(w.t, err)
	must(w.t, f.Close())
	w.openJournals()
}

// files are those of the proxy's journal, oldest first.
func (w *world) files() []string {
	w.t.Helper()
	list, err := filepath.Glob(filepath.Join(w.dirs()[0], "*.jsonl"))
	must(w.t, err)
	return list
}

func (w *world) newest() string {
	list := w.files()
	return list[len(list)-1]
}

// TestADamagedJournalIsReadOn: what cannot be read is skipped, and is in the log
// itself.
func TestADamagedJournalIsReadOn(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, w *world)
		says   string
		lost   bool // outcomes without their decisions
	}{
		"a line that is no record":  {func(t *testing.T, w *world) { w.edit(1, `"kind":"decision"`, `"kind":"decisiox"`) }, "does not know that kind", true},
		"a record that was changed": {func(t *testing.T, w *world) { w.edit(1, `"host":"a.example"`, `"host":"x.example"`) }, "does not hold the hash", false},
		"a file that is gone":       {func(t *testing.T, w *world) { must(t, os.Remove(w.files()[2])) }, "are missing", true},
		"a file that was cut":       {func(t *testing.T, w *world) { must(t, os.Truncate(w.files()[1], 5000)) }, "are missing", true},
		"zeros":                     {func(t *testing.T, w *world) { w.edit(2, `{"v":1`, "\x00\x00\x00\x00\x00\x00") }, "invalid character", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 11)
			w.size = 32 << 10
			w.reopen()
			w.write(600)
			w.close()
			whole := len(w.oracle(audit.Filter{}))
			c.damage(t, w)
			x := run(t, w.options())
			got := x.read(audit.Filter{})
			damages, lost, decisions := 0, 0, 0
			for _, e := range got {
				switch {
				case e.Damage != nil && strings.Contains(e.Damage.Error, c.says):
					damages++
				case e.Damage != nil:
					t.Errorf("damage %+v", e.Damage)
				case e.Lost != "":
					lost++
				case e.Decision != nil:
					decisions++
				}
			}
			if damages == 0 || x.Health().Damages != uint64(damages) {
				t.Errorf("%d damages in the log, health %+v", damages, x.Health())
			}
			if c.lost != (lost > 0) {
				t.Errorf("%d outcomes without their decisions", lost)
			}
			if decisions < whole/3 {
				t.Errorf("%d decisions of %d entries are left", decisions, whole)
			}
		})
	}
}

// edit changes the first place in a file of the journal.
func (w *world) edit(file int, old, now string) {
	w.t.Helper()
	name := w.files()[file]
	text, err := os.ReadFile(name)
	must(w.t, err)
	if !strings.Contains(string(text), old) {
		w.t.Fatalf("%s does not hold %q", name, old)
	}
	must(w.t, os.WriteFile(name, []byte(strings.Replace(string(text), old, now, 1)), 0o600))
}

// TestAnIndexThatIsSpoiltIsMadeAnew, whatever happens to its file.
func TestAnIndexThatIsSpoiltIsMadeAnew(t *testing.T) {
	w := newWorld(t, 12)
	w.write(300)
	w.j.SyncNow()
	path := w.options().Path
	overwrite := func(with string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte(with), 0)
		must(t, err)
		must(t, f.Close())
	}
	for name, spoil := range map[string]func(){
		"another file":  func() { os.Remove(path + "-wal"); overwrite(strings.Repeat("no database at all", 900)) },
		"cut":           func() { must(t, os.Truncate(path, 8192)) },
		"empty":         func() { must(t, os.Truncate(path, 0)) },
		"gone":          func() { must(t, os.Remove(path)) },
		"a page zeroed": func() { overwrite(strings.Repeat("\x00", 4096)) },
	} {
		t.Run(name+" before the start", func(t *testing.T) {
			x := run(t, w.options())
			x.catchUp()
			x.stop()
			spoil()
			x = run(t, w.options())
			same(t, name, w.oracle(audit.Filter{}), x.read(audit.Filter{}))
		})
	}
	t.Run("gone while it is open", func(t *testing.T) {
		x := run(t, w.options())
		x.catchUp()
		must(t, os.Remove(path))
		w.write(10)
		w.close()
		same(t, "gone", w.oracle(audit.Filter{}), x.read(audit.Filter{}))
		if h := x.Health(); h.Rebuilt == 0 {
			t.Errorf("health %+v", h)
		}
	})
}

// TestWritesThatWereTakenBackGo: a journal takes back what it could not write to
// the end, and an index that was quick has read it already.
func TestWritesThatWereTakenBackGo(t *testing.T) {
	w := newWorld(t, 13)
	w.write(400)
	w.close()
	info, err := os.Stat(w.newest())
	must(t, err)
	before := w.newest()
	w.openJournals()
	w.close() // a file with nothing but its head
	must(t, os.Remove(w.newest()))
	text, err := os.ReadFile(before)
	must(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	x := run(t, w.options())
	x.catchUp()
	cut := info.Size()
	for _, l := range lines[len(lines)-20:] {
		cut -= int64(len(l))
	}
	cut--
	must(t, os.Truncate(before, cut))
	w.readSize = -1
	w.openJournals()
	w.open = nil
	w.write(50)
	w.close()
	got := x.read(audit.Filter{})
	for i := 0; i < len(got); i++ {
		if got[i].Damage != nil {
			t.Errorf("damage %+v", got[i].Damage)
		}
	}
	same(t, "taken back", w.oracle(audit.Filter{}), got)
	totals, err := x.Totals(t.Context(), audit.Filter{}, index.ByAgent)
	must(t, err)
	want := w.added(audit.Filter{}, index.ByAgent)
	for _, tot := range totals {
		for _, o := range want {
			if o.Agent == tot.Agent && o != tot {
				t.Errorf("total %+v, want %+v", tot, o)
			}
		}
	}
}

func removeAll(path string) error {
	for _, side := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + side); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
