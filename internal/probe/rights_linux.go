// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownFile looks whether a file or directory of Bawn's own is to be seen, and
// whether it can be read, written or replaced.
func ownFile(name string) trial {
	return func(context.Context) Try {
		t := Try{Check: CheckOwnFiles, Target: name, Outcome: Blocked}
		info, err := os.Stat(name)
		if err != nil {
			t.Detail = reasonOf(err)
			return t
		}
		if what := reach(name, info); what != "" {
			t.Outcome, t.Detail = GotOut, what
		} else {
			t.Detail = "seen, and closed"
		}
		return t
	}
}

// reach says what could be done to name. Nothing is changed.
func reach(name string, info fs.FileInfo) string {
	for _, way := range []struct {
		word string
		mode uint32
	}{{"writable", unix.W_OK}, {"readable", unix.R_OK}} {
		if unix.Access(name, way.mode) == nil {
			return way.word
		}
	}
	if !info.IsDir() && unix.Access(filepath.Dir(name), unix.W_OK) == nil {
		return "replaceable"
	}
	return ""
}

func reasonOf(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return err.Error()
}

// rightsTrials look for a way to have something done with another account's
// rights.
func (p *prober) rightsTrials() []trial {
	list := []trial{onlyOwnProcesses, noNewRights, p.elevated("sudo", "-n", "true"),
		p.elevated("systemd-run", "--no-ask-password", "--quiet", "true"), p.elevated("loginctl", "--no-ask-password", "list-users"),
		p.elevated("pkexec", "--disable-internal-agent", "true")}
	for _, dir := range []string{"/tmp", os.Getenv("HOME"), "/dev/shm", "/run/user/" + strconv.Itoa(os.Getuid())} {
		if dir != "" {
			list = append(list, withoutSetID(dir))
		}
	}
	for _, dir := range p.Spools {
		list = append(list, spool(dir))
	}
	return list
}

// noNewRights looks whether programs with set-id bits lend nothing.
func noNewRights(context.Context) Try {
	t := Try{Check: CheckRights, Target: "no_new_privs", Outcome: Blocked}
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || set != 1 {
		t.Outcome, t.Detail = GotOut, "not in effect"
	}
	return t
}

// withoutSetID looks whether a directory of the agent's own is on a file system
// that honours set-id bits.
func withoutSetID(dir string) trial {
	return func(context.Context) Try {
		t := Try{Check: CheckRights, Target: "set-id bits in " + dir, Outcome: Blocked}
		var st unix.Statfs_t
		switch err := unix.Statfs(dir, &st); {
		case err != nil:
			t.Detail = err.Error()
		case st.Flags&unix.ST_NOSUID == 0:
			t.Outcome, t.Detail = GotOut, "the file system honours them"
		}
		return t
	}
}

// spool looks whether a directory that another account's daemon reads takes
// files.
func spool(dir string) trial {
	return func(context.Context) Try {
		t := Try{Check: CheckRights, Target: dir, Outcome: Blocked}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			t.Detail = err.Error()
		} else {
			t.Outcome, t.Detail = GotOut, "writable"
		}
		return t
	}
}

// elevated runs a program that would do something as root; what it does is
// nothing, or to the agent's own account alone.
func (p *prober) elevated(name string, args ...string) trial {
	return func(ctx context.Context) Try {
		t := Try{Check: CheckRights, Target: strings.Join(append([]string{name}, args...), " "), Outcome: Blocked}
		path, err := exec.LookPath(name)
		if err != nil {
			t.Detail = "there is no such program"
			return t
		}
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL} // no terminal to ask for a password on
		if err := cmd.Run(); err != nil {
			t.Detail = err.Error()
			return t
		}
		t.Outcome, t.Detail = GotOut, "done"
		return t
	}
}

// onlyOwnProcesses looks whether /proc shows the session's processes alone.
func onlyOwnProcesses(context.Context) Try {
	t := Try{Check: CheckOthers, Target: "/proc", Outcome: Blocked}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Outcome, t.Detail = GotOut, reasonOf(err)
		return t
	}
	seen := 0
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		seen++
		if what := foreign(pid); what != "" {
			t.Outcome, t.Detail = GotOut, fmt.Sprintf("process %d %s", pid, what)
			return t
		}
	}
	t.Detail = fmt.Sprintf("%d processes, all of this session", seen)
	return t
}

// foreign says what shows that a process is none of this session. Process 1 is
// Bawn's own, and may not be looked into though it has the agent's uid.
func foreign(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "" // gone meanwhile
	}
	if uid := statusField(string(text), "Uid"); uid != strconv.Itoa(os.Getuid()) {
		return "is uid " + uid + "'s"
	}
	if pid != 1 {
		return ""
	}
	for _, name := range []string{"exe", "root", "cwd", "fd/0"} {
		if link, err := os.Readlink("/proc/1/" + name); err == nil {
			return "lets its " + name + " be read: " + link
		}
	}
	for _, name := range []string{"environ", "mem", "maps"} {
		f, err := os.Open("/proc/1/" + name)
		if err != nil {
			continue
		}
		f.Close()
		return "lets its " + name + " be opened"
	}
	return ""
}

// statusField is the first word of a field of /proc/PID/status.
func statusField(text, field string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				return f[0]
			}
		}
	}
	return ""
}
