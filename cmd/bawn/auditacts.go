// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/audit"
)

func (a *app) auditActsCommand() *cobra.Command {
	var since, until, agent string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "acts [flags]",
		Short: "Show what was done to Bawn itself, by whom, and what came of it",
		Long: `Show what operators, planes and admin itself did: policies, agents, sessions,
exports, starts and stops, oldest first. Each is on record before it is done.

RESULT is done, refused (nothing was changed), failed, or - for an act that admin
did not live to finish. REV is the revision in force before and after.`,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := actsQuery(cmd, since, until, agent, limit)
			if err != nil {
				return err
			}
			body, err := a.client().Acts(cmd.Context(), q)
			if err != nil {
				return err
			}
			defer body.Close()
			return a.printActs(body, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&since, "since", "", "only from `TIME` on: 30m and 2h count back from now; or a time as the table shows it, or RFC 3339")
	fl.StringVar(&until, "until", "", "only before `TIME`")
	fl.StringVar(&agent, "agent", "", "only what concerns `AGENT`")
	fl.IntVar(&limit, "limit", 0, "only the newest `N`")
	fl.BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func actsQuery(cmd *cobra.Command, since, until, agent string, limit int) (url.Values, error) {
	q := url.Values{}
	for k, v := range map[string]string{"since": since, "until": until} {
		if !cmd.Flags().Changed(k) {
			continue
		}
		t, err := parseTime(v, time.Now())
		if err != nil {
			return nil, wrongUse(cmd, "--%s %q: neither a time nor a duration such as 30m, 2h, 2026-01-31, \"2026-01-31 08:00:00\" or 2026-01-31T08:00:00Z", k, v)
		}
		q.Set(k, t.Format(time.RFC3339Nano))
	}
	if cmd.Flags().Changed("agent") {
		if agent == "" {
			return nil, wrongUse(cmd, "--agent is empty")
		}
		q.Set("agent", agent)
	}
	if limit < 0 || cmd.Flags().Changed("limit") && limit == 0 {
		return nil, wrongUse(cmd, "--limit %d: not a number from 1", limit)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q, nil
}

// actColumns are the heads of the table. What can be long comes last.
var actColumns = []string{"TIME", "WHO", "ACT", "OBJECT", "RESULT", "REV", "DETAIL"}

func (a *app) printActs(body io.Reader, asJSON bool) error {
	rows := [][]string{actColumns}
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var l logLine
		if err == nil {
			err = json.Unmarshal(line, &l)
		}
		if err == nil && l.Error != "" {
			err = errors.New(l.Error)
		}
		if err != nil {
			return fmt.Errorf("reading the acts: %w", err)
		}
		if asJSON {
			if _, err := a.stdout.Write(visible(line)); err != nil {
				return err
			}
		} else if row := actRow(l.Entry); row != nil {
			rows = append(rows, row)
		}
	}
	if asJSON {
		return nil
	}
	return printRows(a.stdout, rows)
}

// actRow gives an entry in the order of the columns.
func actRow(e audit.Entry) []string {
	switch {
	case e.Act != nil:
	case e.Gap != nil:
		return []string{clock(e.Gap.From), "", "", "", "", "", "the journal could not be written from here on: " + e.Gap.Error}
	case e.Damage != nil:
		return []string{"", "", "", "", "", "", fmt.Sprintf("damaged line in %s at byte %d: %s", e.Damage.File, e.Damage.Offset, e.Damage.Error)}
	default:
		return nil
	}
	b, r := e.Act, e.Result
	if r == nil {
		r = b
	}
	who := b.Account
	if who == "" {
		who = "uid " + strconv.FormatUint(uint64(b.UID), 10)
	}
	rev := strconv.FormatUint(b.Revision, 10)
	if r.Revision != b.Revision {
		rev += ">" + strconv.FormatUint(r.Revision, 10)
	}
	detail := b.Detail
	if r.Error != "" {
		detail += " (" + strings.ReplaceAll(r.Error, "\n", "; ") + ")"
	}
	return []string{clock(b.Time), who, string(b.Name), r.Object, string(r.Result), rev, detail}
}

// printRows prints a table. Everything in it may be what an agent wrote.
func printRows(out io.Writer, rows [][]string) error {
	t := &logTable{out: out, widths: make([]int, len(actColumns)), most: len(rows)}
	for _, row := range rows {
		t.hold(row)
	}
	return t.flush()
}
