// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"bawn/internal/install"
	"bawn/internal/supervise"
)

func (a *app) installCommand() *cobra.Command {
	var dry, force, prepare bool
	var stage string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put Bawn on this host for good: units, accounts, directories (needs root)",
		Long: "Puts systemd units, accounts, directories and a commented configuration on this host,\n" +
			"and has the boundary start with the machine. It may be called again, and after an\n" +
			"upgrade should be. Files of the operator's are kept.",
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stage != "" {
				return install.Packaged().Stage(stage)
			}
			if prepare {
				return supervise.Prepare(cmd.Context(), a.paths())
			}
			l, err := a.layout()
			if err == nil {
				err = supervise.CheckSelf(l.Binary)
			}
			if err != nil {
				return err
			}
			plan, err := install.Install(cmd.Context(), l, force)
			if err != nil {
				return err
			}
			if err := a.carryOut(plan, dry); err != nil || dry {
				return err
			}
			fmt.Fprintln(a.stdout, "bawn: installed; start it: systemctl start "+install.Target+" (after an upgrade: restart, which ends sessions)")
			return nil
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and do nothing")
	cmd.Flags().BoolVar(&force, "force", false, "replace files of the same names that are not Bawn's, or were changed; they are saved")
	cmd.Flags().StringVar(&stage, "stage", "", "write a package's files below `DIR`, and do nothing else")
	cmd.Flags().MarkHidden("stage")
	cmd.Flags().BoolVar(&prepare, "prepare", false, "only make accounts and directories, for a package that brings the files")
	cmd.Flags().MarkHidden("prepare")
	return cmd
}

func (a *app) uninstallCommand() *cobra.Command {
	var dry, yes bool
	var r install.Removal
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop Bawn and take away what install has put on this host (needs root)",
		Long: "Stops Bawn and takes away units and files that \"bawn install\" has written. Data,\n" +
			"accounts and a configuration that was changed are kept, unless --purge is given.",
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.layout()
			if err != nil {
				return err
			}
			plan, err := install.Uninstall(cmd.Context(), l, r)
			if err != nil {
				return err
			}
			if r.Purge && !dry && !yes {
				if err := a.wordFor(plan); err != nil {
					return err
				}
			}
			return a.carryOut(plan, dry)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and do nothing")
	cmd.Flags().BoolVar(&r.Force, "force", false, "remove units that were changed by hand too")
	cmd.Flags().BoolVar(&r.Purge, "purge", false, "remove data, the record, agents and accounts too")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --purge: do not ask")
	return cmd
}

// layout is that of this host and this program.
func (a *app) layout() (install.Layout, error) {
	self, err := os.Executable()
	if err != nil {
		return install.Layout{}, fmt.Errorf("finding bawn's own binary: %w", err)
	}
	return install.Own(a.paths(), self), nil
}

// carryOut does the steps of a plan, or only says them.
func (a *app) carryOut(plan install.Plan, dry bool) error {
	refused := plan.Refused()
	if dry || len(refused) > 0 {
		for _, s := range plan {
			if dry || s.Action == install.Refuses {
				a.sayStep(s)
			}
		}
		if len(refused) > 0 {
			return fmt.Errorf("nothing was done: %d files stand in the way", len(refused))
		}
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("this needs root (use sudo); --dry-run does not")
	}
	return plan.Apply(a.sayStep)
}

func (a *app) sayStep(s install.Step) {
	line := fmt.Sprintf("%-8s %s", s.Action, s.What)
	if s.Why != "" {
		line += ": " + s.Why
	}
	fmt.Fprintln(a.stdout, line)
}

// purgeWord is what a person types before data goes.
const purgeWord = "purge"

// wordFor asks for the word, with what is at stake.
func (a *app) wordFor(plan install.Plan) error {
	for _, s := range plan {
		if s.Action == install.Removes {
			a.sayStep(s)
		}
	}
	if !a.agrees(purgeWord, "All agents, their homes, the policy and the record would be gone for good.") {
		return errors.New("nothing was removed: the word was not typed (--yes does not ask)")
	}
	return nil
}
