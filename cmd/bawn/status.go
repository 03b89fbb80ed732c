// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/termfilter"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of the boundary; exit status 1 when it hands out no agents", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.stdout, s)
			} else {
				err = printStatus(a.stdout, s)
			}
			if err == nil && !s.Ready {
				return &statusError{1}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStatus(out io.Writer, s apitype.Status) error {
	state := "ready"
	if !s.Ready {
		state = "closed: " + termfilter.Line(s.Why)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "bawn %s: %s\n", s.Version, state)
	for _, p := range s.Parts {
		fmt.Fprintln(&b, statusRow(p.Name, okWord(p.OK), termfilter.Line(p.Detail)))
	}
	for _, p := range s.Planes {
		detail := fmt.Sprintf("enforces revision %d, last beat %s ago", p.Revision, time.Since(p.Asked).Round(10*time.Millisecond))
		fmt.Fprintln(&b, statusRow(p.Name, okWord(p.Live), detail))
	}
	for _, j := range s.Journals {
		fmt.Fprintln(&b, journalRow(j))
	}
	fmt.Fprint(&b, doctorRow(s.Doctor))
	policy := fmt.Sprintf("revision %d", s.Revision)
	if s.Revision == 0 {
		policy = `none yet: everything is denied ("bawn policy apply FILE" makes the first)`
	}
	fmt.Fprintln(&b, statusRow("policy", "", policy))
	fmt.Fprintln(&b, statusRow("agents", "", fmt.Sprintf("%d registered, %s", s.Agents, count(len(s.Sessions), "session"))))
	for _, x := range s.Sessions {
		fmt.Fprintf(&b, "    %s  slot %d, %s, since %s: agent %s, user %s: %s\n", x.Session, x.Slot, x.Placement, clock(x.Started), x.Agent, termfilter.Line(x.User), termfilter.Line(strings.Join(x.Argv, " ")))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func statusRow(name, state, detail string) string {
	return strings.TrimRight(fmt.Sprintf("  %-8s  %-6s  %s", name, state, detail), " ")
}

// count says how many things there are.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func okWord(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}
