// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/client"
	"bawn/internal/fdpass"
	"bawn/internal/ids"
	"bawn/internal/termfilter"
	"bawn/internal/terminal"
)

// The statuses of `bawn run` that are not the command's. 126 and 127 are also
// those of a command that cannot be executed, and of one that is not there, as
// in a shell (POSIX, Shell Command Language 2.8.2).
const (
	statusFault   = 125 // Bawn could not run it, or was called wrongly
	statusRefused = 126 // the operator may not
)

// runFlags are what `bawn run` was told.
type runFlags struct {
	agent, placement string
	work, repo       string
	lends, publish   []string
	env              []string
	noTTY            bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a program as an agent",
		Long: `Run a program as an agent: under the agent's account, in its own network place,
whose only way out is Bawn's proxy.

The agent sees the programs of the system, and none of yours unless you lend
their directory. Without --work and --repo it works in a workspace of its own,
which stays from one run to the next. The run ends when you end this command.

Exit status: the command's; 128+n when signal n ended it; 125 when Bawn could
not run it; 126 when you may not, or the command cannot be executed; 127 when
the agent has no such command.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return runUse(wrongUse(cmd, "COMMAND is missing"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.work != "" && f.repo != "" {
				return runUse(wrongUse(cmd, "--work and --repo do not go together: the workspace is a directory of yours or a clone"))
			}
			status, err := a.run(cmd.Context(), f, args)
			if err != nil {
				a.report(err)
			}
			if status != 0 {
				return &statusError{status}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.agent, "agent", "", "`NAME` of the agent to run as (default: the only one)")
	fl.StringVar(&f.placement, "placement", "", "`PLACEMENT`: netns or uid (default: the agent's own)")
	fl.StringVar(&f.work, "work", "", "`DIR` of yours as the workspace, read and write")
	fl.StringVar(&f.repo, "repo", "", "clone the repository in `DIR` into the agent's workspace")
	fl.StringArrayVar(&f.lends, "lend", nil, "`DIR` of yours that the agent may read, at the same path (repeatable)")
	fl.StringArrayVar(&f.publish, "publish", nil, "`HOSTPORT:PORT`: lend the agent's port to your loopback (repeatable)")
	fl.StringArrayVar(&f.env, "env", nil, "`KEY=VALUE` for the program (repeatable)")
	fl.BoolVar(&f.noTTY, "no-tty", false, "pipes instead of a terminal")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return runUse(flagError(cmd, err)) })
	return cmd
}

// runUse gives wrong use of `bawn run` the status that no command can have by
// itself.
func runUse(err error) error {
	if u, ok := errors.AsType[*usageError](err); ok {
		u.status = statusFault
	}
	return err
}

func (a *app) run(ctx context.Context, f runFlags, argv []string) (int, error) {
	ctx = context.WithoutCancel(ctx) // unhook ends it
	a.unhook()                       // signals are the program's from here on
	std := terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	f.warn(a.stderr)
	start, files, err := f.start(argv)
	defer fdpass.CloseAll(files)
	if err != nil {
		return statusFault, err
	}
	for _, d := range files {
		if to, elsewhere := leads(d); elsewhere {
			fmt.Fprintf(a.stderr, "bawn: %s leads to %s\n", termfilter.Line(d.Name()), termfilter.Line(to))
		}
	}
	start.TTY = std.Interactive() && !f.noTTY
	start.Rows, start.Cols = std.Size()
	pubs, err := listenAll(f.publish, &start)
	defer closeAll(pubs)
	if err != nil {
		return statusFault, err
	}
	s, err := a.client().StartSession(ctx, start, files)
	if err != nil {
		return statusOf(err), err
	}
	defer s.Close()
	a.introduce(s, pubs)
	exit := terminal.Attach(ctx, s, std, start.TTY)
	if exit.Fault != "" {
		return exit.Status, errors.New(exit.Fault)
	}
	return exit.Status, nil
}

// statusOf tells a refusal from a fault.
func statusOf(err error) int {
	if e, ok := errors.AsType[*apitype.Error](err); ok && e.Status == http.StatusForbidden {
		return statusRefused
	}
	return statusFault
}

// introduce prints what the operator should know before the program's own
// output, and serves the published ports.
func (a *app) introduce(s *client.Session, pubs []*terminal.Publication) {
	for _, n := range s.Started.Notices {
		fmt.Fprintln(a.stderr, "bawn: "+termfilter.Line(n))
	}
	for _, p := range pubs {
		fmt.Fprintf(a.stderr, "bawn: port %d of the agent is at 127.0.0.1:%d\n", p.AgentPort, p.HostPort)
		go p.Serve(s.Dial)
	}
}

// warn says what an operator may not have thought of.
func (f runFlags) warn(out io.Writer) {
	for _, l := range f.lends {
		if notHome(l) != nil {
			fmt.Fprintf(out, "bawn: --lend %s holds your home: the agent can read the keys and tokens in it\n", termfilter.Line(l))
		}
	}
}

// start opens what the flags name. The caller closes the files, also after an
// error.
func (f runFlags) start(argv []string) (s apitype.StartSession, files []*os.File, err error) {
	s = apitype.StartSession{Agent: f.agent, Placement: ids.Placement(f.placement), Argv: argv, Env: passEnv(os.Environ())}
	for _, kv := range f.env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			return s, files, &usageError{message: fmt.Sprintf("run: --env %q: not KEY=VALUE", kv), hint: `"--env KEY=\"$KEY\"" passes a variable of yours on`}
		}
		s.Env = append(s.Env, kv)
	}
	take := func(d apitype.Directory, file *os.File, err error) (*apitype.Directory, error) {
		if err != nil {
			return nil, err
		}
		d.File = len(files)
		files = append(files, file)
		return &d, nil
	}
	if f.work != "" {
		if s.Work, err = take(openDir(f.work)); err == nil {
			err = notHome(s.Work.Path)
		}
		if err != nil {
			return s, files, fmt.Errorf("run: --work: %w", err)
		}
	}
	if f.repo != "" {
		if s.Repo, err = take(openRepo(f.repo)); err != nil {
			return s, files, fmt.Errorf("run: --repo: %w", err)
		}
	}
	for _, l := range f.lends {
		d, err := take(openDir(l))
		if err != nil {
			return s, files, fmt.Errorf("run: --lend: %w", err)
		}
		s.Lends = append(s.Lends, *d)
	}
	if len(files) == 0 {
		return s, files, nil
	}
	proof, err := prove(files, s.Work)
	if err != nil {
		return s, files, err
	}
	n := len(files)
	s.Proof = &n
	return s, append(files, proof), nil
}

// passEnv keeps what a terminal program needs of the operator's environment.
// Everything else stays outside: environments hold secrets.
func passEnv(env []string) []string {
	pass := []string{"TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "NO_COLOR"}
	var kept []string
	for _, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		if slices.Contains(pass, k) || strings.HasPrefix(k, "LC_") {
			kept = append(kept, kv)
		}
	}
	return kept
}

func listenAll(flags []string, start *apitype.StartSession) (pubs []*terminal.Publication, err error) {
	for _, s := range flags {
		p, err := terminal.ParsePublication(s)
		if err != nil {
			return pubs, err
		}
		if err := p.Listen(); err != nil {
			return pubs, err
		}
		pubs = append(pubs, &p)
		start.Ports = append(start.Ports, p.AgentPort)
	}
	return pubs, nil
}

func closeAll(pubs []*terminal.Publication) {
	for _, p := range pubs {
		p.Close()
	}
}
