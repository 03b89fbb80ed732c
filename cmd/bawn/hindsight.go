// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/hindsight"
	"bawn/internal/termfilter"
)

// Further exit statuses of replay, beside those of diff.
const statusUnknown = 5

func (a *app) policyReplay() *cobra.Command {
	var ask apitype.ReplayPolicy
	var since, until string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Judge recorded traffic by a policy that is not applied, and say what would break",
		Long: `Judge recorded traffic by a policy that is not applied, as it would be judged now
by the code that enforces, and say what would change. FILE is a file ("-" reads
standard input), a revision number, or "current". Grants in force count.

A record holds neither header fields nor bodies nor queries, so that guards cannot
judge again: what only they would decide is listed apart.

Exit status 0 when everything would be judged as it was, 3 when something that was
allowed would be denied, 4 when nothing would, but something that was denied would
be allowed, 5 when neither is known, but some of it depends on what is not on
record.`,
		Args: wants("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if ask.Since, err = flagTime(cmd, "since", since); err != nil {
				return err
			}
			if ask.Until, err = flagTime(cmd, "until", until); err != nil {
				return err
			}
			text, _, err := a.policyText(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ask.YAML = string(text)
			r, err := a.client().ReplayPolicy(cmd.Context(), ask)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.stdout, r)
			} else {
				err = a.printReplay(r)
			}
			return cmp.Or(err, replayStatus(r))
		},
	}
	cmd.Flags().StringVar(&ask.Agent, "agent", "", "only of `AGENT`")
	cmd.Flags().StringVar(&since, "since", "7d", "only from `TIME` on: 7d and 2h count back from now; or a time as \"bawn log\" shows it, or RFC 3339")
	cmd.Flags().StringVar(&until, "until", "", "only before `TIME`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// flagTime reads a flag as a time; an empty one is none.
func flagTime(cmd *cobra.Command, name, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	now := time.Now()
	if days, ok := strings.CutSuffix(value, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	t, err := parseTime(value, now)
	if err != nil {
		return t, wrongUse(cmd, "--%s %q: neither a time nor a duration such as 30m, 2h, 7d, 2026-01-31, \"2026-01-31 08:00:00\" or 2026-01-31T08:00:00Z", name, value)
	}
	return t, nil
}

// replayStatus is the exit status of a replay, as an error where it is not 0.
func replayStatus(r hindsight.Report) error {
	switch {
	case len(r.Denied) > 0:
		return &statusError{statusNarrower}
	case len(r.Allowed) > 0:
		return &statusError{statusWider}
	case len(r.Content) > 0 || len(r.Unjudged) > 0 || r.Beyond > 0:
		return &statusError{statusUnknown}
	}
	return nil
}

func (a *app) printReplay(r hindsight.Report) error {
	var b strings.Builder
	if r.Note != "" {
		fmt.Fprintln(a.stderr, "note: "+termfilter.Line(r.Note))
	}
	fmt.Fprintf(&b, "%s: %d still allowed, %d still denied\n", counted(int64(r.Records), "record"), r.StillAllowed, r.StillDenied)
	for _, part := range []struct {
		rows []hindsight.Row
		head string
		say  func(hindsight.Row) string
	}{
		{r.Denied, "would be denied", func(x hindsight.Row) string {
			return x.Code + ruled(" by rule ", x.Rule) + ruled(", was allowed by ", x.By)
		}},
		{r.Allowed, "would be allowed", func(x hindsight.Row) string { return "by rule " + x.Rule + ", was " + x.Was }},
		{r.Content, "depends on what is not on record", func(x hindsight.Row) string { return x.Why }},
		{r.Unjudged, "cannot be judged again", func(x hindsight.Row) string { return x.Why + ruled(" ", x.Was) }},
	} {
		if len(part.rows) > 0 {
			fmt.Fprintf(&b, "\n%s:\n", part.head)
		}
		agent := "\x00" // which no agent is called
		for _, x := range part.rows {
			if x.Agent != agent {
				agent = x.Agent
				fmt.Fprintf(&b, "  agent %s\n", dash(agent))
			}
			fmt.Fprintf(&b, "    %s\n", termfilter.Line(fmt.Sprintf("%6d  %s: %s (%s)%s", x.Count, cmp.Or(x.Sample, "-"), part.say(x), between(x), anyway(x))))
		}
	}
	if r.Beyond > 0 {
		fmt.Fprintf(&b, "\n%d more records changed in more ways than can be listed: name an agent or a shorter time\n", r.Beyond)
	}
	return printLines(a.stdout, b.String())
}

func between(x hindsight.Row) string {
	if clock(x.First) == clock(x.Last) {
		return clock(x.First)
	}
	return clock(x.First) + " to " + clock(x.Last)
}

func ruled(words, rule string) string {
	if rule == "" {
		return ""
	}
	return words + rule
}

func anyway(x hindsight.Row) string {
	switch x.Anyway {
	case 0:
		return ""
	case x.Count:
		return ", as by the policy in force"
	}
	return fmt.Sprintf(", %d of them by the policy in force as well", x.Anyway)
}

func (a *app) policySuggest() *cobra.Command {
	var agent, since string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "suggest",
		Short: "Print the smallest rules that would allow what was denied; nothing is applied",
		Long: `Print, as a policy that can be checked, the smallest rules that would allow what
was denied, and nothing else: the names, ports, methods and paths that were seen.
Each rule is tried beside the policy in force by the code that enforces. Nothing is
applied. Rules for names that the agent seems to have made up, and patterns that
stand for more than was seen, are only shown in comments; denials that no further
rule could undo are listed with what an operator can do.`,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := flagTime(cmd, "since", since)
			if err != nil {
				return err
			}
			s, err := a.client().SuggestPolicy(cmd.Context(), agent, from)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, s)
			}
			return printLines(a.stdout, s.YAML())
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "only for `AGENT`")
	cmd.Flags().StringVar(&since, "since", "24h", "only what was denied from `TIME` on: 7d and 2h count back from now")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
