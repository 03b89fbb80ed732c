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
	"bawn/internal/labels"
	"bawn/internal/names"
)

const (
	dev   = "a-00000000000000de"
	other = "a-0000000000000002"
)

var (
	wild    = names.MustPattern("*.example.com")
	morning = time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
)

func open(t testing.TB, dir string, lim labels.Limits) *budget.Labels {
	t.Helper()
	l, err := budget.OpenLabels(dir, lim, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.Keep(map[string]string{"dev": dev, "other": other}); err != nil {
		t.Fatal(err)
	}
	return l
}

// taken says which code the agent is told for a name, "" for none.
func taken(l *budget.Labels, agent, name string, under names.Pattern, now time.Time) codes.Code {
	v := l.Take(agent, names.MustParse(name), under, now)
	if v.Allowed() {
		return ""
	}
	return v.Why()
}

// TestManyNamesUnderAWildcard is a tunnel: a thousand names of sixty hexadecimal
// digits under an allowed wildcard.
func TestManyNamesUnderAWildcard(t *testing.T) {
	l := open(t, t.TempDir(), labels.Limits{})
	through := 0
	for i := range 1000 {
		if taken(l, "dev", fmt.Sprintf("%060x.example.com", i), wild, morning) == "" {
			through++
		}
	}
	if through != 8192/60 {
		t.Errorf("%d names got through", through)
	}
	for name, want := range map[string]codes.Code{
		fmt.Sprintf("%060x.example.com", 1):      "", // as often as it likes: it tells nothing new
		"new.example.com":                        "", // there is room for short ones
		strings.Repeat("a", 63) + ".example.com": codes.DNSLabelBudget,
		strings.Repeat("b.", 9) + "example.com":  codes.DNSLabelBudget,
		strings.Repeat("a", 40) + "." + strings.Repeat("b", 40) + "." + strings.Repeat("c", 40) + ".example.com": codes.DNSLabelBudget,
	} {
		if got := taken(l, "dev", name, wild, morning); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := taken(l, "dev", "named.example.com", names.Exact(names.MustParse("named.example.com")), morning); got != "" {
		t.Errorf("a name that a rule names: %q", got)
	}
	if got := taken(l, "other", fmt.Sprintf("%060x.example.com", 999), wild, morning); got != "" {
		t.Errorf("another agent: %q", got)
	}
}

// TestSplitOverLabelsAndRules: names count for the registered domain, however
// they are split and whatever rule lets them in.
func TestSplitOverLabelsAndRules(t *testing.T) {
	l := open(t, t.TempDir(), labels.Limits{Names: 4})
	for i, c := range []struct {
		name, under string
		want        codes.Code
	}{
		{"sk-ant.aabb.ccdd.x.example.com", "*.example.com", ""},
		{"a.x.example.com", "*.x.example.com", ""},
		{"b.x.example.com", "*.example.com", ""},
		{"c.y.example.com", "*.y.example.com", ""},
		{"d.z.example.com", "*.z.example.com", codes.DNSLabelBudget},
		{"a.x.example.com", "*.x.example.com", ""},
		{"d.example.net", "*.example.net", ""},
	} {
		if got := taken(l, "dev", c.name, names.MustPattern(c.under), morning); got != c.want {
			t.Errorf("%d: %s: %q, want %q", i, c.name, got, c.want)
		}
	}
}

// TestManyDomains: under a rule for the whole internet each domain has its own
// budget, and all together have one.
func TestManyDomains(t *testing.T) {
	l := open(t, t.TempDir(), labels.Limits{Names: 2, AllNames: 5})
	through := 0
	for i := range 9 {
		if taken(l, "dev", fmt.Sprintf("www.d%d.example", i), names.MustPattern("*"), morning) == "" {
			through++
		}
	}
	if through != 5 {
		t.Errorf("%d names got through", through)
	}
}

// TestDays: the next day begins anew; a clock that is set back gives nothing
// back.
func TestDays(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, labels.Limits{Names: 1})
	again := func() {
		l.Close()
		l = open(t, dir, labels.Limits{Names: 1})
	}
	day := 24 * time.Hour
	for i, c := range []struct {
		name string
		at   time.Time
		want codes.Code
	}{
		{"a", morning, ""},
		{"b", morning.Add(17 * time.Hour), codes.DNSLabelBudget},
		{"b", morning.Add(day), ""},
		{"a", morning.Add(day), codes.DNSLabelBudget},
		{"a", morning, codes.DNSLabelBudget}, // set back
		{"b", morning, ""},
		{"a", morning.Add(5 * time.Hour), codes.DNSLabelBudget},
		{"a", morning.Add(day), ""},
		{"b", morning.Add(1000 * day), ""}, // wrong for a while
		{"c", morning.Add(day), codes.DNSLabelBudget},
		{"c", morning.Add(2 * day), ""},
	} {
		if got := taken(l, "dev", c.name+".example.com", wild, c.at); got != c.want {
			t.Errorf("%d: %s at %s: %q, want %q", i, c.name, c.at, got, c.want)
		}
		again()
	}
}

// TestI13NoCountIsLost: what was counted is on disk before Take returns, wherever
// the process is killed, so that another start finds it.
func TestI13NoCountIsLost(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		l := open(t, dir, labels.Limits{Names: 7})
		want := codes.Code("")
		if i >= 7 {
			want = codes.DNSLabelBudget
		}
		if got := taken(l, "dev", fmt.Sprintf("n%d.example.com", i), wild, morning); got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
		l.Close() // writes nothing
	}
}

func TestAnotherOfTheSameNameBeginsAnew(t *testing.T) {
	l := open(t, t.TempDir(), labels.Limits{Names: 1})
	taken(l, "dev", "a.example.com", wild, morning)
	if got := taken(l, "dev", "b.example.com", wild, morning); got != codes.DNSLabelBudget {
		t.Fatalf("%q", got)
	}
	if err := l.Keep(map[string]string{"dev": "a-00000000000000ff"}); err != nil {
		t.Fatal(err)
	}
	if got := taken(l, "dev", "b.example.com", wild, morning); got != "" {
		t.Errorf("%q", got)
	}
	if got := taken(l, "other", "a.example.com", wild, morning); got != codes.InternalError {
		t.Errorf("an agent that is not registered: %q", got)
	}
}

// TestWhatCannotBeCountedIsRefused: a full or broken disk opens nothing, and
// neither does a file that somebody has damaged.
func TestWhatCannotBeCountedIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "dev."+dev+".labels")
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, labels.Limits{})
	if got := taken(l, "dev", "a.example.com", wild, morning); got != codes.InternalError {
		t.Errorf("no file can be made: %q", got)
	}
	l.Close()
	for _, text := range []string{
		"day x\n", "a.example.com *.example.com\n", "day 1\nA.example.com *.example.com\n", "day 1\na.example.com\n",
		"day 1\na.example.com a.example.com\n", "day 1\na.example.com *.example.net\n", "day 1\n\n", "day -1\n", "\x00\x00\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, dir, labels.Limits{})
		if got := taken(l, "dev", "a.example.com", wild, morning); got != codes.InternalError {
			t.Errorf("%q: %q", text, got)
		}
		l.Close()
	}
}

func TestWhatLooksEncodedIsSaid(t *testing.T) {
	l := open(t, t.TempDir(), labels.Limits{})
	for name, want := range map[string]bool{"www": false, "48656c6c6f20776f726c642048656c6c6f": true} {
		for range 2 {
			v := l.Take("dev", names.MustParse(name+".example.com"), wild, morning)
			if !v.Allowed() || strings.Contains(v.Detail, "encoded") != want {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
}

func TestInMemory(t *testing.T) {
	l := budget.NewLabels(labels.Limits{Names: 1})
	for _, c := range []struct {
		agent, name string
		at          time.Time
		want        codes.Code
	}{
		{"dev", "a", morning, ""},
		{"dev", "b", morning, codes.DNSLabelBudget},
		{"anybody", "b", morning, ""},
		{"dev", "b", morning.Add(24 * time.Hour), ""},
	} {
		if got := taken(l, c.agent, c.name+".example.com", wild, c.at); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestOneName: however many ask at once, the same name is counted once.
func TestOneName(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, labels.Limits{Names: 20})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if got := taken(l, "dev", fmt.Sprintf("n%d.example.com", (i+g)%20), wild, morning); got != "" {
					t.Error(got)
				}
			}
		})
	}
	wg.Wait()
	if got := taken(l, "dev", "n20.example.com", wild, morning); got != codes.DNSLabelBudget {
		t.Errorf("%q", got)
	}
}

// FuzzFile: whatever the file holds, it is refused or its whole lines are what
// is counted.
func FuzzFile(f *testing.F) {
	f.Add([]byte("day 20513\na.example.com *.example.com\nb.example"))
	f.Add([]byte("day 20513\n"))
	f.Add([]byte("day 99999999\nx.y.example.com *\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "dev."+dev+".labels")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, dir, labels.Limits{})
		code := taken(l, "dev", "fuzz.example.com", wild, morning)
		l.Close()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if code == codes.InternalError {
			if string(text) != string(data) {
				t.Fatalf("refused, and changed to %q", text)
			}
			return
		}
		l = open(t, dir, labels.Limits{})
		if again := taken(l, "dev", "fuzz.example.com", wild, morning); again != code {
			t.Fatalf("%q became %q: first %q, then %q", data, text, code, again)
		}
	})
}

// BenchmarkKnownName is what a request to a name under a wildcard costs once the
// name has been counted.
func BenchmarkKnownName(b *testing.B) {
	l := open(b, b.TempDir(), labels.Limits{})
	h := names.MustParse("cdn.a.example.com")
	b.ReportAllocs()
	for b.Loop() {
		if v := l.Take("dev", h, wild, morning); !v.Allowed() {
			b.Fatal(v)
		}
	}
}
