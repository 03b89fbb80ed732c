// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// Verb is the first argument with which Bawn's binary must call [Stage].
const Verb = "agent-init"

// A Child is one running session.
type Child struct {
	// Master is the terminal's controlling side, for a Spec with TTY.
	Master *os.File
	// Stdin, Stdout and Stderr are the far ends of the pipes otherwise.
	Stdin, Stdout, Stderr *os.File
}

// An Exit says how a session ended.
type Exit struct {
	Status int    // the command's status, 128+n when signal n killed it
	Fault  string // set when the command never ran: what Bawn could not do
}

// Start runs spec in the network namespace netns (nil: the caller's own, for
// the uid placement) and in the cgroups of group (nil: the caller's own). It
// returns once the view stands and the program is about to be started; what
// fails later is the Fault of [Child.Wait]. ctx bounds the start alone.
func Start(ctx context.Context, spec Spec, netns *os.File, group *Cgroup) (*Child, error) {
	return nil, errors.New("not built yet")
}

// PID is the session's process 1 as this process sees it.
func (c *Child) PID() int { return 0 }

// Signal passes sig to the command's process group; SIGKILL ends the session.
func (c *Child) Signal(sig syscall.Signal) error { return nil }

// Kill ends the session and every process in it.
func (c *Child) Kill() error { return nil }

// Done is closed when the session has ended and no process of it is left.
func (c *Child) Done() <-chan struct{} { return nil }

// Wait blocks until Done is closed and tells how the session ended. It may be
// called more than once.
func (c *Child) Wait() Exit { return Exit{} }

// Close kills what still runs, waits for the end, closes the descriptors and
// removes the session's temporary directory. It may be called more than once.
func (c *Child) Close() error { return nil }

// Stage is the verb [Verb]: process 1 of an agent's view. It returns the exit
// status of the process.
func Stage() int { return StatusFault }

// MaybeStage runs [Stage] and exits if this process was started with the verb
// [Verb]; otherwise it returns at once. Test binaries that start agents call
// it first in TestMain.
func MaybeStage() {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		os.Exit(Stage())
	}
}

// RemoveLeftTemps removes the temporary directories that a crashed run left
// below state. No session may be running.
func RemoveLeftTemps(state string) error { return nil }
