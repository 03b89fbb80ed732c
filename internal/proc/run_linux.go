// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// gitConfigPath is read by the one git that clones [RepoPath]: the repository's
// files may have an owner that git would not trust. Later commands do not see
// it.
const gitConfigPath = "/run/bawn/gitconfig"

// stageAgent is the second half of the stage: process 1, as the agent's
// account.
func stageAgent() int {
	// Nobody, and so not the agent either, may look into this process: it holds
	// the control socket.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fault(StatusFault, fmt.Errorf("protecting process 1: %w", err))
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fault(StatusFault, fmt.Errorf("closing descriptors: %w", err))
	}
	spec, err := readSpec(specFD)
	if err != nil {
		return fault(StatusFault, err)
	}
	unix.Close(specFD)
	r, err := newRunner(spec)
	if err != nil {
		return fault(StatusFault, err)
	}
	status, err := r.run()
	if err != nil {
		return fault(status, err)
	}
	send(controlFD, note{Exit: true, Status: status})
	return 0
}

// fault reports that the command will not run.
func fault(status int, err error) int {
	send(controlFD, note{Fault: err.Error(), Status: status})
	return StatusFault
}

// A runner starts the command and what comes before it, one after the other.
type runner struct {
	spec  *Spec
	stdio []uintptr // of what it starts
	ended chan ended
	notes chan note
	sigs  chan os.Signal
}

// ended is one process that was reaped.
type ended struct {
	pid    int
	status unix.WaitStatus
}

// newRunner opens the terminal and tells the starting process that the session
// stands.
func newRunner(spec *Spec) (*runner, error) {
	r := &runner{
		spec:  spec,
		stdio: []uintptr{0, 1, 2},
		ended: make(chan ended),
		notes: make(chan note),
		sigs:  make(chan os.Signal, 16),
	}
	// Caught signals are at their defaults in what is started, also where the
	// starting process was told to ignore them. Of what is caught here, only a
	// command's own signals are passed on.
	signal.Notify(r.sigs, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE, unix.SIGALRM)
	if !spec.TTY {
		return r, send(controlFD, note{Ready: true})
	}
	master, slave, err := openTerminal(spec.Rows, spec.Cols)
	if err != nil {
		return nil, err
	}
	r.stdio = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
	err = send(controlFD, note{Ready: true}, master)
	unix.Close(master)
	return r, err
}

// openTerminal opens a terminal of the view's own instance.
func openTerminal(rows, cols uint16) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("opening a terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, fmt.Errorf("unlocking a terminal: %w", err)
	}
	// Without NOCTTY it would become the terminal of this process's session.
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return -1, -1, fmt.Errorf("opening a terminal: %w", errno)
	}
	slave = int(fd)
	size := unix.Winsize{Row: rows, Col: cols}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &size); err != nil {
		return -1, -1, fmt.Errorf("sizing a terminal: %w", err)
	}
	return master, slave, nil
}

// run clones the repository if there is one, runs the command and returns its
// status. With an error the command did not run.
func (r *runner) run() (int, error) {
	go r.listen()
	dir := r.spec.Dir
	if dir == "" {
		dir = r.spec.workPath()
	}
	if r.spec.Repo != nil {
		clone, err := r.clone()
		if err != nil {
			return StatusFault, err
		}
		if r.spec.Dir == "" {
			dir = clone
		}
	}
	program, argv := "/proc/self/exe", append([]string{"bawn"}, r.spec.Exec...)
	if len(r.spec.Exec) == 0 {
		var problem *commandProblem
		if program, problem = find(r.spec, dir); problem != nil {
			return problem.status, problem
		}
		argv = r.spec.Argv
	}
	pid, err := r.start(program, argv, dir, r.spec.Env)
	if err != nil {
		return StatusNoExec, explain(argv[0], program, dir, err)
	}
	r.letGo()
	return r.await(pid), nil
}

// letGo closes what the command has now, so that its reader sees the end of its
// output when the last of the command's own processes has ended.
func (r *runner) letGo() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for _, fd := range r.stdio {
		unix.Dup3(null, int(fd), unix.O_CLOEXEC)
	}
	unix.Close(null)
}

// start starts a program in a session of its own, on the terminal if there is
// one.
func (r *runner) start(program string, argv []string, dir string, env []string) (int, error) {
	return syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: r.stdio,
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: r.spec.TTY, Ctty: 0},
	})
}

// await reaps whatever ends, passes signals on, and returns the status of pid.
// The end of the control socket ends the process at once.
func (r *runner) await(pid int) int {
	go r.reap()
	for {
		select {
		case e := <-r.ended:
			if e.pid == pid {
				return statusOf(e.status)
			}
		case s := <-r.sigs:
			if n, ok := s.(syscall.Signal); ok && passedOn(n) {
				unix.Kill(-pid, n)
			}
		case n := <-r.notes:
			if n.Signal > 0 {
				unix.Kill(-pid, unix.Signal(n.Signal))
			}
		}
	}
}

// passedOn reports whether a signal to process 1 is meant for the command.
func passedOn(s syscall.Signal) bool {
	switch s {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2:
		return true
	}
	return false
}

// reap waits for every child of process 1, its own and those left to it, until
// none is left.
func (r *runner) reap() {
	for {
		var e ended
		var err error
		e.pid, err = unix.Wait4(-1, &e.status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		default:
			r.ended <- e
		}
	}
}

// listen takes notes from the starting process. When that has gone, so has the
// reason to run.
func (r *runner) listen() {
	for {
		n, file, err := receive(controlFD)
		if err != nil {
			os.Exit(StatusFault)
		}
		if file >= 0 {
			unix.Close(file)
		}
		r.notes <- n
	}
}

// clone copies the repository into the workspace, as the agent, unless it was
// copied before. It returns the copy's directory.
func (r *runner) clone() (string, error) {
	name := path.Base(r.spec.Repo.Path)
	to := path.Join(r.spec.workPath(), name)
	if _, err := os.Lstat(to); err == nil {
		r.say("%s is there already, and is used as it is", to)
		return to, nil
	}
	git, problem := find(&Spec{Argv: []string{"git"}, Env: r.spec.Env}, "/")
	if problem != nil {
		return "", fmt.Errorf("cloning %s: %w", r.spec.Repo.Path, problem)
	}
	env := append(r.spec.Env[:len(r.spec.Env):len(r.spec.Env)], "GIT_CONFIG_GLOBAL="+gitConfigPath, "GIT_TERMINAL_PROMPT=0")
	pid, err := r.start(git, []string{"git", "clone", "--", RepoPath, to}, r.spec.workPath(), env)
	if err != nil {
		return "", fmt.Errorf("cloning %s: %w", r.spec.Repo.Path, err)
	}
	if status := r.await(pid); status != 0 {
		return "", fmt.Errorf("cloning %s: git ended with status %d", r.spec.Repo.Path, status)
	}
	return to, nil
}

// say tells the operator something where the command's output goes.
func (r *runner) say(format string, args ...any) {
	text := "bawn: " + fmt.Sprintf(format, args...) + "\n"
	if r.spec.TTY {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	unix.Write(int(r.stdio[2]), []byte(text))
}
