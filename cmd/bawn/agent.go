// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/ids"
	"bawn/internal/termfilter"
)

func (a *app) agentCommand() *cobra.Command {
	return group(&cobra.Command{Use: "agent", Short: "Create, list and remove agents"},
		a.agentCreate(), a.agentList(), a.agentRemove())
}

func (a *app) agentCreate() *cobra.Command {
	var c apitype.CreateAgent
	var placement string
	cmd := &cobra.Command{
		Use:   "create NAME --user USER",
		Short: "Register an agent and make its account and home",
		Args:  wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.User == "" {
				return wrongUse(cmd, "--user is missing: the person or tenant for whom the agent works")
			}
			c.Name, c.Placement = args[0], ids.Placement(placement)
			made, err := a.client().CreateAgent(cmd.Context(), c)
			if err != nil {
				return err
			}
			for _, w := range made.Warnings {
				fmt.Fprintln(a.stderr, "warning: "+termfilter.Line(w))
			}
			fmt.Fprintf(a.stdout, "agent %s for user %s: placement %s, account uid %d\n", made.Name, made.User, made.Placement, made.UID)
			return nil
		},
	}
	cmd.Flags().StringVar(&c.User, "user", "", "`USER`: the person or tenant for whom the agent works")
	cmd.Flags().StringVar(&c.Profile, "profile", "", "`PROFILE` of rules, when the policy's agents section does not name this agent")
	cmd.Flags().StringVar(&placement, "placement", "", "`PLACEMENT`: netns or uid (default: the configuration's)")
	return cmd
}

func (a *app) agentList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List agents", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Agents(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, list)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tUSER\tPROFILE\tPLACEMENT\tUID\tSESSIONS\tCREATED")
			for _, g := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", g.Name, termfilter.Line(g.User), dash(g.Profile), g.Placement, g.UID, g.Sessions, g.Created.Local().Format(time.DateTime))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) agentRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove an agent, its account and all its files", Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.client().RemoveAgent(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "agent %s removed\n", args[0])
			return nil
		},
	}
}

// dash stands for an empty cell of a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return termfilter.Line(s)
}
