// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// A service is Bawn under the real systemd.
type service struct {
	t *testing.T
	w *world.World
	s *world.Systemd
}

// bootUnits boots systemd in a fresh world and has Bawn installed there.
func bootUnits(t *testing.T) *service {
	t.Helper()
	roottest.Require(t)
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		roottest.Skip(t, "needs systemd, as a program")
	}
	w := world.New(t)
	copyInto(t, built.bawn(t), w.Host.File(operator.Binary))
	if err := w.Host.AddUser(t.Context(), operator.Account); err != nil {
		t.Fatal(err)
	}
	s, err := w.Host.Systemd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := &service{t, w, s}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("systemd:\n%s\nservices:\n%s", s.Console(), s.Services())
		}
		if err := s.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return v
}

func copyInto(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err2 := out.Close(); err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
}

// root runs a program as root and wants it to succeed.
func (v *service) root(argv ...string) string {
	v.t.Helper()
	return v.run(v.s.Command(v.t.Context(), argv...))
}

// oper runs "bawn ARGS" as the operator and wants it to succeed.
func (v *service) oper(args ...string) string {
	v.t.Helper()
	return v.run(v.s.CommandAs(v.t.Context(), operator.Account, append([]string{operator.Binary}, args...)...))
}

func (v *service) run(cmd *exec.Cmd) string {
	v.t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		v.t.Fatalf("%v: %v:\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// eventually waits for what, half a minute at most.
func (v *service) eventually(what string, ok func() error) {
	v.t.Helper()
	var err error
	for range 300 {
		if err = ok(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	v.t.Fatalf("%s: %v", what, err)
}

// open waits until agents are handed out.
func (v *service) open() {
	v.t.Helper()
	v.eventually("the boundary opens", func() error {
		out, err := v.s.CommandAs(v.t.Context(), operator.Account, operator.Binary, "run", "--agent", "dev", "--", "sh", "-c", code+"https://api.example.com/").CombinedOutput()
		if err != nil || string(out) != "200\n" {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
}

// pid is the main process of a service.
func (v *service) pid(unit string) string {
	v.t.Helper()
	return strings.TrimSpace(v.root("systemctl", "show", "--value", "--property=MainPID", unit))
}

var daemons = []string{"bawn-netd", "bawn-admin", "bawn-proxy"}

// TestUnitsUnderSystemd goes through the life of an installation with the real
// service manager: install, start, an agent that works, each process killed and
// each hung, a stop, an uninstall that leaves nothing.
func TestUnitsUnderSystemd(t *testing.T) {
	v := bootUnits(t)
	before := v.tree()
	v.root(operator.Binary, "install")
	v.root("usermod", "--append", "--groups", "bawn", operator.Account)
	v.root("systemctl", "start", "bawn.target")
	v.oper("agent", "create", "dev", "--user", "alice@example.com")
	cmd := v.s.CommandAs(t.Context(), operator.Account, operator.Binary, "policy", "apply", "-")
	cmd.Stdin = strings.NewReader("version: 1\nprofiles: {coder: {rules: [{host: api.example.com}]}}\nagents: {dev: {profile: coder}}\n")
	v.run(cmd)
	v.works()
	for _, unit := range daemons {
		was := v.pid(unit)
		v.root("kill", "-KILL", was)
		v.eventually(unit+" is started again", func() error {
			if now := v.pid(unit); now == was || now == "0" {
				return fmt.Errorf("its process is %s", now)
			}
			return nil
		})
		v.works()
	}
	if roottest.Count(0, 1) > 0 {
		v.hangs()
	}
	out, err := v.s.Command(t.Context(), operator.Binary, "up").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Bawn runs already as process") {
		t.Errorf("bawn up beside the units: %v: %s", err, out)
	}
	v.root(operator.Binary, "install") // once more, while it runs
	v.works()
	// A second installation beside it, which does not run.
	v.root(operator.Binary, "--root", "/opt/second", "install")
	v.root("test", "-f", "/opt/second/etc/systemd/system/bawn-netd.service")
	v.root(operator.Binary, "--root", "/opt/second", "uninstall", "--purge", "--yes")
	v.root("rmdir", "/opt/second") // it is empty
	v.root(operator.Binary, "uninstall", "--purge", "--yes")
	sameTree(t, before, v.tree())
}

// code is how an agent prints the status of an answer.
const code = `curl -sS -o /dev/null -w '%{http_code}\n' `

// hangs stops each process, and waits for systemd's watchdog: 10 s each.
func (v *service) hangs() {
	v.t.Helper()
	for _, unit := range daemons {
		was := v.pid(unit)
		v.root("kill", "-STOP", was)
		v.eventually(unit+" is started again", func() error {
			if now := v.pid(unit); now == was || now == "0" {
				return fmt.Errorf("its process is %s", now)
			}
			return nil
		})
		v.works()
	}
}

// works has the agent fetch something that it may, and something that not.
func (v *service) works() {
	v.t.Helper()
	v.open()
	out, err := v.s.CommandAs(v.t.Context(), operator.Account, operator.Binary, "run", "--agent", "dev", "--", "sh", "-c", code+"https://files.example.com/").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "403") {
		v.t.Errorf("what is not allowed: %v, %q", err, out)
	}
}

// tree is what an installation could have changed, with owners and modes.
func (v *service) tree() map[string]bool {
	v.t.Helper()
	out := v.root("sh", "-c", `find /etc /var/lib /opt /usr/local /run -xdev \( -path /etc/systemd/system.conf.d -o -path /etc/sysusers.d -empty -o -path '/run/systemd*' -o -name '*-' -o -name .pwd.lock \) -prune -o -printf '%p %M %u %g %l\n'; getent passwd; getent group`)
	lines := map[string]bool{}
	for line := range strings.Lines(out) {
		lines[line] = true
	}
	return lines
}

// sameTree says which lines are only in one of two trees.
func sameTree(t *testing.T, before, after map[string]bool) {
	t.Helper()
	for line := range before {
		if !after[line] {
			t.Errorf("gone: %s", line)
		}
	}
	for line := range after {
		if !before[line] {
			t.Errorf("left: %s", line)
		}
	}
}
