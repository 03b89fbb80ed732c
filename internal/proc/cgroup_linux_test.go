// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/proc"
	"bawn/internal/roottest"
)

// newCgroups makes groups of a name that no other test has.
func newCgroups(t *testing.T) (*proc.Cgroups, string) {
	t.Helper()
	roottest.Require(t)
	root := fmt.Sprintf("bawn-t%dx%d", os.Getpid(), time.Now().UnixNano()%1e9)
	c, err := proc.OpenCgroups(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Leftovers(); err != nil {
			t.Error(err)
		}
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
		if left := groupDirs(t, root); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
	})
	return c, root
}

// groupDirs finds the directories of a group in whatever hierarchies there are.
func groupDirs(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		dirs, err := filepath.Glob(pattern + path)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// sleeper starts a process that does nothing and is reaped as soon as it ends:
// a zombie would stay in its group.
func sleeper(t *testing.T) (pid int, ended <-chan struct{}) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
	})
	return cmd.Process.Pid, done
}

func TestCgroupsHoldLimits(t *testing.T) {
	c, root := newCgroups(t)
	if _, err := c.New(7, proc.Limits{PIDs: 33, MemoryBytes: 64 << 20, CPUPercent: 50}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"pids": "33", "memory": fmt.Sprint(64 << 20), "cpu": "50000",
	}
	files := []string{"pids.max", "memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us"}
	for _, dir := range groupDirs(t, root+"/slot-7") {
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(dir, f))
			if err != nil {
				continue
			}
			kind, _, _ := strings.Cut(f, ".")
			if got := strings.Fields(string(text))[0]; got == want[kind] {
				delete(want, kind)
			} else if got != "max" && got != "-1" {
				t.Errorf("%s/%s is %q", dir, f, got)
			}
		}
	}
	for kind := range want {
		if !slices.Contains(c.Unenforced(), kind) {
			t.Errorf("no limit for %s, and Unenforced does not say so: %s", kind, c.Unenforced())
		}
	}
}

func TestASlotsCgroupsAreNewOrNothing(t *testing.T) {
	c, root := newCgroups(t)
	first, err := c.New(1, proc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.New(1, proc.Limits{}); err == nil || !strings.Contains(err.Error(), "slot 1") {
		t.Errorf("second group of the slot: %v", err)
	}
	if len(groupDirs(t, root+"/slot-1")) == 0 {
		t.Error("the refusal removed the group that was there")
	}
	// A controller refuses a limit: what was made is taken apart.
	if _, err := c.New(2, proc.Limits{PIDs: 1 << 40}); err == nil {
		t.Error("an impossible limit was taken")
	}
	if left := groupDirs(t, root+"/slot-2"); len(left) > 0 {
		t.Errorf("left: %s", left)
	}
	if err := first.Remove(); err != nil {
		t.Error(err)
	}
	if err := first.Remove(); err != nil {
		t.Errorf("removing twice: %v", err)
	}
}

func TestKillEndsEveryProcess(t *testing.T) {
	c, _ := newCgroups(t)
	g, err := c.New(1, proc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		pid, _ := sleeper(t)
		if err := g.Add(pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func TestI1FreezeStopsAndThawLetsGo(t *testing.T) {
	c, _ := newCgroups(t)
	g, err := c.New(1, proc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := sleeper(t)
	if err := g.Add(pid); err != nil {
		t.Fatal(err)
	}
	wait := func(want bool) {
		t.Helper()
		for {
			frozen, err := g.Frozen()
			if err != nil {
				t.Fatal(err)
			}
			if frozen == want {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	if err := g.Freeze(); err != nil {
		t.Fatal(err)
	}
	wait(true)
	if err := g.Thaw(); err != nil {
		t.Fatal(err)
	}
	wait(false)
	if err := g.Freeze(); err != nil {
		t.Fatal(err)
	}
	wait(true)
	if err := g.Kill(); err != nil { // a frozen session can be ended
		t.Fatal(err)
	}
}

func TestI13LeftoversTouchOnlyTheMark(t *testing.T) {
	c, root := newCgroups(t)
	g, err := c.New(3, proc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	pid, killed := sleeper(t)
	if err := g.Add(pid); err != nil {
		t.Fatal(err)
	}
	foreign := groupDirs(t, root)[0] + "/mine"
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(foreign)
	again, err := proc.OpenCgroups(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Leftovers(); err != nil {
		t.Fatal(err)
	}
	<-killed
	if dirs := groupDirs(t, root+"/slot-3"); len(dirs) > 0 {
		t.Errorf("left: %s", dirs)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("somebody else's group: %v", err)
	}
}

func TestPathAndIDNameTheSameGroup(t *testing.T) {
	c, root := newCgroups(t)
	g, err := c.New(9, proc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p, ok := g.Path()
	if !ok {
		roottest.Skip(t, "needs a cgroup hierarchy of version 2")
	}
	if want := root + "/slot-9"; p != want {
		t.Errorf("path %q, want %q", p, want)
	}
	if id, err := g.ID(); err != nil || id == 0 {
		t.Errorf("id %d, %v", id, err)
	}
}

func TestCgroupNamesCannotLeaveTheTree(t *testing.T) {
	for _, root := range []string{"", "..", "bawn/..", "system.slice", "bawn-", "bawn-a/b"} {
		if _, err := proc.OpenCgroups(root); err == nil {
			t.Errorf("%q was taken", root)
		}
	}
}
