// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a wrong use of the command line.
type usageError struct {
	message, hint string
	status        int // 0: statusUsage
}

func (e *usageError) Error() string { return e.message }

// statusUsage is the exit status of wrong use, but for `bawn run`, where a
// status of the program must not be mistaken for it.
const statusUsage = 2

// wrongUse says what is wrong with how cmd was called, and shows its form.
func wrongUse(cmd *cobra.Command, format string, args ...any) error {
	e := &usageError{message: fmt.Sprintf(format, args...), hint: fmt.Sprintf("run %q", cmd.CommandPath()+" --help")}
	if verb := strings.TrimPrefix(cmd.CommandPath(), "bawn "); verb != "bawn" {
		e.message = verb + ": " + e.message
	}
	if cmd.HasParent() && !cmd.HasSubCommands() {
		e.hint = fmt.Sprintf("%s %s (%s)", cmd.Parent().CommandPath(), cmd.Use, e.hint)
	}
	return e
}

// wants takes exactly the named arguments.
func wants(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return wrongUse(cmd, "%s is missing", names[len(args)])
		case len(args) > len(names):
			return wrongUse(cmd, "%q is one argument too many", args[len(names)])
		}
		for i, a := range args {
			if a == "" {
				return wrongUse(cmd, "%s is empty", names[i])
			}
		}
		return nil
	}
}

// group makes cmd one that only holds others: without an argument it shows
// them.
func group(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		message := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+args[0])
		cmd.SuggestionsMinimumDistance = 2 // cobra's own default is set where it prints them itself
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			message += ", did you mean " + strings.Join(near, " or ") + "?"
		}
		return &usageError{message: message, hint: fmt.Sprintf("run %q", cmd.CommandPath()+" --help")}
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// helpCommand is "bawn help", which refuses what it cannot explain.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND...]", Short: "Explain a command", Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return &usageError{message: fmt.Sprintf("help: there is no command %q", "bawn "+strings.Join(args, " ")), hint: `run "bawn --help"`}
			}
			return cmd.Help()
		},
	}
}

// flagError says what is wrong with a flag without the words of the library
// that reads it.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return wrongUse(cmd, "--%s: %q is not a %s", e.GetFlag().Name, e.GetValue(), kind(e.GetFlag().Value.Type()))
	}
	return wrongUse(cmd, "%v", err)
}

// kind is a flag's type in words.
func kind(t string) string {
	switch t {
	case "int":
		return "number"
	case "uint64":
		return "number from 0"
	case "bool":
		return "yes or no (true, false)"
	}
	return t
}

// absoluteRoot makes --root mean one place, whatever directory a process is in.
func absoluteRoot(root string) (string, error) {
	if root == "" {
		return "", &usageError{message: "--root is empty", hint: "name a directory, or leave the flag away"}
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("finding --root %s: %w", root, err)
	}
	return abs, nil
}
