// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/ids"
)

// completeTime bounds what a person at a prompt waits for.
const completeTime = time.Second

// complete has a shell offer the names of agents wherever one is wanted: as
// --agent, and as the argument AGENT, or NAME of "agent remove".
func (a *app) complete(cmd *cobra.Command) {
	if cmd.Flags().Lookup("agent") != nil {
		cmd.RegisterFlagCompletionFunc("agent", a.agentNames) // fails if there is one already
	}
	words := strings.Fields(cmd.Use)
	if len(words) > 1 && (words[1] == "AGENT" || words[0] == "remove" && words[1] == "NAME") {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.agentNames(cmd, args, begun)
		}
	}
	for _, c := range cmd.Commands() {
		a.complete(c)
	}
}

func (a *app) agentNames(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	root, err := absoluteRoot(a.rootd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	a.rootd = root
	list, err := a.client().Agents(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // no agent, and no noise at the prompt
	}
	var names []string
	for _, g := range list {
		if strings.HasPrefix(g.Name, begun) && ids.CheckName(g.Name) == nil {
			names = append(names, g.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
