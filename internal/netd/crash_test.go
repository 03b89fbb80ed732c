// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/ids"
	"bawn/internal/netd"
	"bawn/internal/netd/netdapi"
)

// beVictim is a netd that another process will kill, or ask what it may do.
func beVictim(value string) int {
	words := strings.Split(value, "|")
	o := netd.Options{
		State: words[0], Mark: words[1], AdminUID: adminUID, ProxyUID: proxyUID, Version: "victim",
		Now: time.Now, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if words[3] == "drop" {
		if err := netd.DropCaps(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // it ends with the tests, whatever becomes of them
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	s, err := netd.Open(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l, err := net.Listen("unixpacket", words[2])
	if err == nil {
		err = os.Chmod(words[2], 0o777)
	}
	if err == nil {
		fmt.Println("serving")
		err = s.Serve(ctx, l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startVictim starts a netd in a process of its own, on r's state and mark. r
// then speaks to it.
func startVictim(t *testing.T, mode string) (*rig, *exec.Cmd) {
	t.Helper()
	requirePrivate(t)
	dir, err := os.MkdirTemp("", "bawn-netd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, o: options(t), exits: make(chan netdapi.Exit, 100), sock: filepath.Join(dir, "netd.sock")}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), victimFlag+"="+strings.Join([]string{r.o.State, r.o.Mark, r.sock, mode}, "|"))
	in, err := cmd.StdinPipe() // not Pdeathsig: threads of the tests come and go
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // an orderly end leaves nothing
		cmd.Wait()
		if t.Failed() {
			t.Logf("the victim's log:\n%s", &log)
		}
	})
	if _, err := io.ReadFull(out, make([]byte, 8)); err != nil {
		cmd.Wait()
		t.Fatalf("starting a netd: %v\n%s", err, &log)
	}
	return r, cmd
}

// TestI2NothingOutlivesNetd, and TestI13TheNextStartCleansUp: kill -9 of netd
// ends every agent at once; the next netd removes what is left of them, and
// nothing that is not Bawn's.
func TestI2I13KilledNetd(t *testing.T) {
	r, victim := startVictim(t, "whole")
	_, c, p := prepared(t, r)
	var pids []int
	for _, placement := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		spec := r.spec("/bin/sh", "-c", "setsid sleep 1001 & echo started; exec sleep 1000")
		spec.Placement = placement
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer netdapi.CloseAll(files)
		if _, err := io.ReadFull(files[1], make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range st.Sessions {
		pids = append(pids, s.PID)
	}
	neighbour := neighbourCgroup(t, r.o.Mark)
	victim.Process.Kill()
	victim.Wait()
	p.stop() // the real proxy closes what it was given, too
	for len(p.events) > 0 {
		netdapi.CloseAll((<-p.events).Files)
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("agent %d to die with netd", pid), func() bool {
			return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid)
		})
	}
	if !strings.Contains(r.traces(), "slot-") {
		t.Fatal("the killed netd left nothing to clean up")
	}
	next := startRig(t, r.o)
	if left := next.traces(); strings.Contains(left, "slot-") || !strings.Contains(left, "0 elements") {
		t.Errorf("left:\n%s", left)
	}
	eventually(t, "the temporary directories to be gone", func() bool { return !strings.Contains(next.traces(), "/tmp/") })
	if _, err := os.Stat(neighbour); err != nil {
		t.Errorf("a neighbour's cgroup is gone: %v", err)
	}
	// The same slots can be used again.
	_, c, _ = prepared(t, next)
	for _, placement := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		spec := next.spec("/bin/true")
		spec.Placement = placement
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		netdapi.CloseAll(files)
		if e := next.exit(); e.Status != 0 {
			t.Errorf("exit %+v", e)
		}
	}
	if err := os.Remove(neighbour); err != nil {
		t.Error(err)
	}
	next.stop()
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		if left, _ := filepath.Glob(pattern + r.o.Mark); len(left) > 0 {
			t.Errorf("an orderly end leaves %v", left)
		}
	}
	if out, err := exec.Command("nft", "list", "table", "inet", r.o.Mark).CombinedOutput(); err == nil {
		t.Errorf("an orderly end leaves\n%s", out)
	}
}

// neighbourCgroup makes a cgroup in Bawn's own group that does not carry the
// mark of a slot.
func neighbourCgroup(t *testing.T, mark string) string {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/unified/"} {
		dir := filepath.Join(pattern, mark, "neighbour")
		if os.Mkdir(dir, 0o755) == nil {
			t.Cleanup(func() { os.Remove(dir); os.Remove(filepath.Dir(dir)) })
			return dir
		}
	}
	t.Fatal("no version 2 hierarchy")
	return ""
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestI1FlushedRulesetFreezesSessions: while the rules cannot be put back, the
// sessions of the uid placement stand still, the others go on, and no new one
// starts; then all go on.
func TestI1FlushedRulesetFreezesSessions(t *testing.T) {
	r, c, _ := withAgent(t)
	var beats [2]*os.File
	for i, placement := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		spec := r.spec("/bin/sh", "-c", "while :; do echo beat; sleep 0.02; done")
		spec.Placement = placement
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer netdapi.CloseAll(files)
		beats[i] = files[1]
	}
	hears := func(f *os.File, within time.Duration) bool {
		f.SetReadDeadline(time.Now().Add(within))
		n, _ := f.Read(make([]byte, 64<<10))
		return n > 0
	}
	for i := range beats {
		if !hears(beats[i], 10*time.Second) {
			t.Fatalf("session %d is silent", i)
		}
	}
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Somebody takes the table's name and does not let go: it cannot be put back.
	owner := exec.Command("nft", "-i")
	in, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	release := func() { in.Close(); owner.Wait() }
	lost := func() bool {
		// Until it has won the race against the watcher.
		fmt.Fprintf(in, "delete table inet %s\nadd table inet %s { flags owner ; }\n", r.o.Mark, r.o.Mark)
		st, err := c.Status(t.Context())
		return err == nil && st.Firewall.State == "lost"
	}
	eventually(t, "the firewall to be lost for good", func() bool {
		if !lost() {
			return false
		}
		time.Sleep(300 * time.Millisecond) // longer than the watcher's own look
		st, err := c.Status(t.Context())
		return err == nil && st.Firewall.State == "lost"
	})
	st, err := c.Status(t.Context())
	if err != nil || !st.Sessions[1].Frozen || st.Sessions[0].Frozen {
		t.Errorf("status %+v, %v", st, err)
	}
	for hears(beats[1], 200*time.Millisecond) { // what was in the pipe
	}
	if hears(beats[1], 500*time.Millisecond) {
		t.Error("the session held by uid goes on")
	}
	if !hears(beats[0], 10*time.Second) {
		t.Error("the session in a namespace does not go on")
	}
	spec := r.spec("/bin/true")
	spec.Placement = ids.PlacementUID
	if _, err := c.Start(t.Context(), spec, nil); code(err) != netdapi.CodeUnavailable {
		t.Errorf("starting: %v", err)
	}
	release()
	eventually(t, "the firewall to stand again", func() bool {
		st, err := c.Status(t.Context())
		return err == nil && st.Firewall.State == "standing"
	})
	if !hears(beats[1], 10*time.Second) {
		t.Error("the session held by uid does not go on")
	}
}

// TestNetdKeepsOnlyWhatItUses: with the other capabilities given up, netd and
// its programs still do everything; and every capability that it keeps is one
// that the list gives a reason for.
func TestNetdKeepsOnlyWhatItUses(t *testing.T) {
	r, victim := startVictim(t, "drop")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", victim.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var keep uint64
	for _, k := range netd.Kept() {
		if k.Why == "" {
			t.Errorf("%s is kept without a reason", k.Name)
		}
		keep |= 1 << k.Number
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
		want := fmt.Sprintf("%s:\t%016x\n", set, keep)
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	_, c, _ := prepared(t, r)
	for _, placement := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		for _, tty := range []bool{false, true} {
			dir := t.TempDir()
			os.Chown(dir, otherUID, otherUID)
			f, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			spec := r.spec("/bin/sh", "-c", "echo x > file && exec 3<>/tmp/y && mkdir -m 0 ~/closed && id -u")
			spec.Placement, spec.TTY = placement, tty
			spec.Work = &netdapi.Mount{FD: 0, Path: "/project", OwnerUID: otherUID}
			files, err := c.Start(t.Context(), spec, lent(t, &spec, f))
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			if got := output(t, files); got != fmt.Sprintf("%d\n", devUID) {
				t.Errorf("output %q", got)
			}
			r.exit()
			os.RemoveAll(filepath.Join(r.o.State, "agents/dev/home/closed"))
		}
	}
	spec := r.spec("/bin/sh", "-c", "sleep 1000 & exec sleep 1000")
	files, err := c.Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	netdapi.CloseAll(files)
	if err := c.Stop(t.Context(), spec.Identity.Session); err != nil {
		t.Error(err)
	}
	r.exit()
	if left := r.traces(); strings.Contains(left, "/tmp/") || strings.Contains(left, "slot-") {
		t.Errorf("left:\n%s", left)
	}
	if err := c.CreateAccount(t.Context(), "other", devUID+1); err != nil {
		t.Error(err)
	}
	if err := c.RemoveAccount(t.Context(), "other", devUID+1); err != nil {
		t.Error(err)
	}
}
