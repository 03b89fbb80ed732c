// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Verb is the first argument with which Bawn's binary must call [Stage].
const Verb = "agent-init"

// The second argument says which half of the stage runs.
const (
	halfRoot  = "root"  // builds the view and gives up root
	halfAgent = "agent" // is the agent's account; starts the command
)

// MaybeStage runs [Stage] and exits if this process was started with the verb
// [Verb]; otherwise it returns at once. Test binaries that start agents call
// it first in TestMain.
func MaybeStage() {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		os.Exit(Stage())
	}
}

// Stage is the verb [Verb]: process 1 of an agent's view. It returns the exit
// status of the process. It is run by [Start] alone; by hand it says so.
func Stage() int {
	if len(os.Args) < 3 || os.Getpid() != 1 {
		fmt.Fprintf(os.Stderr, "bawn: %s is run by Bawn itself, as the first process of an agent\n", Verb)
		return StatusFault
	}
	var err error
	switch half := os.Args[2]; {
	case half == halfRoot && os.Geteuid() == 0:
		err = stageRoot(os.Args[3:])
	case half == halfAgent:
		return stageAgent()
	default:
		err = fmt.Errorf("%s %q as uid %d", Verb, half, os.Geteuid())
	}
	send(controlFD, note{Fault: err.Error(), Status: StatusFault})
	return StatusFault
}

// stageRoot is the first half. It returns only if something failed.
func stageRoot(args []string) error {
	runtime.LockOSThread() // what surrender does is this thread's alone, until it executes the second half
	if len(args) != 1 {
		return errors.New("starting an agent: wrong arguments")
	}
	ownNetwork := args[0] == "netns"
	if n, _, err := receive(controlFD); err != nil || !n.Go {
		return fmt.Errorf("starting an agent: waiting for its cgroups: %w", err)
	}
	spec, err := readSpec(specFD)
	if err != nil {
		return fmt.Errorf("starting an agent: %w", err)
	}
	if err := prepare(spec); err != nil {
		return err
	}
	v := view{spec: spec, files: inherited(spec)}
	if err := v.build(); err != nil {
		return err
	}
	// What lies above is this half's own: mounts by now attached, and whatever
	// the starting process let slip.
	if err := unix.CloseRange(mountsFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing descriptors: %w", needKernel(err, "5.11"))
	}
	if err := surrender(spec, !ownNetwork); err != nil {
		return err
	}
	err = syscall.Exec("/proc/self/exe", []string{"bawn", Verb, halfAgent}, []string{"GOMAXPROCS=1"})
	return fmt.Errorf("starting an agent: executing Bawn's own binary as the agent (it must be executable by everybody): %w", err)
}

// prepare does what only root may do and the view does not need.
func prepare(s *Spec) error {
	// The cgroups are joined by now, so that they are the namespace's roots.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a cgroup namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(s.hostname())); err != nil {
		return fmt.Errorf("setting host name: %w", err)
	}
	// A service's protection against the out-of-memory killer is not an
	// agent's: when memory is short, agents end before Bawn does.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("200"), 0); err != nil {
		return fmt.Errorf("setting out-of-memory score: %w", err)
	}
	// A session keyring of its own; the old one may hold keys of root's.
	const join = 1 // KEYCTL_JOIN_SESSION_KEYRING
	if err := raw(unix.SYS_KEYCTL, join, 0, 0); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("leaving the session keyring: %w", err)
	}
	unix.Umask(0o022)
	return nil
}

// inherited finds the detached mounts among the descriptors, in the order in
// which launch put them there.
func inherited(s *Spec) files {
	next := mountsFD
	take := func(has bool) tree {
		if !has {
			return -1
		}
		next++
		return tree(next - 1)
	}
	f := files{work: take(s.Work != nil), repo: take(s.Repo != nil)}
	for range s.Lends {
		f.lends = append(f.lends, take(true))
	}
	return f
}

// environ returns the value of key in a list of KEY=VALUE; the last one counts.
func environ(env []string, key string) string {
	value := ""
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok && k == key {
			value = v
		}
	}
	return value
}

// statusOf is the exit status that a shell would report.
func statusOf(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return statusSignalBase + int(ws.Signal())
	}
	return ws.ExitStatus()
}
