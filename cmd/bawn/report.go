// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/termfilter"
)

func (a *app) reportCommand() *cobra.Command {
	var since, until string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "report --since TIME",
		Short: "Write a page on what agents did, what was denied and what is new",
		Long: `Write a page on what each agent did, what was denied and why, and what is new
compared with the time of the same length before: hosts, codes, agents.

The page is Markdown, and reads as plain text. What agents wrote is filtered as in
"bawn log".`,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since == "" {
				since = "7d"
			}
			q := url.Values{}
			for k, v := range map[string]string{"since": since, "until": until} {
				if v == "" {
					continue
				}
				t, err := parseTime(v, time.Now())
				if err != nil {
					return wrongUse(cmd, "--%s %q: %s", k, v, timeForms)
				}
				q.Set(k, t.Format(time.RFC3339Nano))
			}
			r, err := a.client().Report(cmd.Context(), q)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, r)
			}
			_, err = fmt.Fprint(a.stdout, reportText(r))
			a.printNote(r.Note)
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&since, "since", "", "from `TIME` on, as in \"bawn log --since\"; 7d unless said")
	fl.StringVar(&until, "until", "", "before `TIME`; now unless said")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// mostListed is how many hosts of an agent a page names.
const mostListed = 20

func reportText(r apitype.Report) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# What agents did from %s to %s\n", clock(r.Since), clock(r.Until))
	p("New is what was not on record from %s to %s.\n", clock(r.Before), clock(r.Since))
	if len(r.Agents) == 0 {
		p("No agent asked for anything.\n")
	}
	if r.Damages > 0 {
		p("**The journals have %d places that could not be read or linked: run \"bawn audit verify\".**\n", r.Damages)
	}
	for _, g := range r.Agents {
		reportAgent(p, g)
	}
	if r.Own != nil {
		p("## Bawn itself\n")
		p("Its own attacks on the boundary had %s let through and %d denied. They are in nothing above.\n", counted(r.Own.Requests, "request"), r.Own.Denied)
	}
	return b.String()
}

func reportAgent(p func(string, ...any), g apitype.AgentReport) {
	title := mark(g.Agent)
	if g.New {
		title += " (new)"
	}
	p("## %s\n", title)
	p("For %s: %s.", marks(g.Users), sums(g.Total))
	if g.Before != nil {
		p("Before: %s.", sums(*g.Before))
	}
	p("")
	if len(g.Fresh) > 0 {
		p("New hosts: %s.\n", marks(g.Fresh))
	}
	hosts(p, "Reached", g.Hosts)
	if len(g.Codes) > 0 {
		p("Denied:\n")
		for _, d := range g.Codes {
			fresh := ""
			if d.New {
				fresh = " (new)"
			}
			p("- %d × %s%s. %s", d.Count, mark(d.Code), fresh, termfilter.Line(d.Guidance))
		}
		p("")
	}
	hosts(p, "Denied, by host", g.Asked)
}

func hosts(p func(string, ...any), title string, list []apitype.Total) {
	if len(list) == 0 {
		return
	}
	p("%s:\n", title)
	for i, t := range list {
		if i == mostListed {
			p("- and %d more", len(list)-i)
			break
		}
		p("- %s: %s", mark(t.Host), sums(t))
	}
	p("")
}

// sums says what a total comes to, as "bawn usage" counts.
func sums(t apitype.Total) string {
	s := fmt.Sprintf("%s let through, %d denied, %s", counted(t.Requests, "request"), t.Denied, counted(t.DNS, "DNS question"))
	if t.Messages > 0 {
		s += ", " + counted(t.Messages, "judged message")
	}
	return s + fmt.Sprintf("; %s up, %s down", size(t.Up), size(t.Down))
}

// mark puts text that an agent may have written where Markdown takes it as it
// is.
func mark(s string) string {
	if s == "" {
		return "(no name)"
	}
	return "`" + strings.ReplaceAll(termfilter.Line(s), "`", "'") + "`"
}

func marks(list []string) string {
	var out []string
	for i, s := range list {
		if i == mostListed {
			out = append(out, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		out = append(out, mark(s))
	}
	return strings.Join(out, ", ")
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// size gives bytes in a form that is read easily.
func size(n int64) string {
	f := float64(n)
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if f < 1000 {
			if unit == "B" {
				return fmt.Sprintf("%d B", n)
			}
			return fmt.Sprintf("%.1f %s", f, unit)
		}
		f /= 1000
	}
	return fmt.Sprintf("%.1f TB", f)
}
