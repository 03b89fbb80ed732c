// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"bawn/internal/audit"
	"bawn/internal/roottest"
)

// TestNoFalseAlarm writes histories with rotation, restarts, torn ends and old
// files removed: every record that was signed is proven, and nothing is a fault.
func TestNoFalseAlarm(t *testing.T) {
	for seed := range uint64(roottest.Count(5, 300)) {
		r := newRig(t, seed)
		r.fill(t, 30)
		s := r.sound(t)
		if s.Last != s.Covered || s.Beyond != 0 || s.Records != s.Last || s.Files < 4 {
			t.Fatalf("seed %d: %+v", seed, s)
		}
		if len(r.broken) > 0 {
			t.Fatalf("seed %d: %q", seed, r.broken)
		}
		r.restart(t) // what the newest checkpoint covers is found again
		r.write(t, 5)
		r.sign(t)
		r.sound(t)
		r.close(t)
		r.prune(t, seed)
	}
}

// prune removes the oldest files, as retention does, and goes on.
func (r *rig) prune(t *testing.T, seed uint64) {
	files := r.files(t)
	for _, f := range files[:len(files)/2] {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.sound(t); !s.Gone || s.First == 1 || s.Covered != s.Last {
		t.Fatalf("seed %d: after old files are gone: %+v", seed, s)
	}
	r.restart(t)
	r.write(t, 20)
	r.sign(t)
	r.close(t)
	r.sign(t)
	if s := r.sound(t); s.Covered != s.Last || len(r.broken) > 0 {
		t.Fatalf("seed %d: %+v, %q", seed, s, r.broken)
	}
}

func TestBacklogIsCoveredEveryThousandRecords(t *testing.T) {
	r := newRig(t, 1)
	r.opt.FileBytes = 1 << 20
	r.write(t, 3500)
	r.close(t)
	r.sign(t)
	s := r.sound(t)
	if s.Covered != s.Last || s.Last < 3500 || s.Checkpoints < 4 {
		t.Errorf("%+v", s)
	}
	st := r.signer.Covered("proxy")
	if st.Record != s.Last || st.Waiting != 0 || st.File == "" || st.Broken != "" || st.Fault != "" {
		t.Errorf("state %+v", st)
	}
	before := s.Checkpoints
	r.sign(t)
	if s := r.sound(t); s.Checkpoints != before {
		t.Error("a checkpoint was made although nothing is new")
	}
}

// TestAChangedJournalIsNotSigned changes what is not signed yet, and what is.
func TestAChangedJournalIsNotSigned(t *testing.T) {
	change := func(w where, r *rig) { r.flip(t, w) }
	cases := map[string]func(r *rig){
		"the last signed record is changed": func(r *rig) { l := r.records(t); change(l[len(l)-1], r) },
		"an unsigned record is changed": func(r *rig) {
			r.write(t, 3)
			l := r.records(t)
			change(l[len(l)-2], r)
		},
		"the file is cut in front of what is signed": func(r *rig) {
			l := r.records(t)
			w := l[len(l)-2]
			os.Truncate(w.path, w.begin)
		},
		"the newest file is gone": func(r *rig) { f := r.files(t); os.Remove(f[len(f)-1]) },
	}
	for name, do := range cases {
		for _, down := range []bool{false, true} {
			r := newRig(t, 3)
			r.opt.FileBytes = 1 << 20
			r.write(t, 20)
			r.sign(t)
			signed := r.newest(t).Last()
			do(r)
			if down {
				r.restart(t)
			}
			r.sign(t)
			if len(r.broken) == 0 || !strings.Contains(r.log.String(), "not what was written") {
				t.Errorf("%s (admin down: %v): no alarm", name, down)
				continue
			}
			if st := r.signer.Covered("proxy"); st.Broken == "" || st.Record != signed && st.Record != 0 {
				t.Errorf("%s: state %+v", name, st)
			}
			r.close(t)
			r.write(t, 10) // a later run is covered again
			r.sign(t)
			r.write(t, 3)
			r.sign(t)
			n := r.newest(t)
			if n.Tree < 2 || n.Last() != uint64(len(r.records(t))) && name != "the newest file is gone" && !strings.Contains(name, "cut") {
				t.Errorf("%s: later records are covered by tree %d up to %d of %d", name, n.Tree, n.Last(), len(r.records(t)))
			}
			rep := r.verify(t)
			if !has(rep, FaultBreak) {
				t.Errorf("%s: the break is not in the report: %+v", name, rep.All())
			}
			r.restart(t)
			r.write(t, 1)
			again := len(r.broken)
			r.sign(t)
			if len(r.broken) != again {
				t.Errorf("%s: one break is found twice: %q", name, r.broken)
			}
			r.close(t)
		}
	}
}

func has(rep Report, kind string) bool {
	for _, f := range rep.All() {
		if f.Kind == kind {
			return true
		}
	}
	return false
}

// flip changes one letter of a record's path or host.
func (r *rig) flip(t testing.TB, w where) {
	t.Helper()
	raw, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	line := raw[w.begin:w.end]
	i := strings.Index(string(line), `"time":"20`)
	if i < 0 {
		t.Fatalf("no time in %s", line)
	}
	line[i+10] ^= 1 // the third digit of the year
	if err := os.WriteFile(w.path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRemovedFilesAreNoticed(t *testing.T) {
	r := newRig(t, 5)
	r.write(t, 60)
	r.sign(t)
	os.Remove(r.files(t)[0])
	r.sign(t)
	if len(r.pruned) != 1 || len(r.broken) != 0 {
		t.Errorf("pruned %q, broken %q", r.pruned, r.broken)
	}
	r.close(t)
}

// TestABookThatCannotBeWrittenIsMadeUpFor: what could not be signed is signed
// later, and the state says so meanwhile.
func TestABookThatCannotBeWrittenIsMadeUpFor(t *testing.T) {
	r := newRig(t, 6)
	r.write(t, 10)
	r.sign(t)
	if err := os.Rename(r.Checkpoints(), r.Checkpoints()+".away"); err != nil {
		t.Fatal(err)
	}
	r.restart(t) // its directory is made again, but is not the one with the book
	os.Remove(r.Checkpoints())
	r.write(t, 10)
	if err := r.signer.SignNow(); err == nil || r.signer.Covered("proxy").Fault == "" {
		t.Fatalf("no fault without a directory: %v, %+v", err, r.signer.States())
	}
	if err := os.Rename(r.Checkpoints()+".away", r.Checkpoints()); err != nil {
		t.Fatal(err)
	}
	r.sign(t)
	r.close(t)
	if s := r.sound(t); s.Covered != s.Last {
		t.Errorf("%+v", s)
	}
}

func TestBooksAreMadeShorter(t *testing.T) {
	r := newRig(t, 8)
	r.fill(t, 30)
	// Split the book, as its size does in time.
	for i := range 3 {
		x := r.signer.all["proxy"]
		x.book.torn = true
		r.write(t, 30+i)
		r.sign(t)
	}
	r.close(t)
	if n := len(r.books(t)); n < 4 {
		t.Fatalf("%d files", n)
	}
	for _, f := range r.files(t)[:len(r.files(t))-2] {
		os.Remove(f)
	}
	r.signer.tidy = r.signer.o.Now().Add(-seconds(1))
	r.sign(t)
	if n := len(r.books(t)); n > 3 {
		t.Errorf("%d files of checkpoints are kept", n)
	}
	r.sound(t)
	r.restart(t)
	r.write(t, 3)
	r.sign(t)
	r.close(t)
	r.sound(t)
}

func TestSeriesOfOneNameInTwoPlaces(t *testing.T) {
	r := newRig(t, 9)
	other := r.Journal("tools")
	os.MkdirAll(other, 0o755)
	j, err := audit.OpenJournal(other, audit.Options{Plane: "proxy"})
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	r.write(t, 1)
	r.signer.o.Journals = append(r.signer.o.Journals, other)
	if err := r.signer.SignNow(); err == nil {
		t.Error("two series of one name were covered as one")
	}
	r.close(t)
	if rep := r.verify(t); rep.OK() {
		t.Error("two series of one name passed")
	}
}

// TestAWriteThatIsTakenBackIsNoAlarm: a journal takes back the part of a batch
// that a full disk let through. What was seen of it meanwhile is not signed.
func TestAWriteThatIsTakenBackIsNoAlarm(t *testing.T) {
	r := newRig(t, 15)
	r.opt.FileBytes = 1 << 20
	r.write(t, 10)
	r.sign(t)
	signed := r.newest(t).Last()
	r.write(t, 5)
	r.close(t)
	l := r.records(t)
	w := l[len(l)-2]
	raw, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	x := r.signer.all["proxy"]
	x.record = func() error {
		if x.last == w.seq+1 {
			os.Truncate(w.path, w.begin)
		}
		return x.onRecord()
	}
	r.sign(t)
	if n := r.newest(t); n.Last() != signed || len(r.broken) > 0 {
		t.Fatalf("signed up to %d while it was taken back, %q", n.Last(), r.broken)
	}
	x.record = x.onRecord
	f, _ := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND, 0)
	f.Write(raw[w.begin:])
	f.Close()
	r.rechain(t, w.seq, func(_ uint64, line []byte) []byte { // what comes instead are other records
		return bytes.Replace(line, []byte(`"time":"20`), []byte(`"time":"19`), 1)
	})
	r.sign(t)
	if s := r.sound(t); s.Covered != s.Last || len(r.broken) > 0 {
		t.Errorf("%+v, %q", s, r.broken)
	}
}

// TestAFullDiskIsMadeUpFor fills the disk of the checkpoints in the middle of a
// backlog of many files, in a mount namespace of its own.
func TestAFullDiskIsMadeUpFor(t *testing.T) {
	roottest.Require(t)
	r := newRig(t, 16)
	r.write(t, 400)
	r.close(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "PROOF_TEST_DIR="+r.Dir, "PROOF_TEST_FULL=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s := r.sound(t); s.Covered != s.Last || len(r.files(t)) < 20 {
		t.Errorf("%+v", s)
	}
}

// signOnFullDisk signs until the disk is full, makes room, and signs the rest.
func signOnFullDisk(l Layout) error {
	small := l.Dir + "/small"
	if err := errors.Join(os.MkdirAll(small, 0o700), os.MkdirAll(l.Checkpoints(), 0o700)); err != nil {
		return err
	}
	if err := syscall.Mount("none", small, "tmpfs", 0, "size=8k"); err != nil {
		return err
	}
	key, err := OpenKey(l.Dir+"/admin/audit.key", l.Key(), func() error { return nil })
	if err != nil {
		return err
	}
	s, err := OpenSigner(Options{Dir: small, Journals: []string{l.Journal("proxy")}, Key: key})
	if err != nil {
		return err
	}
	for range 3 {
		if err := s.SignNow(); !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("on a full disk: %w", err)
		}
	}
	st := s.Covered("proxy")
	if st.Fault == "" || st.Record == 0 || st.Broken != "" {
		return fmt.Errorf("state %+v", st)
	}
	if err := syscall.Mount("none", small, "tmpfs", syscall.MS_REMOUNT, "size=8m"); err != nil {
		return err
	}
	if err := s.SignNow(); err != nil {
		return err
	}
	s.close()
	return os.CopyFS(l.Checkpoints(), os.DirFS(small))
}

// TestNothingButFilesIsRead: who writes a journal can put other things there.
func TestNothingButFilesIsRead(t *testing.T) {
	r := newRig(t, 17)
	r.write(t, 3)
	r.sign(t)
	newest := r.files(t)[0]
	if err := errors.Join(os.Rename(newest, newest+".x"), syscall.Mkfifo(newest, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.signer.SignNow() // does not wait
	if _, err := openRegular(newest); err == nil {
		t.Error("a pipe was opened")
	}
	os.Remove(newest)
	os.Symlink(r.Dir+"/admin/audit.key", newest)
	if _, err := openRegular(newest); err == nil {
		t.Error("a link was followed")
	}
	if len(r.broken) == 0 {
		t.Error("no alarm")
	}
}

func TestTwoFilesOfOneNumberAreAFault(t *testing.T) {
	r := newRig(t, 18)
	r.fill(t, 5)
	f := r.files(t)[1]
	raw, _ := os.ReadFile(f)
	os.WriteFile(strings.Replace(f, "-2026", "-2025", 1), raw, 0o600)
	if rep := r.verify(t); !has(rep, FaultFile) {
		t.Errorf("%s", lines(rep))
	}
	r.restart(t)
	if err := r.signer.SignNow(); err == nil {
		t.Error("it was signed")
	}
}
