// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"strings"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/quota"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		what  quota.What
		text  string
		limit int64
		per   quota.Period
		shown string // "": as it was written
	}{
		{quota.EgressBytes, "500MB/day", 500e6, quota.Day, ""},
		{quota.EgressBytes, "1000kB/h", 1e6, quota.Hour, "1MB/h"},
		{quota.IngressBytes, "2MiB/minute", 2 << 20, quota.Minute, "2MiB/min"},
		{quota.IngressBytes, "1001B/s", 1001, quota.Second, ""},
		{quota.IngressBytes, "1024B/s", 1024, quota.Second, "1kiB/s"},
		{quota.Requests, "600/min", 600, quota.Minute, ""},
		{quota.Requests, "10/second", 10, quota.Second, "10/s"},
		{quota.Names, "1000/day", 1000, quota.Day, ""},
		{quota.Connections, "256", 256, quota.AtATime, ""},
		{quota.NewConnections, "5/hour", 5, quota.Hour, "5/h"},
	} {
		limit, per, err := quota.Parse(c.what, c.text)
		if err != nil || limit != c.limit || per != c.per {
			t.Errorf("%s: %s is %d per %q (%v)", c.what, c.text, limit, per, err)
		}
		b := quota.Budget{Key: quota.Key{What: c.what, Per: per}, Limit: limit}
		if want := c.shown; b.Amount() != want && (want != "" || b.Amount() != c.text) {
			t.Errorf("%s: %s is shown as %s", c.what, c.text, b.Amount())
		}
	}
	for what, texts := range map[quota.What][]string{
		quota.EgressBytes: {
			"", "500/day", "500MB", "MB/day", "0MB/day", "-1MB/day", "+1MB/day", "01MB/day", "1.5MB/day", "1mb/day", "1KB/day", "5MBB/day", "5B/week",
			"5MB/day/day", "999999999999TB/day", "9999999999999999999B/day", "5 MB/day", "5i/day",
		},
		quota.Requests:    {"600MB/min", "600", "0/min", "x/min", "/min", "72057594037927937/day"},
		quota.Names:       {"10/min", "10/s", "100001/day"},
		quota.Connections: {"10/s", "0", ""},
	} {
		for _, text := range texts {
			if limit, per, err := quota.Parse(what, text); err == nil {
				t.Errorf("%s: %q is %d per %q", what, text, limit, per)
			}
		}
	}
}

func TestEveryWhatHasAName(t *testing.T) {
	for _, w := range quota.Whats() {
		if again, ok := quota.ParseWhat(w.String()); !ok || again != w {
			t.Errorf("%s is read as %s", w, again)
		}
	}
	if _, ok := quota.ParseWhat("what(8)"); ok || quota.What(200).String() == "" {
		t.Error("a name of nothing")
	}
}

// TestWindows: periods are those of UTC, whatever the zone of the clock.
func TestWindows(t *testing.T) {
	east := time.FixedZone("east", 5*60*60+45*60)
	at := time.Date(2026, 11, 30, 23, 59, 59, 999, time.UTC)
	for _, per := range []quota.Period{quota.Second, quota.Minute, quota.Hour, quota.Day} {
		w := per.Window(at)
		if per.Window(at.In(east)) != w || per.Window(at.Add(time.Second)) != w+1 {
			t.Errorf("%s: the window of %s is %d", per, at, w)
		}
		if got := per.Begins(w + 1); !got.Equal(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("%s: the next begins at %s", per, got)
		}
	}
	if quota.Day.Window(time.Time{}) != 0 || quota.AtATime.Window(at) != 0 {
		t.Error("a window of no time")
	}
}

func TestRefusalsNameTheBudget(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		b    quota.Budget
		code codes.Code
		says []string
	}{
		{quota.Budget{Key: quota.Key{What: quota.EgressBytes, Per: quota.Day}, Limit: 500e6, Origin: "profile coder", Line: 9},
			codes.BudgetExceeded, []string{"egress_bytes 500MB/day", "profile coder", "line 9", "2026-12-01T00:00:00Z"}},
		{quota.Budget{Key: quota.Key{What: quota.Requests, Per: quota.Minute, Rule: "api"}, Limit: 600, Origin: "rule api"},
			codes.RateLimited, []string{"requests 600/min", "rule api", "2026-11-30T12:01:00Z"}},
		{quota.Budget{Key: quota.Key{What: quota.Connections}, Limit: 4}, codes.ConcurrencyExceeded, []string{"connections 4", "in use"}},
		{quota.Budget{Key: quota.Key{What: quota.EgressBytes, Per: quota.Second}, Limit: 4}, codes.BudgetExceeded, []string{"4B/s"}},
	} {
		v := c.b.Refuse(c.b.Per.Window(at))
		if v.Allowed() || v.Why() != c.code || v.Rule != c.b.Rule || v.Stage != quota.Stage {
			t.Errorf("%+v", v)
		}
		for _, say := range c.says {
			if !strings.Contains(v.Detail, say) {
				t.Errorf("%q does not say %q", v.Detail, say)
			}
		}
	}
}

// TestTightest: an agent's own budget never loosens its profile's.
func TestTightest(t *testing.T) {
	b := func(w quota.What, per quota.Period, limit int64, origin string) quota.Budget {
		return quota.Budget{Key: quota.Key{What: w, Per: per}, Limit: limit, Origin: origin}
	}
	got := quota.Tightest(
		[]quota.Budget{b(quota.Requests, quota.Minute, 600, "profile"), b(quota.Requests, quota.Day, 9000, "profile")},
		[]quota.Budget{b(quota.Requests, quota.Minute, 6000, "agent"), b(quota.Requests, quota.Day, 50, "agent"), b(quota.Names, quota.Day, 5, "agent")})
	if len(got) != 3 || got[0].Limit != 600 || got[0].Origin != "profile" || got[1].Limit != 50 || got[1].Origin != "agent" || got[2].What != quota.Names {
		t.Errorf("%+v", got)
	}
}

func TestShow(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 999: "999B", 1000: "1.0kB", 1234567: "1.2MB", 500e6: "500.0MB", 2e12: "2.0TB"} {
		if got := quota.Show(quota.EgressBytes, n); got != want {
			t.Errorf("%d is shown as %s, want %s", n, got, want)
		}
	}
	if got := quota.Show(quota.Requests, 1234567); got != "1234567" {
		t.Error(got)
	}
}

// FuzzParse: what is read is shown in a form that reads the same, and never is
// beyond the bounds.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"500MB/day", "600/min", "256", "1kiB/s", "72057594037927936/day", "65536TiB/h"} {
		f.Add(uint8(0), s)
		f.Add(uint8(quota.Requests), s)
		f.Add(uint8(quota.Connections), s)
	}
	f.Fuzz(func(t *testing.T, what uint8, text string) {
		w := quota.What(what % uint8(len(quota.Whats())))
		limit, per, err := quota.Parse(w, text)
		if err != nil {
			return
		}
		if limit <= 0 || limit > quota.MaxLimit || (per == quota.AtATime) != (w == quota.Connections) {
			t.Fatalf("%s: %q is %d per %q", w, text, limit, per)
		}
		b := quota.Budget{Key: quota.Key{What: w, Per: per}, Limit: limit}
		again, perAgain, err := quota.Parse(w, b.Amount())
		if err != nil || again != limit || perAgain != per {
			t.Fatalf("%s: %q is %d per %q, shown as %q, which is %d per %q (%v)", w, text, limit, per, b.Amount(), again, perAgain, err)
		}
	})
}
