// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/budget"
	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/quota"
	"bawn/internal/verdict"
)

func openMeter(t testing.TB, dir string) *budget.Meter {
	t.Helper()
	m, err := budget.OpenMeter(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Keep(map[string]string{"dev": dev, "other": other}); err != nil {
		t.Fatal(err)
	}
	return m
}

func of(w quota.What, limit int64, per quota.Period, rule ...string) quota.Budget {
	return quota.Budget{Key: quota.Key{What: w, Per: per, Rule: strings.Join(rule, "")}, Limit: limit, Origin: "profile p", Line: 3}
}

var api = names.MustParse("api.example.com")

// begun says which code one more request is refused with, "" for none.
func begun(m *budget.Meter, agent string, now time.Time, budgets ...quota.Budget) codes.Code {
	return whyNot(m.NewPass(agent).Begin(budgets, nil, api, now))
}

func whyNot(v verdict.Verdict) codes.Code {
	if v.Allowed() {
		return ""
	}
	return v.Why()
}

func wants(t *testing.T, what string, got, want codes.Code) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func used(t *testing.T, m *budget.Meter, now time.Time, b quota.Budget) int64 {
	t.Helper()
	list, err := m.Usage("dev", []quota.Budget{b}, now)
	if err != nil {
		t.Fatal(err)
	}
	return list[0].Used
}

func TestRequestsAreCountedByTheAgent(t *testing.T) {
	m := openMeter(t, t.TempDir())
	b := of(quota.Requests, 3, quota.Minute)
	for i := range 5 {
		want := codes.Code("")
		if i >= 3 {
			want = codes.RateLimited
		}
		wants(t, fmt.Sprint("request ", i), begun(m, "dev", morning, b), want)
	}
	wants(t, "another agent", begun(m, "other", morning, b), "")
	wants(t, "the next minute", begun(m, "dev", morning.Add(time.Minute), b), "")
	wants(t, "an agent that nobody knows", begun(m, "nobody", morning, b), codes.InternalError)
	wants(t, "without a budget", begun(m, "nobody", morning), "")
	if n := m.Refused(quota.Requests); n != 2 {
		t.Errorf("%d refusals", n)
	}
}

// TestI10AnotherBoundBitesAtOnce: counts stay, bounds are those of the question.
func TestI10AnotherBoundBitesAtOnce(t *testing.T) {
	m := openMeter(t, t.TempDir())
	bytes := func(limit int64) []quota.Budget { return []quota.Budget{of(quota.EgressBytes, limit, quota.Day)} }
	p := m.NewPass("dev")
	now := func() time.Time { return morning }
	wants(t, "to begin", whyNot(p.Begin(bytes(1000), nil, api, morning)), "")
	wants(t, "600", whyNot(p.Take(quota.EgressBytes, 600, now)), "")
	wants(t, "smaller", whyNot(p.Adopt(bytes(500), nil, morning)), codes.BudgetExceeded)
	wants(t, "one more", whyNot(p.Take(quota.EgressBytes, 1, now)), codes.BudgetExceeded)
	wants(t, "another", whyNot(m.NewPass("dev").Begin(bytes(500), nil, api, morning)), codes.BudgetExceeded)
	wants(t, "larger", whyNot(p.Adopt(bytes(2000), nil, morning)), "")
	wants(t, "1400", whyNot(p.Take(quota.EgressBytes, 1400, now)), "")
	wants(t, "beyond", whyNot(p.Take(quota.EgressBytes, 1, now)), codes.BudgetExceeded)
	wants(t, "none", whyNot(p.Adopt(nil, nil, morning)), "")
	wants(t, "without a bound", whyNot(p.Take(quota.EgressBytes, 1<<40, now)), "")
	// A budget that a running request gets counts from then on.
	wants(t, "one for its rule", whyNot(p.Adopt(nil, []quota.Budget{of(quota.EgressBytes, 10, quota.Hour, "api")}, morning)), "")
	wants(t, "11", whyNot(p.Take(quota.EgressBytes, 11, now)), codes.BudgetExceeded)
	wants(t, "10", whyNot(p.Take(quota.EgressBytes, 10, now)), "")
}

// TestWhatIsRefusedIsNotCounted, by none of several budgets.
func TestWhatIsRefusedIsNotCounted(t *testing.T) {
	m := openMeter(t, t.TempDir())
	day, minute := of(quota.Requests, 100, quota.Day), of(quota.Requests, 2, quota.Minute)
	for range 5 {
		begun(m, "dev", morning, day, minute)
	}
	if n := used(t, m, morning, day); n != 2 {
		t.Errorf("%d requests were counted, 2 let through", n)
	}
	p := m.NewPass("dev")
	for range 3 { // judged again, as when the policy changes meanwhile
		wants(t, "again", whyNot(p.Begin([]quota.Budget{day}, nil, api, morning)), "")
	}
	if n := used(t, m, morning, day); n != 3 {
		t.Errorf("%d requests were counted, 3 let through", n)
	}
}

// TestRefusedRequestsCostNoName, and refused names no request.
func TestRefusedRequestsCostNoName(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	m := budget.NewMeter()
	requests, hosts := of(quota.Requests, 2, quota.Hour), of(quota.Names, 2, quota.Day)
	ask := func(host string) codes.Code {
		return whyNot(m.NewPass("dev").Begin([]quota.Budget{requests, hosts}, nil, names.MustParse(host), now))
	}
	wants(t, "the first", ask("a.example.com"), "")
	wants(t, "the second", ask("b.example.com"), "")
	wants(t, "a name too many", ask("c.example.com"), codes.BudgetExceeded)
	hosts.Limit, requests.Limit = 10, 2
	for _, host := range []string{"d.example.com", "e.example.com"} {
		wants(t, "a request too many", ask(host), codes.BudgetExceeded)
	}
	if n := used(t, m, now, hosts); n != 2 {
		t.Errorf("%d names", n)
	}
	if n := used(t, m, now, requests); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestNamesAreCountedOnce(t *testing.T) {
	dir := t.TempDir()
	b := []quota.Budget{of(quota.Names, 2, quota.Day)}
	for i, c := range []struct {
		name string
		at   time.Time
		want codes.Code
	}{
		{"a.example", morning, ""},
		{"b.example", morning, ""},
		{"a.example", morning, ""},
		{"c.example", morning, codes.BudgetExceeded},
		{"b.example", morning, ""},
		{"c.example", morning.Add(24 * time.Hour), ""},
		{"a.example", morning.Add(24 * time.Hour), ""},
		{"b.example", morning.Add(24 * time.Hour), codes.BudgetExceeded},
		{"b.example", morning, codes.BudgetExceeded}, // set back
	} {
		m := openMeter(t, dir) // each in another run
		wants(t, fmt.Sprint(i, " ", c.name), whyNot(m.NewPass("dev").Begin(b, nil, names.MustParse(c.name), c.at)), c.want)
		m.Close()
	}
}

func TestConnections(t *testing.T) {
	m := openMeter(t, t.TempDir())
	b := []quota.Budget{of(quota.Connections, 2, quota.AtATime), of(quota.NewConnections, 3, quota.Hour)}
	one, two := m.Connections("dev"), m.Connections("dev") // of two leases
	wants(t, "1", whyNot(m.Connect("dev", one, b, morning)), "")
	wants(t, "2", whyNot(m.Connect("dev", two, b, morning)), "")
	wants(t, "3", whyNot(m.Connect("dev", one, b, morning)), codes.ConcurrencyExceeded)
	one.Leave()
	wants(t, "4", whyNot(m.Connect("dev", two, b, morning)), "")
	two.Leave()
	wants(t, "5", whyNot(m.Connect("dev", two, b, morning)), codes.BudgetExceeded)
	if n := used(t, m, morning, b[0]); n != 1 {
		t.Errorf("%d are open", n)
	}
	wants(t, "a question", whyNot(m.Once("dev", quota.Queries, b, morning)), "")
}

// TestManyAtATime: however many ask at a time, no more is let through.
func TestManyAtATime(t *testing.T) {
	m := openMeter(t, t.TempDir())
	b := []quota.Budget{of(quota.EgressBytes, 1<<20, quota.Day), of(quota.EgressBytes, 1<<21, quota.Hour)}
	var sum, all int64
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			p := m.NewPass("dev")
			mine := int64(0)
			if p.Begin(b, nil, api, morning).Allowed() {
				for n := int64(1 + i); p.Take(quota.EgressBytes, n, func() time.Time { return morning }).Allowed(); {
					mine += n
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum += mine
		})
	}
	group.Wait()
	for _, x := range b {
		all += used(t, m, morning, x)
	}
	if sum > 1<<20 || sum < 1<<20-16 || all != 2*sum {
		t.Errorf("%d octets went through, counted are %d, the bound is %d", sum, all/2, 1<<20)
	}
}

// TestI13WhatACrashCosts: what was set aside counts as used after a crash, and is
// given back at an orderly end.
func TestI13WhatACrashCosts(t *testing.T) {
	for _, c := range []struct {
		per  quota.Period
		most int64 // that a crash may cost
	}{{quota.Second, 6400}, {quota.Minute, 800}, {quota.Hour, 200}, {quota.Day, 100}} {
		dir, spare := t.TempDir(), t.TempDir()
		b := of(quota.Requests, 6400, c.per)
		m := openMeter(t, dir)
		for range 10 {
			wants(t, "before", begun(m, "dev", morning, b), "")
		}
		copyFiles(t, dir, spare) // as a kill would leave it
		m.Close()
		m = openMeter(t, dir)
		if n := used(t, m, morning, b); n != 10 {
			t.Errorf("by the %s: %d are used after an orderly end", c.per, n)
		}
		m = openMeter(t, spare)
		if n := used(t, m, morning, b); n < 10 || n > 10+c.most {
			t.Errorf("by the %s: %d are used after a crash", c.per, n)
		}
	}
}

func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil && e.Name() != "lock" {
			err = os.WriteFile(filepath.Join(to, e.Name()), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestANewAgentOfAnOldNameBeginsAnew, and its predecessor cannot count for it.
func TestANewAgentOfAnOldNameBeginsAnew(t *testing.T) {
	m := openMeter(t, t.TempDir())
	b := of(quota.Requests, 64, quota.Day)
	old := m.NewPass("dev")
	wants(t, "the old one", whyNot(old.Begin([]quota.Budget{b, of(quota.EgressBytes, 1000, quota.Day)}, nil, api, morning)), "")
	if err := m.Keep(map[string]string{"dev": "a-00000000000000aa", "other": other}); err != nil {
		t.Fatal(err)
	}
	if n := used(t, m, morning, b); n != 0 {
		t.Errorf("the new one has used %d", n)
	}
	wants(t, "the old one, later", whyNot(old.Take(quota.EgressBytes, 1, time.Now)), codes.InternalError)
}

// TestWhatCannotBeWrittenIsRefused, and is let through when the disk works again.
func TestWhatCannotBeWrittenIsRefused(t *testing.T) {
	dir := t.TempDir()
	m := openMeter(t, dir)
	b := of(quota.Requests, 64, quota.Day)
	wants(t, "first", begun(m, "dev", morning, b), "") // and one more is set aside
	wants(t, "second", begun(m, "dev", morning, b), "")
	path := filepath.Join(dir, "dev."+dev+".used")
	for _, err := range []error{os.Rename(path, path+".aside"), os.Mkdir(path, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wants(t, "no disk", begun(m, "dev", morning, b), codes.InternalError)
	for _, err := range []error{os.Remove(path), os.Rename(path+".aside", path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wants(t, "a disk", begun(m, "dev", morning, b), "")
	if n := used(t, m, morning, b); n != 3 {
		t.Errorf("%d were counted, 3 let through", n)
	}
}

// TestClosedMeterLetsNothingThrough that it would have to write down.
func TestClosedMeterLetsNothingThrough(t *testing.T) {
	dir := t.TempDir()
	m := openMeter(t, dir)
	b := of(quota.Requests, 6400, quota.Day)
	wants(t, "open", begun(m, "dev", morning, b), "")
	m.Close()
	wants(t, "closed", begun(m, "dev", morning, b), codes.InternalError)
	if n := used(t, openMeter(t, dir), morning, b); n != 1 {
		t.Errorf("%d are used", n)
	}
}

// TestFilesStaySmall: what is said again and again is written anew.
func TestFilesStaySmall(t *testing.T) {
	dir := t.TempDir()
	m := openMeter(t, dir)
	b := of(quota.Requests, 1, quota.Second)
	for i := range 700 {
		wants(t, "request", begun(m, "dev", morning.Add(time.Duration(i)*time.Second), b), "")
	}
	text, err := os.ReadFile(filepath.Join(dir, "dev."+dev+".used"))
	if n := strings.Count(string(text), "\n"); err != nil || n > 300 {
		t.Errorf("%d lines (%v)", n, err)
	}
	m.Close()
	wants(t, "the same second", begun(openMeter(t, dir), "dev", morning.Add(699*time.Second), b), codes.RateLimited)
}

// TestDamagedFilesRefuse: nobody gets anew what a damaged file cannot say.
func TestDamagedFilesRefuse(t *testing.T) {
	for _, text := range []string{
		"x\n", "used requests day - 20000\n", "used requests day - 20000 x\n", "used requests day - 20000 -1\n", "used requests week - 1 1\n",
		"used requests day A 1 1\n", "used requests day - 01 1\n", "used nothing day - 1 1\n", "used names day - 1 1\n", "name names day - 1 A.example\n",
		"name requests day - 1 a.example\n", "used connections  - 1 1\n", "used requests second - 1 1\n", "used requests day - 20513 1 1\n", "\n",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "dev."+dev+".used"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wants(t, fmt.Sprintf("%q", text), begun(openMeter(t, dir), "dev", morning, of(quota.Requests, 100, quota.Day)), codes.InternalError)
	}
}

// TestCountsOfGrantsAreKept: their ids have a dot.
func TestCountsOfGrantsAreKept(t *testing.T) {
	dir := t.TempDir()
	b := of(quota.Requests, 1, quota.Hour, "grant.g7")
	for _, want := range []codes.Code{"", codes.BudgetExceeded} {
		m := openMeter(t, dir)
		wants(t, "under a grant", begun(m, "dev", morning, b), want)
		m.Close()
	}
}

// FuzzUsed: a file that is read is written back so that it says the same; any
// other refuses, and is left as it is.
func FuzzUsed(f *testing.F) {
	f.Add([]byte("used requests day - 20513 7\nname names day api 20513 a.example\n"))
	f.Add([]byte("used egress_bytes min grant.g7 29538720 65536\nused egress_bytes min grant.g7 29538720 131072\nused requ"))
	f.Add([]byte("name names h - 492312 a.example\nname names h - 492312 b.example\nname names h - 492313 a.example\n"))
	bounds := []quota.Budget{
		of(quota.Requests, 1<<50, quota.Day), of(quota.EgressBytes, 1<<50, quota.Minute, "grant.g7"), of(quota.Names, 1<<50, quota.Hour),
		of(quota.Names, 1<<50, quota.Day, "api"), of(quota.Messages, 1<<50, quota.Second),
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "dev."+dev+".used")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		m := openMeter(t, dir)
		first, err := m.Usage("dev", bounds, morning)
		m.Close()
		text, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil {
			if string(text) != string(data) {
				t.Fatalf("refused, and changed to %q", text)
			}
			return
		}
		second, err := openMeter(t, dir).Usage("dev", bounds, morning)
		if err != nil || fmt.Sprint(second) != fmt.Sprint(first) {
			t.Fatalf("%q became %q: first %v, then %v (%v)", data, text, first, second, err)
		}
	})
}

// BenchmarkTake is what a piece of a body costs under a budget for the day.
func BenchmarkTake(b *testing.B) {
	m := openMeter(b, b.TempDir())
	p := m.NewPass("dev")
	if v := p.Begin([]quota.Budget{of(quota.EgressBytes, 1<<55, quota.Day), of(quota.Requests, 1<<50, quota.Minute)}, nil, api, time.Now()); !v.Allowed() {
		b.Fatal(v.Detail)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Take(quota.EgressBytes, 1, time.Now)
		}
	})
}

// BenchmarkBegin is what a request costs under two budgets.
func BenchmarkBegin(b *testing.B) {
	m := openMeter(b, b.TempDir())
	set := []quota.Budget{of(quota.EgressBytes, 1<<55, quota.Day), of(quota.Requests, 1<<50, quota.Minute)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if v := m.NewPass("dev").Begin(set, nil, api, time.Now()); !v.Allowed() {
				b.Error(v.Detail)
			}
		}
	})
}
