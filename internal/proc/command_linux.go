// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// A commandProblem says why a command cannot run, and what the operator can do.
type commandProblem struct {
	status int // what a shell would report
	text   string
}

// Error says it in words for the operator.
func (p *commandProblem) Error() string { return p.text }

func notFound(format string, args ...any) *commandProblem {
	return &commandProblem{StatusNotFound, fmt.Sprintf(format, args...)}
}

// find looks the command up as execvp(3) does, in the view and with the agent's
// PATH. dir is where relative names begin.
func find(s *Spec, dir string) (string, *commandProblem) {
	name := s.Argv[0]
	if strings.Contains(name, "/") {
		p := name
		if !path.IsAbs(p) {
			p = path.Join(dir, p)
		}
		return p, judge(name, p)
	}
	search := environ(s.Env, "PATH")
	var unusable *commandProblem
	for d := range strings.SplitSeq(search, ":") {
		if !path.IsAbs(d) {
			continue // the workspace is the agent's own: nothing is taken from it by a bare name
		}
		p := path.Join(d, name)
		problem := judge(name, p)
		if problem == nil {
			return p, nil
		}
		if _, err := os.Lstat(p); err == nil && unusable == nil {
			unusable = problem
		}
	}
	if unusable != nil {
		return "", unusable
	}
	return "", notFound("command %q: not found in the agent's PATH (%s). Programs under your own home are not in the agent's view: "+
		"lend their directory with --lend DIR", name, search)
}

// judge reports why the file p cannot be executed by this account; nil if it
// can.
func judge(name, p string) *commandProblem {
	st, err := os.Stat(p)
	if errors.Is(err, os.ErrNotExist) {
		if target, err := os.Readlink(p); err == nil {
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(p), target)
			}
			return notFound("command %q: %s leads to %s, which is not in the agent's view: lend its directory with --lend %s",
				name, p, target, path.Dir(target))
		}
		return notFound("command %q: %s is not in the agent's view. If it is there on the host, lend its directory with --lend %s",
			name, p, path.Dir(p))
	}
	if err != nil {
		return &commandProblem{StatusNoExec, fmt.Sprintf("command %q: the agent's account cannot reach %s (%v): "+
			"lend its directory with --lend %s, or install it for everybody", name, p, errors.Unwrap(err), path.Dir(p))}
	}
	if st.IsDir() {
		return &commandProblem{StatusNoExec, fmt.Sprintf("command %q: %s is a directory", name, p)}
	}
	if unix.Access(p, unix.X_OK) != nil {
		return &commandProblem{StatusNoExec, fmt.Sprintf("command %q: %s is not executable by the agent's account", name, p)}
	}
	return nil
}

// explain turns the kernel's error of starting program into words.
func explain(name, program, dir string, err error) error {
	if st, serr := os.Stat(dir); serr != nil || !st.IsDir() {
		return fmt.Errorf("command %q: working directory %s is not in the agent's view", name, dir)
	}
	switch interpreter := interpreterOf(program); {
	case errors.Is(err, unix.ENOENT) && interpreter != "":
		return fmt.Errorf("command %q: %s is run by %s, which is not in the agent's view: lend its directory with --lend %s",
			name, program, interpreter, path.Dir(interpreter))
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("command %q: %s needs a loader that is not in the agent's view: %w", name, program, err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("command %q: %s is not a program: %w", name, program, err)
	}
	return fmt.Errorf("command %q: starting %s: %w", name, program, err)
}

// interpreterOf returns the program that a script's first line names.
func interpreterOf(script string) string {
	f, err := os.Open(script)
	if err != nil {
		return ""
	}
	defer f.Close()
	const longest = 256 // BINPRM_BUF_SIZE
	line, _ := bufio.NewReader(io.LimitReader(f, longest)).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	if fields := strings.Fields(rest); ok && len(fields) > 0 {
		return fields[0]
	}
	return ""
}
