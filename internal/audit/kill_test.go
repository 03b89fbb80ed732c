// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bawn/internal/roottest"
)

// A child of this test binary writes a journal until it is killed, or fills a
// disk.
func TestMain(m *testing.M) {
	if dir := os.Getenv("AUDIT_TEST_DIR"); dir != "" {
		os.Exit(child(dir, os.Getenv("AUDIT_TEST_DO")))
	}
	os.Exit(m.Run())
}

func child(dir, do string) int {
	var err error
	switch do {
	case "write":
		err = writeForever(dir)
	case "fill":
		err = fillDisk(dir)
	}
	if err != nil {
		fmt.Println("child:", err)
		return 1
	}
	return 0
}

func startChild(t *testing.T, dir, do string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "AUDIT_TEST_DIR="+dir, "AUDIT_TEST_DO="+do)
	return cmd
}

// writeForever acknowledges each request on stdout once its decision is on
// record. Files are small, so that kills fall into rotation too.
func writeForever(dir string) error {
	j, err := OpenJournal(dir, Options{Plane: "egress", FileBytes: 16 << 10})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var failed sync.Map
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				d := testDecision(fmt.Sprintf("r-%d-%d-%d", os.Getpid(), w, i))
				d.Detail = strings.Repeat("x", rand.IntN(maxText))
				if err := j.Decide(d); err != nil {
					failed.Store(w, err)
					return
				}
				// One short write to a pipe is whole or not at all.
				os.Stdout.WriteString(d.Request + " " + strconv.FormatUint(d.Seq, 10) + "\n")
				j.Outcome(testOutcome(d.Request))
			}
		})
	}
	wg.Wait()
	failed.Range(func(_, e any) bool { err = e.(error); return false })
	return err
}

func TestI13KilledAtAnyInstantNoAcknowledgedDecisionIsMissing(t *testing.T) {
	rounds := roottest.Count(12, 500)
	dir := t.TempDir()
	acknowledged := make(map[string]uint64)
	for range rounds {
		cmd := startChild(t, dir, "write")
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		cmd.Process.Kill()
		err := cmd.Wait()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for lines := bufio.NewScanner(&out); lines.Scan(); {
			request, seq, _ := strings.Cut(lines.Text(), " ")
			n, err := strconv.ParseUint(seq, 10, 64)
			if err != nil {
				t.Fatalf("acknowledged %q", lines.Text())
			}
			acknowledged[request] = n
		}
	}
	j := open(t, dir, Options{}) // marks what the last kill tore
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	report := verified(t, dir)
	t.Logf("%d kills, %d acknowledged, %d records in %d files, %d torn ends",
		rounds, len(acknowledged), report.Records, report.Files, len(report.Torn))
	if len(acknowledged) == 0 {
		t.Fatal("nothing was acknowledged")
	}
	for e, err := range Scan(dir, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := acknowledged[e.Decision.Request]; ok {
			if n != e.Decision.Seq {
				t.Errorf("%s was acknowledged as %d and is %d", e.Decision.Request, n, e.Decision.Seq)
			}
			delete(acknowledged, e.Decision.Request)
		}
	}
	for request := range acknowledged {
		t.Errorf("%s was acknowledged and is not on record", request)
	}
}

// TestI7FullDisk fills a real file system, in a mount namespace of its own.
func TestI7FullDisk(t *testing.T) {
	roottest.Require(t)
	cmd := startChild(t, t.TempDir(), "fill")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// fillDisk writes until the disk is full, sees refusals only, makes room, and
// sees decisions go on record again; several times.
func fillDisk(dir string) error {
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		return err
	}
	j, err := OpenJournal(dir, Options{Plane: "egress", FileBytes: 100 << 10})
	if err != nil {
		return err
	}
	written, refused := make(map[string]bool), 0
	try := func(name string, i int) error {
		d := testDecision(fmt.Sprintf("r-%s-%d", name, i))
		d.Detail = strings.Repeat("x", i%maxText)
		err := j.Decide(d)
		switch {
		case err == nil:
			written[d.Request] = true
			j.Outcome(testOutcome(d.Request))
		case errors.Is(err, syscall.ENOSPC):
			refused++
		default:
			return err
		}
		return nil
	}
	for round, room := range []int64{512 << 10, 300 << 10, 100 << 10, 0} {
		if err := os.Truncate(ballast, room); err != nil {
			return err
		}
		before, already := len(written), refused
		for i := 0; refused < already+20; i++ {
			if err := try(fmt.Sprint(round), i); err != nil {
				return err
			}
		}
		if len(written) == before {
			return fmt.Errorf("round %d: nothing was written although there was room", round)
		}
	}
	// Full files are held open until the next sync, at most a second later.
	if err := j.SyncNow(); err != nil {
		return err
	}
	for _, old := range []string{"000000001", "000000002"} { // an operator makes room
		names, err := filepath.Glob(filepath.Join(dir, "egress-"+old+"-*"))
		if err != nil || len(names) != 1 {
			return fmt.Errorf("file %s: %v, %w", old, names, err)
		}
		for _, name := range names {
			for e, err := range scanFile(name) {
				if err != nil {
					return err
				}
				if e.Decision != nil {
					delete(written, e.Decision.Request)
				}
			}
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	if err := try("after", 0); err != nil || !written["r-after-0"] {
		return fmt.Errorf("after room was made: written %v, %w", written["r-after-0"], err)
	}
	if err := j.Close(); err != nil {
		return err
	}
	return checkFilled(dir, written, refused)
}

// scanFile reads the records of one file.
func scanFile(path string) func(yield func(Record, error) bool) {
	return func(yield func(Record, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer f.Close()
		for lines := newLineReader(f, 0); ; {
			line, whole, err := lines.next()
			if err != nil || !whole {
				return
			}
			if rec, err := parseLine(line); !yield(rec, err) {
				return
			}
		}
	}
}

func checkFilled(dir string, written map[string]bool, refused int) error {
	report, err := Verify(dir)
	if err != nil {
		return err
	}
	if !report.OK() {
		return fmt.Errorf("chain is broken: %+v", report.Series[0].Faults)
	}
	var gaps uint64
	for e, err := range Scan(dir, Filter{}) {
		switch {
		case err != nil:
			return err
		case e.Gap != nil:
			gaps += e.Gap.Refused
		case e.Decision != nil && !written[e.Decision.Request]:
			return fmt.Errorf("%s is on record and was refused", e.Decision.Request)
		case e.Decision != nil:
			delete(written, e.Decision.Request)
		}
	}
	if len(written) > 0 {
		return fmt.Errorf("%d decisions that were acknowledged are missing", len(written))
	}
	fmt.Printf("%d records, %d refused, %d of them in gaps, %d torn ends\n", report.Series[0].Records, refused, gaps, len(report.Series[0].Torn))
	if gaps == 0 || gaps > uint64(refused) {
		return fmt.Errorf("gaps count %d refusals", gaps)
	}
	return nil
}
