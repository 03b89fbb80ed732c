// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/termfilter"
)

func (a *app) whoCommand() *cobra.Command {
	var at, agent string
	var upstream, asJSON bool
	cmd := &cobra.Command{
		Use:   "who ADDRESS:PORT --at TIME",
		Short: "Say which session, agent and user were behind an address at a time",
		Long: `Say which session, agent and user were behind an address at a time.

ADDRESS:PORT is the agent's end of its connection to Bawn. With --upstream it is
Bawn's end of a connection to a server, as the server or a NAT in front of it has
it in its log, or else the server's own address.

Network slots have the same addresses, so that several sessions can have had one
at the same time; all are named then, and --agent chooses. CERTAINTY says what an
answer rests on: carried (a request was under way), between (the session had the
address before and after), earlier and later (the nearest use that is on record).
Exit status 1 where nothing is found.`,
		Args: wants("ADDRESS:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := whoQuery(cmd, args[0], at, time.Now())
			if err != nil {
				return err
			}
			if upstream {
				q.Set("upstream", "true")
			}
			if agent != "" {
				q.Set("agent", agent)
			}
			w, err := a.client().Who(cmd.Context(), q)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.stdout, w)
			} else {
				err = a.printWho(w)
			}
			if err == nil && len(w.Found) == 0 {
				return &statusError{1}
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&at, "at", "", "the `TIME`, as in \"bawn log --since\"; one without fractions means the whole second")
	fl.BoolVar(&upstream, "upstream", false, "the address is of a connection to a server")
	fl.StringVar(&agent, "agent", "", "only `AGENT`")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func whoQuery(cmd *cobra.Command, address, at string, now time.Time) (url.Values, error) {
	if ap, err := netip.ParseAddrPort(address); err != nil || ap.Port() == 0 {
		return nil, wrongUse(cmd, "%q is not ADDRESS:PORT", address)
	}
	if at == "" {
		return nil, wrongUse(cmd, "--at is missing: the same address is used again and again")
	}
	t, err := parseTime(at, now)
	if err != nil {
		return nil, wrongUse(cmd, "--at %q: %s", at, timeForms)
	}
	q := url.Values{"address": {address}, "at": {t.Format(time.RFC3339Nano)}}
	if t.Nanosecond() == 0 {
		q.Set("within", "999.999ms")
	}
	return q, nil
}

func (a *app) printWho(w apitype.Who) error {
	fmt.Fprintln(a.stdout, termfilter.Line(w.Why))
	if len(w.Found) > 0 {
		t := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "AGENT\tUSER\tSESSION\tSLOT\tCERTAINTY\tFROM\tTO\tREQUEST\tWHAT")
		for _, s := range w.Found {
			to := "-"
			if s.To != nil {
				to = clock(*s.To)
			}
			fmt.Fprintln(t, strings.Join([]string{
				dash(s.Agent), dash(s.User), dash(s.Session), fmt.Sprintf("%d (%s)", s.Slot, s.Gen), dash(s.Certainty), clock(s.From), to, dash(s.Request), dash(s.What),
			}, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	a.printNote(w.Note)
	return nil
}

// printNote says in which way an answer is not all that there is.
func (a *app) printNote(note string) {
	if note != "" {
		fmt.Fprintln(a.stderr, "bawn: note: "+termfilter.Line(note))
	}
}
