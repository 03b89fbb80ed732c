// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
)

// A child of this test binary signs until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PROOF_TEST_DIR"); dir != "" {
		do := signForever
		if os.Getenv("PROOF_TEST_FULL") != "" {
			do = signOnFullDisk
		}
		if err := do(Layout{Dir: dir}); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// signForever says after each round which record a checkpoint on the disk
// covers.
func signForever(l Layout) error {
	key, err := OpenKey(l.Dir+"/admin/audit.key", l.Key(), func() error { return nil })
	if err != nil {
		return err
	}
	s, err := OpenSigner(Options{Dir: l.Checkpoints(), Journals: []string{l.Journal("proxy")}, Key: key})
	if err != nil {
		return err
	}
	for {
		if err := s.SignNow(); err != nil {
			return err
		}
		st := s.Covered("proxy")
		if st.Broken != "" {
			return fmt.Errorf("a false alarm: %s", st.Broken)
		}
		fmt.Println(st.Record)
	}
}

// TestI13KilledAtAnyInstantTheSignerLosesNoCheckpoint kills the signer again and
// again while the journal is written, rotates, and is left torn.
func TestI13KilledAtAnyInstantTheSignerLosesNoCheckpoint(t *testing.T) {
	r := newRig(t, 500)
	said := uint64(0)
	for round := range roottest.Count(15, 500) {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "PROOF_TEST_DIR="+r.Dir)
		pipe, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		out := bufio.NewScanner(pipe)
		r.write(t, 3)
		if rand.IntN(4) > 0 && out.Scan() { // it has begun, however slow the machine is
			r.write(t, 3)
		}
		end := time.Now().Add(time.Duration(20+rand.IntN(60)) * time.Millisecond)
		for time.Now().Before(end) {
			r.write(t, 1+rand.IntN(20))
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			if rand.IntN(8) == 0 {
				r.close(t)
				r.tear(t)
			}
		}
		cmd.Process.Kill()
		for out.Scan() {
			n, err := strconv.ParseUint(out.Text(), 10, 64)
			if err != nil {
				t.Fatalf("round %d: %s", round, out.Text())
			}
			said = max(said, n)
		}
		cmd.Wait()
		rep := r.verify(t)
		if !rep.OK() || len(rep.Series) != 1 && said > 0 {
			if !strings.Contains(lines(rep), FaultBare) { // killed before the first checkpoint
				t.Fatalf("round %d: %s", round, lines(rep))
			}
		}
		if s := rep.Series[0]; s.Covered < said {
			t.Fatalf("round %d: record %d was covered, and only %d is", round, said, s.Covered)
		}
	}
	if said < 50 {
		t.Fatalf("only %d records were covered", said)
	}
	r.close(t)
	r.sign(t)
	s := r.sound(t)
	t.Logf("%d records, %d checkpoints in %d files, %d torn ends", s.Records, s.Checkpoints, len(r.books(t)), len(s.Torn))
	if s.Covered != s.Last || len(r.broken) > 0 {
		t.Errorf("%+v, %q", s, r.broken)
	}
}

// TestAKeyIsMadeOnceAndNeverReplaced: its file is its owner's alone, and a key
// that others rely on is not made anew.
func TestAKeyIsMadeOnceAndNeverReplaced(t *testing.T) {
	dir := t.TempDir()
	path, pub := dir+"/audit.key", dir+"/audit.pub"
	made := 0
	open := func() (*SigningKey, error) { return OpenKey(path, pub, func() error { made++; return nil }) }
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	second, err := open()
	if err != nil || made != 1 || second.String() != first.String() {
		t.Errorf("made %d times, %v", made, err)
	}
	public, err := ReadKey(pub)
	if err != nil || public.String() != first.String() || !strings.HasPrefix(first.Name(), "bawn-") {
		t.Errorf("public half %q, %v", public.String(), err)
	}
	os.Remove(pub) // a crash in front of publishing
	if _, err := open(); err != nil {
		t.Error(err)
	}
	os.Chmod(path, 0o640)
	if _, err := open(); err == nil {
		t.Error("a key that others may read was taken")
	}
	os.Chmod(path, 0o600)
	secret, _ := os.ReadFile(path)
	os.WriteFile(path, append(bytes.Clone(secret[:20]), "x"...), 0o600)
	if _, err := open(); err == nil || strings.Contains(err.Error(), string(secret[13:30])) {
		t.Errorf("a damaged key: %v", err)
	}
	os.Remove(path)
	if _, err := open(); err == nil || made != 1 {
		t.Errorf("a lost key was made anew: %v", err)
	}
	for _, kind := range []string{"symlink"} {
		os.WriteFile(dir+"/elsewhere", secret, 0o600)
		os.Symlink(dir+"/elsewhere", path)
		if _, err := open(); err == nil {
			t.Errorf("a %s was taken", kind)
		}
	}
}
