// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/casetest"
	"bawn/internal/termfilter"
)

func (a *app) policyCommand() *cobra.Command {
	return group(&cobra.Command{Use: "policy", Short: "Check, apply, show, explain, test, compare and roll back policy"},
		a.policyApply(), a.policyCheck(), a.policyShow(), a.policyExplain(), a.policyTest(), a.policyDiff(), a.policyReplay(), a.policySuggest(),
		a.policyRollback(), a.policyRevisions())
}

func (a *app) policyApply() *cobra.Command {
	var p apitype.ApplyPolicy
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: `Put a policy in force; returns when no plane judges by an older one ("-" reads standard input)`,
		Args:  wants("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.read(args[0])
			if err != nil {
				return fmt.Errorf("reading policy: %w", err)
			}
			p.YAML = string(text)
			done, err := a.client().ApplyPolicy(cmd.Context(), p)
			if err != nil {
				return err
			}
			a.printApplied(done)
			return nil
		},
	}
	cmd.Flags().StringVar(&p.Why, "why", "", "`REASON`, kept with the revision")
	cmd.Flags().Uint64Var(&p.Base, "base", 0, "refuse unless revision `N` is the one in force")
	return cmd
}

// maxPolicy bounds what is read of a policy file, in bytes.
const maxPolicy = 1 << 20

func (a *app) read(name string) ([]byte, error) {
	in := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPolicy+1))
	if err == nil && len(text) > maxPolicy {
		err = fmt.Errorf("%s: larger than %d bytes, the most that a policy may have", name, maxPolicy)
	}
	return text, err
}

func (a *app) printApplied(done apitype.Applied) {
	for _, w := range done.Warnings {
		fmt.Fprintln(a.stderr, "warning: "+termfilter.Line(w))
	}
	fmt.Fprintf(a.stdout, "revision %d is in force\n", done.Revision)
	for _, p := range done.Planes {
		if !p.Live {
			fmt.Fprintf(a.stdout, "  %s (process %d) did not acknowledge; its lease has lapsed, so it denies everything\n", p.Name, p.PID)
		}
	}
}

func (a *app) policyShow() *cobra.Command {
	var effective bool
	var revision uint64
	cmd := &cobra.Command{
		Use: "show", Short: "Print the policy in force", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if effective {
				if revision != 0 {
					return wrongUse(cmd, "--effective is about the revision in force, so --revision does not go with it")
				}
				t, err := a.client().EffectivePolicy(cmd.Context())
				if err != nil {
					return err
				}
				return a.print(t.Text)
			}
			r, err := a.client().Policy(cmd.Context(), revision)
			if err != nil {
				return err
			}
			return a.print(r.YAML)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print what is enforced, with the origin of each line")
	cmd.Flags().Uint64Var(&revision, "revision", 0, "print revision `N`")
	return cmd
}

// print writes the text of a policy as it is: a policy with characters that hide
// is refused when it is applied.
func (a *app) print(text string) error {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}

func (a *app) policyExplain() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "explain AGENT METHOD URL",
		Short: "Judge one request by the code that enforces, and say which rules matched; exit status 1 when it is denied",
		Long: `Judge one request by the code that enforces, and say which rules matched.
Nothing is asked or sent. With method CONNECT, HOST[:PORT] for URL asks about
name and port alone; a wss URL with GET is about a WebSocket. Rules for other
hosts are only counted, but with -v. Exit status 1 when the request is denied.`,
		Args: wants("AGENT", "METHOD", "URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.client().ExplainPolicy(cmd.Context(), apitype.ExplainPolicy{Agent: args[0], Method: args[1], URL: args[2], All: all})
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.stdout, e)
			} else {
				err = printLines(a.stdout, e.Text)
			}
			if err == nil && e.Effect != "allow" {
				return &statusError{1}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&all, "verbose", "v", false, "print every rule, also those for other hosts")
	return cmd
}

// printLines prints a text that may quote what an agent wrote.
func printLines(w io.Writer, text string) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintln(&b, termfilter.Line(strings.TrimSuffix(line, "\n")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *app) policyTest() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test DIR|FILE...",
		Short: "Run case files through the code that enforces; needs no root and no running Bawn",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUse(cmd, "FILE or DIR is missing")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if asJSON {
				args = append([]string{"-json"}, args...)
			}
			if status := casetest.Main(args, a.stdout, a.stderr); status != 0 {
				return &statusError{status}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a case")
	return cmd
}

// caseFlags lets "policy test" be called with -json, as the format of case
// files has it: other flags of this command line have two dashes.
func caseFlags(args []string) []string {
	i := slices.Index(args, "policy")
	if i < 0 || i+1 >= len(args) || args[i+1] != "test" || slices.Contains(args[:i], "--") {
		return args
	}
	args = slices.Clone(args)
	for j := i + 2; j < len(args) && args[j] != "--"; j++ {
		if args[j] == "-json" {
			args[j] = "--json"
		}
	}
	return args
}

func (a *app) policyRollback() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use: "rollback REVISION", Short: "Apply the text of an old revision as a new one", Args: wants("REVISION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || n == 0 {
				return &usageError{message: fmt.Sprintf("policy rollback: revision %q is not a number from 1", args[0]), hint: `"bawn policy revisions" lists them`}
			}
			done, err := a.client().RollbackPolicy(cmd.Context(), apitype.RollbackPolicy{Revision: n, Why: why})
			if err != nil {
				return err
			}
			a.printApplied(done)
			return nil
		},
	}
	cmd.Flags().StringVar(&why, "why", "", "`REASON`, kept with the revision")
	return cmd
}

func (a *app) policyRevisions() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "revisions", Short: "List who applied what, when and why", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Revisions(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, list)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "REVISION\tAT\tBY\tWHY")
			for _, r := range list {
				fmt.Fprintf(w, "%d\t%s\t%s (uid %d)\t%s\n", r.Number, r.At.Local().Format(time.DateTime), dash(r.Account), r.UID, dash(r.Why))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
