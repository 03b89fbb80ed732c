// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bawn/internal/netkern"
	"bawn/internal/proc"
)

// The process's first thread stays in its namespace: /proc/self stands for it.
func init() { runtime.LockOSThread() }

// Environment variables that say what this run of the test binary is.
const (
	privateFlag = "BAWN_NETD_PRIVATE" // the tests, in namespaces of their own
	victimFlag  = "BAWN_NETD_VICTIM"  // a netd that is going to be killed; the value is its state directory
)

// TestMain runs the tests, where it is root, in a mount and a network namespace
// of their own, with a copy of /etc: accounts, firewall and mounts leave
// nothing behind.
func TestMain(m *testing.M) {
	proc.MaybeStage()
	switch {
	case os.Getenv(victimFlag) != "":
		os.Exit(beVictim(os.Getenv(victimFlag)))
	case os.Geteuid() != 0 || os.Getenv(privateFlag) != "":
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), privateFlag+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// private makes /etc this process's own and brings the loopback interface up.
// It is called by the first test that needs it.
func private() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	upper, err := os.MkdirTemp("", "bawn-netd-etc")
	if err != nil {
		return err
	}
	defer os.Remove(upper)
	if err := unix.Mount("tmpfs", upper, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs: %w", err)
	}
	if out, err := exec.Command("cp", "-a", "/etc/.", upper).CombinedOutput(); err != nil {
		return fmt.Errorf("copying /etc: %w: %s", err, out)
	}
	if err := unix.Mount(upper, "/etc", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting over /etc: %w", err)
	}
	if err := unix.Unmount(upper, 0); err != nil {
		return err
	}
	return netkern.LoopbackUp()
}
