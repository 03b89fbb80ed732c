// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/world/operator"
)

// said collects what a program prints, and may be read meanwhile.
type said struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// has waits for a text, half a minute at most.
func (s *said) has(t *testing.T, text string) {
	t.Helper()
	for range 300 {
		if strings.Contains(s.String(), text) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%q was not said:\n%s", text, s)
}

// TestStoppingBawnTellsWhoeverWaits: a program that ends with Bawn has not
// ended by itself, and a log that is followed must not just fall silent.
func TestStoppingBawnTellsWhoeverWaits(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.bawn(t, "agent", "create", "dev", "--user", "alice")
	run, follow := h.Command(t.Context(), "run", "--", "sh", "-c", "echo runs; sleep 100"), h.Command(t.Context(), "log", "-f")
	var ran, followed said
	run.Stdout, run.Stderr, follow.Stdout, follow.Stderr = &ran, &ran, &followed, &followed
	for _, cmd := range []interface{ Start() error }{run, follow} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	ran.has(t, "runs")
	followed.has(t, "WHAT")
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	run.Wait()
	follow.Wait()
	if ran.String() != "runs\nbawn: Bawn was stopped, and the program with it\n" || run.ProcessState.ExitCode() != 125 {
		t.Errorf("run: status %d:\n%s", run.ProcessState.ExitCode(), &ran)
	}
	if !strings.HasSuffix(followed.String(), "\nbawn: following the log: admin has gone away\n") || follow.ProcessState.ExitCode() != 1 {
		t.Errorf("log -f: status %d:\n%s", follow.ProcessState.ExitCode(), &followed)
	}
	log := h.Log()
	if !strings.HasSuffix(log, "bawn: stopped, and every agent with it\n") || !strings.Contains(log, "agent=dev status=137") || complains(log) {
		t.Errorf("bawn up:\n%s", log)
	}
}

// complains reports whether there is a warning in a log, but for those of the
// self-test, which looks at the machine as well.
func complains(log string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=WARN") && !strings.Contains(line, `msg="doctor: a check warns"`) {
			return true
		}
	}
	return false
}

// TestASecondInstallationHasNoUID: only one can have the firewall's table. That
// keeps nobody out of the placement that needs none.
func TestASecondInstallationHasNoUID(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	ctx, end := context.WithCancel(t.Context())
	second := h.w.Host.Command(ctx, operator.Binary, "--root", "/var/second", "up")
	var up said
	second.Stdout, second.Stderr = &up, &up
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	defer second.Wait()
	defer end()
	up.has(t, "bawn: ready: ")
	if !strings.Contains(up.String(), "\nbawn: the self-test failed in placement uid: no agent is handed out there\n") ||
		!strings.Contains(up.String(), "belongs to another installation of Bawn") {
		t.Errorf("the second says:\n%s", &up)
	}
	as := func(args ...string) (string, error) {
		out, err := h.w.Host.Command(t.Context(), append([]string{operator.Binary, "--root", "/var/second"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := as("agent", "create", "two", "--user", "bob"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := as("run", "--", "echo", "held"); err != nil || out != "held\n" {
		t.Errorf("netns: %v: %s", err, out)
	}
	if out, err := as("run", "--placement", "uid", "--", "echo", "held"); err == nil || !strings.Contains(out, "no agent can be handed out") {
		t.Errorf("uid: %v: %s", err, out)
	}
}
