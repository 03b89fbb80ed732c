// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/termfilter"
)

// shown lets a real terminal, a pane of tmux, read what is in the file "in",
// and returns what the terminal typed in answer.
func shown(t *testing.T, in []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("in"), in, 0o600); err != nil {
		t.Fatal(err)
	}
	// The terminal answers in order, so its answer to the last question (where
	// the cursor is, on line 7) says that there is nothing more to come.
	const script = `stty raw -echo
cat in
printf '\030\033\\\033[m\033[7;3H\033[6n'
exec 3>out
while c=$(dd bs=1 count=1 2>/dev/null | od -An -tx1 -v); do
	echo $c >&3
	case $(tail -n 6 out | tr -d '\n') in 1b5b373b3352) break ;; esac
done
tmux -S sock wait-for -S done`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends a hang, and judges nothing
	defer cancel()
	tmux := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, "tmux", append([]string{"-S", "sock", "-f", "/dev/null"}, args...)...)
		c.Dir = dir // the path of a socket is short
		c.Env = append(os.Environ(), "TMUX=", "TERM=xterm-256color", "LC_ALL=C.UTF-8")
		return c
	}
	if out, err := tmux("new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("starting tmux: %v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command("tmux", "-S", path("sock"), "kill-server").Run() })
	if out, err := tmux("wait-for", "done").CombinedOutput(); err != nil {
		t.Fatalf("waiting for the answers: %v\n%s", err, out)
	}
	hex, err := os.ReadFile(path("out"))
	if err != nil {
		t.Fatal(err)
	}
	return fromHex(t, hex)
}

func fromHex(t *testing.T, lines []byte) []byte {
	t.Helper()
	var out []byte
	for _, h := range bytes.Fields(lines) {
		var b byte
		for _, c := range h {
			b = b<<4 | byte(bytes.IndexByte([]byte("0123456789abcdef"), c))
		}
		out = append(out, b)
	}
	return out
}

// Both ways: the terminal does answer hostile text, and once filtered does not.
func TestI14ARealTerminalStaysSilent(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		roottest.Skip(t, "needs tmux")
	}
	const last = "\x1b[7;3R"
	var attacks []byte
	for _, s := range dropped {
		attacks = append(attacks, s...)
		attacks = append(attacks, "\x18\x1b\\"...) // ends whatever the terminal still takes for a string
	}
	if got := shown(t, []byte("\x1b[>q\x1b[18t\x1b[1337n")); !bytes.HasPrefix(got, []byte("\x1bP>|tmux")) {
		t.Errorf("not filtered, the terminal answers %q: this test sees no answers", got)
	}
	if got := shown(t, []byte(filtered(string(attacks)))); string(got) != last {
		t.Errorf("filtered, the terminal still answers %q", got)
	}
	var questions []byte
	for _, s := range kept {
		questions = append(questions, s...)
	}
	answers := shown(t, []byte(filtered(string(questions))))
	numbers := regexp.MustCompile(`^(?:\x1b\[[?>]?[0-9;]*\$?[Rncyu]|\x1b\](?:4;[0-9]+|1[012]);rgb:[0-9a-f/]+(?:\x07|\x1b\\))+$`)
	if !numbers.Match(answers) {
		t.Errorf("the terminal answers allowed questions with %q", answers)
	}
	var f termfilter.Filter
	f.Append(nil, questions)
	if got := shown(t, f.Restore(nil)); string(got) != last {
		t.Errorf("what restores makes the terminal answer %q", got)
	}
}
