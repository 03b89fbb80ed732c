// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bawn is the boundary for autonomous AI agents: the supervisor, each
// of the processes it starts, and the command line that asks them.
//
// This package holds the verbs and the wiring; it alone knows which concrete
// type meets which interface. A verb that acts goes through the API on
// admin.sock; a verb that only computes calls the pure packages.
//
// Exit status: 0 done, 1 fault, 2 wrong use. `bawn run` has its own, see there.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/client"
	"bawn/internal/config"
	"bawn/internal/proc"
	"bawn/internal/termfilter"
)

// version is set by the linker.
var version = "dev"

func main() {
	proc.MaybeStage() // inside an agent's view nothing else of this program runs
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, unhook: stop}
	root := a.root()
	root.SetArgs(caseFlags(args))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	return a.report(err)
}

// app is what all verbs share.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	unhook func() // gives SIGINT and its like back to the verb
	rootd  string // --root
}

func (a *app) paths() config.Paths    { return config.Paths{Root: a.rootd} }
func (a *app) client() *client.Client { return client.New(a.paths().AdminSock()) }

func (a *app) root() *cobra.Command {
	root := group(&cobra.Command{
		Use:           "bawn",
		Short:         "The boundary for autonomous AI agents",
		Long:          "Bawn holds autonomous agents behind one gate: their own account, their own network\nplace, and an egress proxy that judges every request and keeps it on record.\n\n\"bawn completion bash\" (or zsh, fish) prints what a shell needs to complete commands\nand names of agents.",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			a.rootd, err = absoluteRoot(a.rootd)
			return err
		},
	},
		a.upCommand(), a.statusCommand(), a.doctorCommand(),
		a.agentCommand(), a.policyCommand(), a.runCommand(), a.logCommand(), a.budgetCommand(), a.metricsCommand(), a.whoCommand(), a.usageCommand(), a.reportCommand(), a.auditCommand(), a.codesCommand(),
		a.allowCommand(), a.grantsCommand(), a.revokeCommand(),
		a.installCommand(), a.uninstallCommand(), a.backupCommand(), a.restoreCommand(),
		a.netdCommand(), a.adminCommand(), a.proxyCommand(), a.probeCommand(),
		a.handoverCommand(), a.selftestCommand(), a.manualCommand(),
	)
	root.CompletionOptions.HiddenDefaultCmd = true
	a.complete(root)
	root.PersistentFlags().StringVar(&a.rootd, "root", "/", "`DIR` that everything of this installation is under")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand(root))
	return root
}

// statusError ends the process with a status and prints nothing more.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// report prints err for a person and returns the exit status.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[*statusError](err); ok {
		return s.status
	}
	status, message, hint := 1, err.Error(), ""
	if u, ok := errors.AsType[*usageError](err); ok {
		status, hint = cmp.Or(u.status, statusUsage), u.hint
	} else if e, ok := errors.AsType[*apitype.Error](err); ok {
		hint = e.Hint
	}
	printError(a.stderr, message, hint)
	return status
}

// printError prints a message that may quote what an agent wrote.
func printError(w io.Writer, message, hint string) {
	for i, line := range strings.Split(message, "\n") {
		prefix := "bawn: "
		if i > 0 {
			prefix = "      "
		}
		fmt.Fprintln(w, prefix+termfilter.Line(line))
	}
	if hint != "" {
		fmt.Fprintln(w, "hint: "+termfilter.Line(hint))
	}
}
