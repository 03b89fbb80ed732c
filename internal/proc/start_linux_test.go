// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"bawn/internal/proc"
	"bawn/internal/roottest"

	"golang.org/x/sys/unix"
)

const (
	agentUID = 1900000042
	agentGID = 1900000042
)

// newState makes a state directory with one agent, as Bawn's accounts part
// does.
func newState(t *testing.T) string {
	t.Helper()
	state := filepath.Join(t.TempDir(), "var/lib/bawn")
	for _, dir := range []string{"agents/dev", "public"} {
		if err := os.MkdirAll(filepath.Join(state, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"home", "work", "tmp"} {
		p := filepath.Join(state, "agents/dev", dir)
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(p, agentUID, agentGID); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{proc.CAFile, proc.BundleFile} {
		if err := os.WriteFile(filepath.Join(state, "public", name), []byte("the roots of "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return state
}

// newNetns makes a network namespace with nothing in it.
func newNetns(t *testing.T) *os.File {
	t.Helper()
	made := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		made <- f
	}()
	f := <-made
	t.Cleanup(func() { f.Close() })
	return f
}

func spec(state string, argv ...string) proc.Spec {
	return proc.Spec{
		Session: "s-1",
		Agent:   "dev",
		UID:     agentUID,
		GID:     agentGID,
		Argv:    argv,
		Env:     []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/dev"},
		State:   state,
	}
}

// result is what one session said and how it ended.
type result struct {
	out, err string
	proc.Exit
}

func run(t *testing.T, s proc.Spec) result {
	t.Helper()
	c, err := proc.Start(t.Context(), s, newNetns(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Stdin.Close()
	stderr := make(chan string)
	go func() {
		b, _ := io.ReadAll(c.Stderr)
		stderr <- string(b)
	}()
	out, _ := io.ReadAll(c.Stdout)
	r := result{out: string(out), err: <-stderr}
	r.Exit = c.Wait()
	return r
}

// sh runs a shell script as the agent and returns what it printed.
func sh(t *testing.T, script string) string {
	t.Helper()
	roottest.Require(t)
	r := run(t, spec(newState(t), "sh", "-c", script))
	if r.Fault != "" {
		t.Fatalf("fault: %s", r.Fault)
	}
	return strings.TrimSuffix(r.out+r.err, "\n")
}

func TestACommandRunsAsTheAgent(t *testing.T) {
	got := sh(t, "id -u; id -g; id -G; hostname; pwd; echo $$; cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp:'; ps ax; ls -la / /dev /run /etc/ssl /tmp; cat /etc/resolv.conf; cat /etc/ssl/certs/ca-certificates.crt; mount; ulimit -c; ulimit -n; env; ls -l /proc/self/fd; ls -l /proc/1/fd; cat /proc/self/cgroup")
	t.Log(got)
}
