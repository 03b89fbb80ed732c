// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/termfilter"
)

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of the boundary; exit status 1 when it hands out no agents", Args: cobra.NoArgs,
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
	fmt.Fprintf(out, "bawn %s: %s\n", s.Version, state)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, p := range s.Parts {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", p.Name, okWord(p.OK), termfilter.Line(p.Detail))
	}
	for _, p := range s.Planes {
		detail := fmt.Sprintf("enforces revision %d, last beat %s ago", p.Revision, time.Since(p.Asked).Round(10*time.Millisecond))
		fmt.Fprintf(w, "  %s\t%s\t%s\n", p.Name, okWord(p.Live), detail)
	}
	fmt.Fprintf(w, "  policy\t\trevision %d\n", s.Revision)
	fmt.Fprintf(w, "  agents\t\t%d registered, %d sessions\n", s.Agents, len(s.Sessions))
	for _, x := range s.Sessions {
		fmt.Fprintf(w, "    %s\t%s\tagent %s, user %s, slot %d: %s\n", x.Session, x.Placement, x.Agent, termfilter.Line(x.User), x.Slot, termfilter.Line(strings.Join(x.Argv, " ")))
	}
	return w.Flush()
}

func okWord(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Attack the boundary from an agent's place and say what holds", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.client().Doctor(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.stdout, d)
			} else {
				err = printDoctor(a.stdout, d)
			}
			if err == nil && !d.OK {
				return &statusError{1}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printDoctor(out io.Writer, d apitype.Doctor) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, l := range d.Lines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", okWord(l.OK), l.Placement, termfilter.Line(l.Check), termfilter.Line(l.Detail))
		if !l.OK && l.Fix != "" {
			fmt.Fprintf(w, "\t\t  fix:\t%s\n", termfilter.Line(l.Fix))
		}
	}
	return w.Flush()
}
