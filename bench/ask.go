// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
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
