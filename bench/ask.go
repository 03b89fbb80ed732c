// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/index"
	"bawn/internal/verdict"
)

// askAll measures the first page of each filter, on an index that has just been
// opened, and again.
func askAll(o index.Options) error {
	ctx := context.Background()
	x := index.Open(ctx, o)
	defer x.Close()
	newest, _, err := x.Page(ctx, audit.Filter{Limit: 1}, index.Cursor{})
	if err != nil || len(newest) == 0 {
		return fmt.Errorf("the index is empty: %w", err)
	}
	end := newest[0].Decision.Time
	for _, a := range filterRows(end) {
		var took []time.Duration
		found := 0
		for range 5 {
			a.f.Limit = 100
			began := time.Now()
			page, _, err := x.Page(ctx, a.f, index.Cursor{})
			if err != nil {
				return err
			}
			took, found = append(took, time.Since(began)), len(page)
		}
		first := took[0]
		fmt.Printf("log %-34s first %7.1f ms, slowest of four more %7.1f ms, %d entries\n",
			a.name, ms(first), ms(slices.Max(took[1:])), found)
	}
	if err := askTotals(ctx, x, end); err != nil {
		return err
	}
	return askWho(ctx, x, end)
}

func askTotals(ctx context.Context, x *index.Index, end time.Time) error {
	for _, a := range []struct {
		name string
		f    audit.Filter
		by   int
	}{
		{"log --by agent, all", audit.Filter{}, index.ByAgent},
		{"log --by hour, all", audit.Filter{}, index.ByHour},
		{"log --by code --agent, all", audit.Filter{Agent: "agent-7"}, index.ByCode},
		{"usage, all", audit.Filter{}, index.ByAgent | index.ByHost},
		{"report --since 7d (one half)", audit.Filter{Since: end.Add(-7 * 24 * time.Hour)}, index.ByAgent | index.ByUser | index.ByHost | index.ByCode},
	} {
		began := time.Now()
		list, err := x.Totals(ctx, a.f, a.by)
		if err != nil {
			return err
		}
		fmt.Printf("%-38s %7.1f ms, %d groups\n", a.name, ms(time.Since(began)), len(list))
	}
	return nil
}

// whoAsked is how many addresses are looked for on each side.
const whoAsked = 200

// askWho looks for the sessions behind addresses that were used at times all over
// the journal.
func askWho(ctx context.Context, x *index.Index, end time.Time) error {
	r := rand.New(rand.NewPCG(fleetSeed, 99))
	sides := map[string][]index.Asking{}
	for len(sides["client"]) < whoAsked {
		page, _, err := x.Page(ctx, audit.Filter{Until: end.Add(-time.Duration(r.Int64N(int64(29 * 24 * time.Hour)))), Limit: 1}, index.Cursor{})
		if err != nil {
			return err
		}
		if len(page) == 0 || page[0].Outcome == nil {
			continue
		}
		e := page[0]
		at := e.Decision.Time.Add(time.Millisecond)
		sides["client"] = append(sides["client"], index.Asking{Address: e.Decision.Client, At: at})
		sides["local"] = append(sides["local"], index.Asking{Address: e.Outcome.Local, Upstream: true, At: at})
		sides["server"] = append(sides["server"], index.Asking{Address: e.Outcome.Upstream, Upstream: true, At: at})
	}
	for _, side := range []string{"client", "local", "server"} {
		var took []time.Duration
		for _, a := range sides[side] {
			began := time.Now()
			f, err := x.Who(ctx, a)
			if err != nil {
				return err
			}
			took = append(took, time.Since(began))
			if len(f.Suspects) == 0 || f.Side != side {
				return fmt.Errorf("who %s: found %+v", a.Address, f)
			}
		}
		slices.Sort(took)
		fmt.Printf("who, %-33s median %6.1f ms, slowest of %d %7.1f ms\n", side, ms(took[len(took)/2]), len(took), ms(took[len(took)-1]))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

type filterRow struct {
	name string
	f    audit.Filter
}

func filterRows(end time.Time) []filterRow {
	deny := verdict.Deny
	old := end.Add(-20 * 24 * time.Hour)
	return []filterRow{
		{"(everything)", audit.Filter{}},
		{"--agent (2.5 %)", audit.Filter{Agent: "agent-7"}},
		{"--user (8 %)", audit.Filter{User: "user-3@example.com"}},
		{"--host, common", audit.Filter{Host: "host-0.example.com"}},
		{"--host, rare", audit.Filter{Host: "host-79.example.com"}},
		{"--host, none", audit.Filter{Host: "nowhere.example.org"}},
		{"--verdict deny", audit.Filter{Verdict: &deny}},
		{"--code host_not_allowed", audit.Filter{Code: codes.HostNotAllowed}},
		{"--code upstream_unreachable", audit.Filter{Code: codes.UpstreamUnreachable}},
		{"--code, none", audit.Filter{Code: codes.TargetInvalid}},
		{"--plane", audit.Filter{Plane: "proxy"}},
		{"--rule", audit.Filter{Rule: "coder.3"}},
		{"--session, none", audit.Filter{Session: "s-0"}},
		{"--method POST", audit.Filter{Method: "POST"}},
		{"--path /v1/objects/ (a third)", audit.Filter{Path: "/v1/objects/"}},
		{"--path /v1/objects/ab (0.1 %)", audit.Filter{Path: "/v1/objects/ab"}},
		{"--path, none", audit.Filter{Path: "/v2/"}},
		{"--status 404", audit.Filter{Status: 404}},
		{"--status, none", audit.Filter{Status: 418}},
		{"--upstream", audit.Filter{Upstream: "192.0.2.70:443"}},
		{"--client", audit.Filter{Client: "127.0.0.1:40000"}},
		{"--request, none", audit.Filter{Request: "r-0000000000000000"}},
		{"--until 20 days ago", audit.Filter{Until: old}},
		{"--agent --host, never together", audit.Filter{Agent: "agent-7", Host: "telemetry-999.example.net"}},
		{"--agent --method --status --path", audit.Filter{Agent: "agent-7", Method: "POST", Status: 404, Path: "/v1/objects/"}},
		{"--host --path, never together", audit.Filter{Host: "host-0.example.com", Path: "/v1/projects/1/"}},
	}
}
