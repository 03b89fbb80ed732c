// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
)

func (a *app) usageCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "usage [flags]",
		Short: "Show requests, refusals and bytes by agent and host",
		Long: `Show requests, refusals and bytes by agent and host.

` + countedIs,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, time.Now())
			if err != nil {
				return err
			}
			t, err := a.client().Usage(cmd.Context(), q)
			if err != nil {
				return err
			}
			return a.showTotals(t, []string{"agent", "host"}, f.json)
		},
	}
	fl := cmd.Flags()
	f.filters = map[string]*string{
		"agent": fl.String("agent", "", "only of `AGENT`"),
		"user":  fl.String("user", "", "only for `USER`"),
		"host":  fl.String("host", "", "only to `HOST`"),
	}
	fl.StringVar(&f.since, "since", "", "only from `TIME` on, as in \"bawn log --since\"")
	fl.StringVar(&f.until, "until", "", "only before `TIME`")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// countedIs says what the columns of totals mean.
const countedIs = `REQUESTS are those let through, as a budget "requests" counts them. DENIED are
refusals of all kinds: of requests, CONNECTs, connections, DNS questions and
messages on WebSockets; those beyond the record budget have no host. DNS are
questions to Bawn's resolver, refused ones included, as a budget "dns_queries"
counts them. MESSAGES are those on WebSockets that a guard judged, refused ones
included. UP and DOWN are bytes to and from servers. Each counts in the hour in
which it was decided on.`

// printTotals is "bawn log --by".
func (a *app) printTotals(ctx context.Context, q url.Values, f logFlags) error {
	t, err := a.client().LogTotals(ctx, q)
	if err != nil {
		return err
	}
	return a.showTotals(t, strings.Split(f.by, ","), f.json)
}

// byColumns are what totals are grouped by, in the order of the table.
var byColumns = []struct {
	name string
	of   func(apitype.Total) string
}{
	{"hour", func(t apitype.Total) string {
		if t.Hour == nil {
			return ""
		}
		return clock(*t.Hour)
	}},
	{"agent", func(t apitype.Total) string { return t.Agent }},
	{"user", func(t apitype.Total) string { return t.User }},
	{"host", func(t apitype.Total) string { return t.Host }},
	{"code", func(t apitype.Total) string { return t.Code }},
}

func (a *app) showTotals(t apitype.Totals, by []string, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, t)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	var head []string
	for _, c := range byColumns {
		if slices.Contains(by, c.name) {
			head = append(head, strings.ToUpper(c.name))
		}
	}
	fmt.Fprintln(w, strings.Join(append(head, "REQUESTS", "DENIED", "DNS", "MESSAGES", "UP", "DOWN"), "\t"))
	for _, x := range t.Totals {
		var row []string
		for _, c := range byColumns {
			if slices.Contains(by, c.name) {
				row = append(row, dash(c.of(x)))
			}
		}
		for _, n := range []int64{x.Requests, x.Denied, x.DNS, x.Messages, x.Up, x.Down} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	a.printNote(t.Note)
	return nil
}
