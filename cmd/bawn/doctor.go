// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/doctor"
	"bawn/internal/termfilter"
)

// statusUnsound is the exit status of a self-test that ran and found something
// that does not hold. 1 is, as everywhere, that it could not run.
const statusUnsound = 3

func (a *app) doctorCommand() *cobra.Command {
	var asJSON, all, last bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Attack the boundary from an agent's place and say what holds", Args: wants(),
		Long: `Attack the boundary from an agent's place, in every placement, look at the host
from outside, and say what holds, with the remedy for what does not.

Exit status: 0 all is well (there may be warnings), 1 the self-test could not
run, 2 wrong use, 3 something has failed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.askDoctor(cmd, last)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.stdout, d)
			} else {
				err = printDoctor(a.stdout, d, all)
			}
			if err == nil && (!d.OK || d.Failed > 0) {
				return &statusError{statusUnsound}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, every check")
	cmd.Flags().BoolVarP(&all, "verbose", "v", false, "print every check, also those that hold")
	cmd.Flags().BoolVar(&last, "last", false, "print the newest result instead of running it")
	return cmd
}

func (a *app) askDoctor(cmd *cobra.Command, last bool) (apitype.Doctor, error) {
	if !last {
		return a.client().Doctor(cmd.Context())
	}
	s, err := a.client().Status(cmd.Context())
	if err != nil {
		return apitype.Doctor{}, err
	}
	if s.Doctor == nil {
		return apitype.Doctor{}, &apitype.Error{Message: "the self-test has not run yet", Hint: `"bawn doctor" runs it`}
	}
	return *s.Doctor, nil
}

// words are the states for a person.
var words = map[string]string{
	string(doctor.OK): "ok", string(doctor.Warn): "warn", string(doctor.Fail): "FAILED", string(doctor.NotApplicable): "n/a",
}

// printDoctor prints the groups: each line that is not well with its remedy, the
// others as a number unless all are wanted.
func printDoctor(out io.Writer, d apitype.Doctor, all bool) error {
	width := 0
	for _, l := range d.Lines {
		if all || !well(l) {
			width = max(width, utf8.RuneCountInString(termfilter.Line(l.Check)))
		}
	}
	var b strings.Builder
	for _, group := range doctor.Headings {
		printGroup(&b, group.Text, linesOf(d, group.Group), width, all)
	}
	fmt.Fprintln(&b, verdictOf(d))
	_, err := io.WriteString(out, b.String())
	return err
}

func linesOf(d apitype.Doctor, g doctor.Group) (list []apitype.DoctorLine) {
	for _, l := range d.Lines {
		if l.Group == string(g) {
			list = append(list, l)
		}
	}
	return list
}

// well reports whether there is nothing to do about a line.
func well(l apitype.DoctorLine) bool {
	return l.State == string(doctor.OK) || l.State == string(doctor.NotApplicable)
}

func printGroup(b *strings.Builder, heading string, lines []apitype.DoctorLine, width int, all bool) {
	if len(lines) == 0 {
		return
	}
	held := 0
	for _, l := range lines {
		if well(l) {
			held++
		}
	}
	fmt.Fprintf(b, "%s: %d of %d\n", heading, held, len(lines))
	for _, l := range lines {
		if well(l) && !all {
			continue
		}
		row := fmt.Sprintf("  %-6s  %-5s  %-*s  %s", word(l), l.Placement, width, termfilter.Line(l.Check), termfilter.Line(l.Detail))
		fmt.Fprintln(b, strings.TrimRight(row, " "))
		if !well(l) && l.Fix != "" {
			fmt.Fprintf(b, "          fix: %s\n", termfilter.Line(l.Fix))
		}
	}
}

// word is the state of a line; one that this build does not know has failed.
func word(l apitype.DoctorLine) string {
	if w, ok := words[l.State]; ok {
		return w
	}
	return words[string(doctor.Fail)]
}

// verdictOf sums the result up.
func verdictOf(d apitype.Doctor) string {
	switch {
	case !d.OK:
		return "no agent is handed out in the usual placement"
	case d.Failed > 0:
		return fmt.Sprintf("%s failed; agents are handed out: nothing got out", count(d.Failed, "check"))
	case d.Warned > 0:
		return fmt.Sprintf("all is well, with %s", count(d.Warned, "warning"))
	}
	return "all is well"
}

// doctorRow is the self-test's line in the status, with what is not well and
// since when.
func doctorRow(d *apitype.Doctor) string {
	if d == nil {
		return statusRow("doctor", "", "has not run yet") + "\n"
	}
	state := okWord(d.OK && d.Failed == 0)
	detail := fmt.Sprintf("%s ago, %s", time.Since(d.At).Round(time.Second), plural(d.Failed, "check has failed", "checks have failed"))
	if d.Warned > 0 {
		detail += ", " + count(d.Warned, "warning")
	}
	var b strings.Builder
	fmt.Fprintln(&b, statusRow("doctor", state, detail))
	for _, l := range d.Lines {
		if l.State != string(doctor.Fail) {
			continue
		}
		at := strings.TrimSpace(string(l.Placement) + " " + termfilter.Line(l.Name))
		fmt.Fprintf(&b, "    %s: failed since %s: %s\n", at, clock(l.Since), termfilter.Line(l.Detail))
	}
	return b.String()
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// failedPlacements lists those that the result shuts.
func failedPlacements(d apitype.Doctor) (list []string) {
	for _, l := range d.Lines {
		if !l.OK && l.Placement != "" && doctor.Shutting([]apitype.DoctorLine{l}) != nil && !slices.Contains(list, string(l.Placement)) {
			list = append(list, string(l.Placement))
		}
	}
	return list
}
