// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bawn/internal/codes"
)

// codesCommand needs no admin: the catalogue is in the program.
func (a *app) codesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "codes [CODE]", Short: "Explain the codes of refusals: what each means and what to do", Args: mayHave("CODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list := codes.Catalogue()
			if len(args) > 0 {
				e, ok := codes.Lookup(codes.Code(args[0]))
				if !ok {
					return &usageError{message: fmt.Sprintf("codes: there is no code %q", args[0]), hint: `"bawn codes" lists all codes`}
				}
				list = []codes.Entry{e}
			}
			switch {
			case asJSON:
				return printJSON(a.stdout, codesJSON(list))
			case len(args) > 0:
				return printCode(a.stdout, list[0])
			}
			return printCodes(a.stdout, list)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// A codeJSON is an entry of the catalogue in --json.
type codeJSON struct {
	Code     codes.Code `json:"code"`
	Group    string     `json:"group"`
	Status   int        `json:"status,omitempty"` // of the HTTP answer; absent: it never stands in one
	Meaning  string     `json:"meaning"`
	Agent    string     `json:"agent"`
	Operator string     `json:"operator"`
}

func codesJSON(list []codes.Entry) []codeJSON {
	out := make([]codeJSON, 0, len(list))
	for _, e := range list {
		out = append(out, codeJSON{e.Code, e.Group, e.Status, e.Meaning, e.Agent, e.OperatorFor("")})
	}
	return out
}

func printCodes(out io.Writer, list []codes.Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CODE\tSTATUS\tMEANING")
	for _, e := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Code, answered(e), e.Meaning)
	}
	return w.Flush()
}

func printCode(out io.Writer, e codes.Entry) error {
	_, err := fmt.Fprintf(out, "%s (%s; HTTP status %s)\n%s\n\nWhat the agent is told:\n%s\n\nWhat an operator can do:\n%s\n",
		e.Code, e.Group, answered(e), e.Meaning, e.Agent, e.OperatorFor(""))
	return err
}

func answered(e codes.Entry) string {
	if e.Status == 0 {
		return "-"
	}
	return fmt.Sprint(e.Status)
}
