// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/world/operator"
)

// TestLend runs a tool that lies in the operator's home, where an agent's
// account cannot go.
func TestLend(t *testing.T) {
	h := boot(t)
	const tool = "/home/oper/tools/bin/hello"
	h.asOperator(t, "mkdir -p tools/bin && printf '#!/bin/sh\\necho hello from $(id -un)\\n' >"+tool+" && chmod 755 "+tool+" && chmod 700 /home/oper")
	for placement, agent := range placements() {
		r := finish(t, h.Command(t.Context(), "run", "--agent", agent, "--", tool))
		if r.status == 0 || !strings.Contains(r.err, "--lend") {
			t.Errorf("%s, not lent: status %d: %s", placement, r.status, r.err)
		}
		r = finish(t, h.Command(t.Context(), "run", "--agent", agent, "--lend", "/home/oper/tools", "--", "sh", "-c", tool+"; touch /home/oper/tools/x; ls -A /home/oper"))
		if !strings.HasPrefix(r.out, "hello from bawn-"+agent+"\ntools\n") || !strings.Contains(r.err, "Read-only") {
			t.Errorf("%s, lent: status %d: %s%s", placement, r.status, r.out, r.err)
		}
	}
}

// asOperator runs a shell line as the operator, outside every boundary.
func (h *host) asOperator(t *testing.T, line string) {
	t.Helper()
	if out, err := h.w.Host.CommandAs(t.Context(), "oper", "sh", "-c", "cd; "+line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

func TestWorkIsTheOperators(t *testing.T) {
	h := boot(t)
	h.asOperator(t, "mkdir project && echo mine >project/file")
	for placement, agent := range placements() {
		r := finish(t, h.Command(t.Context(), "run", "--agent", agent, "--work", "/home/oper/project", "--", "sh", "-c", "cat file && echo theirs >"+agent))
		if r.status != 0 || r.out != "mine\n" {
			t.Errorf("%s: status %d: %s%s", placement, r.status, r.out, r.err)
		}
		name := h.w.Host.File(filepath.Join("/home/oper/project", agent))
		if text, err := os.ReadFile(name); err != nil || string(text) != "theirs\n" {
			t.Errorf("%s: wrote %q (%v)", placement, text, err)
		}
	}
	h.asOperator(t, `[ "$(stat -c %U:%G project/dev)" = "$(stat -c %U:%G project/file)" ]`)
	h.asOperator(t, "echo more >>project/dev && rm project/guest") // the operator owns what the agents made
}

func TestRepoIsCloned(t *testing.T) {
	h := boot(t)
	h.asOperator(t, `git init -q repo && cd repo && git config user.email o@example.com && git config user.name O && echo one >file && git add file && git commit -qm one && echo token >.env && chmod 600 .env`)
	r := finish(t, h.Command(t.Context(), "run", "--agent", "dev", "--repo", "/home/oper/repo", "--", "sh", "-c",
		"pwd; cat file; printf '#!/bin/sh\\ntouch /tmp/pwned\\n' >.git/hooks/post-checkout; chmod +x .git/hooks/post-checkout; git log --format=%s"))
	if r.status != 0 || !strings.Contains(r.out, "\none\none\n") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	r = finish(t, h.Command(t.Context(), "run", "--agent", "dev", "--repo", "/home/oper/repo", "--", "sh", "-c", "find / -name .env 2>/dev/null; ls /run/bawn/repo"))
	if !strings.Contains(r.out, "HEAD\n") || strings.Contains(r.out, ".env") || strings.Contains(r.out, "file") {
		t.Errorf("what was not committed is within reach: status %d: %s%s", r.status, r.out, r.err)
	}
	h.asOperator(t, "cd repo && git checkout -q -b other && test ! -e /tmp/pwned && test ! -e .git/hooks/post-checkout")
}

func TestExitStatusAndSignals(t *testing.T) {
	h := boot(t)
	for placement, agent := range placements() {
		for line, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 143} {
			if r := h.sh(t, agent, line); r.status != want {
				t.Errorf("%s: %s: status %d, want %d: %s", placement, line, r.status, want, r.err)
			}
		}
		if r := h.in(t, agent, "no-such-command"); r.status != 125 && r.status != 127 {
			t.Errorf("%s: a command that is not there: status %d: %s", placement, r.status, r.err)
		}
	}
	if r := finish(t, h.Command(t.Context(), "run", "--agent", "nobody", "--", "true")); r.status != 125 && r.status != 126 {
		t.Errorf("an agent that is not there: status %d: %s", r.status, r.err)
	}
}

// TestPublish lends an agent's port to the operator's loopback.
func TestPublish(t *testing.T) {
	h := boot(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := h.Command(ctx, "run", "--agent", "dev", "--publish", "8123:8000", "--", "sh", "-c",
		"cd && echo preview >index.html && exec /usr/bin/python3 -u -m http.server 8000 --bind 127.0.0.1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "Serving") {
		t.Fatalf("%q, %v", line, err)
	}
	eventually(t, "the page is on the operator's loopback", func() bool {
		return h.root(t, "curl -s -m 5 http://127.0.0.1:8123/index.html").out == "preview\n"
	})
	cancel()
	_ = cmd.Wait()
}

// TestTerminal runs a session in a terminal, as a person does: script(1) is
// the person's terminal. What an agent prints must not command it.
func TestTerminal(t *testing.T) {
	h := boot(t)
	for placement, agent := range placements() {
		inside := `tty; stty size; printf 'before\033]52;c;c2VjcmV0\007\033P+q544e\033\\after\033[31mred\033[0m\n'; exit 9`
		line := "stty rows 33 cols 77; " + operator.Binary + " run --agent " + agent + ` -- sh -c "$INSIDE"; echo status $?`
		cmd := h.w.Host.CommandAs(t.Context(), operator.Account, "script", "-qec", line, "/dev/null")
		cmd.Env = append(cmd.Env, "INSIDE="+inside)
		out, err := cmd.CombinedOutput()
		// script says the end of its own input with a NUL, which the terminal
		// echoes if the session is over by then.
		text := strings.NewReplacer("\r\n", "\n", "^@", "").Replace(string(out))
		if err != nil || !strings.Contains(text, "/dev/pts/") || !strings.Contains(text, "\n33 77\n") || !strings.HasSuffix(text, "\nstatus 9\n") {
			t.Errorf("%s: %v: %q", placement, err, text)
		}
		if strings.Contains(text, "]52") || strings.Contains(text, "+q544e") || !strings.Contains(text, "\x1b[31mred") || !strings.Contains(text, "after") {
			t.Errorf("%s: not filtered as it should be: %q", placement, text)
		}
	}
}

// TestAnotherRoot runs an installation that lies below a directory.
func TestAnotherRoot(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t), Root: "/var/elsewhere"})
	h.agents(t)
	h.apply(t, usual)
	for placement, agent := range placements() {
		if status, code := h.curl(t, agent, "https://"+h.w.Names.API+"/"+token()); status != "200" {
			t.Errorf("%s: %s %s", placement, status, code)
		}
	}
	if out := h.root(t, "ls -d /etc/bawn /var/lib/bawn /run/bawn 2>/dev/null; true").out; out != "" {
		t.Errorf("made outside of the root: %s", out)
	}
	h.leavesNothing(t)
}
