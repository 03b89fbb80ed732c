// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"bawn/internal/budget"
	"bawn/internal/codes"
	"bawn/internal/labels"
	"bawn/internal/names"
	"bawn/internal/roottest"
)

// A child of this test binary makes up names until it is killed.
func TestMain(m *testing.M) {
	for name, forever := range map[string]func(string) error{"BUDGET_TEST_DIR": takeForever, "METER_TEST_DIR": useForever} {
		if dir := os.Getenv(name); dir != "" {
			fmt.Println("child:", forever(dir))
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var endless = labels.Limits{Names: 1 << 30, Octets: 1 << 30, AllNames: 1 << 30}

// takeForever says so on stdout when a name was let through.
func takeForever(dir string) error {
	l, err := budget.OpenLabels(dir, endless, nil)
	if err == nil {
		err = l.Keep(map[string]string{"dev": dev})
	}
	for i := 0; err == nil; i++ {
		name := fmt.Sprintf("n%d-%d.example.com", os.Getpid(), i)
		if v := l.Take("dev", names.MustParse(name), wild, morning); !v.Allowed() {
			return errors.New(v.Detail)
		}
		os.Stdout.WriteString("let through\n")
	}
	return err
}

// words collects what a child says, and tells when it has begun to.
type words struct {
	buf   bytes.Buffer
	once  sync.Once
	begun chan struct{}
}

// Write takes more in.
func (w *words) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	return w.buf.Write(p)
}

// TestI13KilledAtAnyInstantNoCountIsLost: what was let through is counted.
func TestI13KilledAtAnyInstantNoCountIsLost(t *testing.T) {
	rounds := roottest.Count(10, 300)
	dir := t.TempDir()
	through := 0
	for round := range rounds {
		through += killed(t, dir, "BUDGET_TEST_DIR", round)
	}
	// Each kill may have come between the count and the word of it.
	for limit, want := range map[int]codes.Code{max(through, 1): codes.DNSLabelBudget, through + rounds + 1: ""} {
		lim := endless
		lim.Names = limit
		l := open(t, dir, lim)
		if got := taken(l, "dev", fmt.Sprintf("one-more-%d.example.com", limit), wild, morning); got != want {
			t.Errorf("%d kills, %d let through, with a limit of %d: %q, want %q", rounds, through, limit, got, want)
		}
		l.Close()
	}
	t.Logf("%d kills, %d names let through", rounds, through)
}

// killed runs a child that uses up what it can, kills it some time later, and
// returns how often it said that something was let through.
func killed(t *testing.T, dir, name string, round int) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), name+"="+dir)
	out := &words{begun: make(chan struct{})}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if round%3 > 0 { // the others may be killed before they have begun
		<-out.begun
	}
	time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
	cmd.Process.Kill()
	err := cmd.Wait()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v\n%s", err, out.buf.String())
	}
	return bytes.Count(out.buf.Bytes(), []byte("let through\n"))
}
