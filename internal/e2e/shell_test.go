// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A shell is a session that stays open and runs one line after the other, so
// that a test can act while an agent is already there.
type shell struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // closed at the end of the output
	agent string
}

// shell opens a session.
func (h *host) shell(t *testing.T, agent string) *shell {
	t.Helper()
	cmd := h.session(t.Context(), agent, "sh")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{cmd: cmd, stdin: stdin, lines: make(chan string, 10_000), agent: agent}
	go func() {
		defer close(s.lines)
		in := bufio.NewScanner(stdout)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			s.lines <- in.Text()
		}
	}()
	t.Cleanup(func() { s.end() })
	if out := s.run(t, "echo ready"); out != "ready\n" {
		t.Fatalf("opening a session of %s: %q", agent, out)
	}
	return s
}

// run runs a line to its end and returns what it printed.
func (s *shell) run(t *testing.T, line string) string {
	t.Helper()
	out, ok := s.try(line)
	if !ok {
		t.Fatalf("session of %s ended during %q: %s", s.agent, line, out)
	}
	return out
}

// try is run for sessions that may end; it reports whether the line was run to
// its end, for which it waits one minute.
func (s *shell) try(line string) (out string, ok bool) {
	mark := token()
	if _, err := fmt.Fprintf(s.stdin, "{ %s\n} 2>&1; echo; echo %s\n", line, mark); err != nil {
		return "", false
	}
	var b strings.Builder
	late := time.After(time.Minute)
	for {
		select {
		case got, open := <-s.lines:
			if !open {
				return b.String(), false
			}
			if got == mark {
				return strings.TrimSuffix(b.String(), "\n"), true
			}
			b.WriteString(got + "\n")
		case <-late:
			return b.String() + "(no end after a minute)", false
		}
	}
}

// curl asks for an address within the session; see [host.curl].
func (s *shell) curl(t *testing.T, url string, args ...string) (status, code string) {
	t.Helper()
	return curlSays(result{out: s.run(t, curlLine(url, args...))})
}

func curlLine(url string, args ...string) string {
	return "curl -sS -m 20 -D - -o /dev/null -w 'status=%{http_code} connect=%{http_connect}\\n' " + strings.Join(args, " ") + " '" + url + "'"
}

// end closes the session and waits for it.
func (s *shell) end() {
	_ = s.stdin.Close()
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Cancel()
		<-done
	}
}

// eventually asks again and again until ok says so, for 20 seconds at most. It
// is for states that the program under test reaches by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within 20 s", what)
}
