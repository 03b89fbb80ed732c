// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/metrics"
	"bawn/internal/roottest"
	"bawn/internal/verdict"
)

func journal(t testing.TB) *audit.Journal {
	t.Helper()
	j, err := audit.OpenJournal(t.TempDir(), audit.Options{Plane: "proxy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func decision(v verdict.Effect, code codes.Code) *audit.Decision {
	return &audit.Decision{
		Request: ids.NewRequest(), Identity: ids.Identity{Agent: "dev", Session: "s-1", User: "alice"},
		Host: "api.example.com", Verdict: v, Code: code,
	}
}

// series lists every series that a text has.
func series(text []byte) []string {
	var list []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			name, _, _ := strings.Cut(line, " ")
			list = append(list, name)
		}
	}
	return list
}

// possible lists every series that there can be.
func possible() map[string]bool {
	all := map[string]bool{}
	for _, f := range metrics.Families() {
		combinations := []string{""}
		for _, l := range f.Labels {
			var next []string
			for _, c := range combinations {
				for _, v := range l.Values {
					next = append(next, c+","+l.Name+`="`+v+`"`)
				}
			}
			combinations = next
		}
		for _, c := range combinations {
			labels := strings.TrimPrefix(c, ",")
			if labels != "" {
				labels = "{" + labels + "}"
			}
			all[f.Name+labels] = true
		}
	}
	return all
}

var bucket = regexp.MustCompile(`,?le="[^"]*"|_(bucket|sum|count)\b`)

// TestAgentsMakeNoSeries: a hostile mix of hosts, names, codes and reasons adds no
// series that the list does not have, and no label holds any of it.
func TestAgentsMakeNoSeries(t *testing.T) {
	p, j := metrics.NewProxy(), journal(t)
	r := rand.New(rand.NewPCG(1, 2))
	hostile := func() string {
		parts := []string{"\x1b]52;c;", "a\nbawn_ready 0\n", `"} 1`, "\u202e", "host.example", "{}", strings.Repeat("x", 300), "host_not_allowed", "policy", ""}
		return parts[r.IntN(len(parts))] + parts[r.IntN(len(parts))]
	}
	recorders := []*metrics.Recorder{p.Recorder(metrics.Egress, j), p.Recorder(metrics.Resolver, j)}
	for range 3000 {
		to := recorders[r.IntN(2)]
		d := decision(verdict.Effect(r.IntN(5)), codes.Code(hostile()))
		d.Host, d.Asked, d.Path, d.Method, d.Rule, d.Agent, d.User, d.Stage = hostile(), hostile(), hostile(), hostile(), hostile(), hostile(), hostile(), hostile()
		if d.Verdict > verdict.Ask {
			d.Verdict = verdict.Deny
		}
		_ = to.Decide(d) // a share of the journal may be used up
		o := &audit.Outcome{Request: d.Request, Identity: d.Identity, Code: codes.Code(hostile()), Cut: hostile(), Error: hostile(),
			BytesUp: r.Int64(), BytesDown: -r.Int64(), Total: audit.Span(r.Int64()), DNS: audit.Span(-r.Int64())}
		if err := to.Outcome(o); err != nil {
			t.Fatal(err)
		}
	}
	samples := append(p.Samples(), metrics.OfJournal("proxy", j.Stats())...)
	for _, s := range samples {
		if err := metrics.Check(s); err != nil {
			t.Error(err)
		}
	}
	all := possible()
	for _, s := range series(metrics.Write(samples)) {
		if !all[strings.ReplaceAll(bucket.ReplaceAllString(s, ""), "{}", "")] {
			t.Errorf("series %s is not of the list", s)
		}
	}
	if len(all) > 2000 {
		t.Errorf("there can be %d series", len(all))
	}
}

// TestForeignSamplesAreRefused, whoever reports them.
func TestForeignSamplesAreRefused(t *testing.T) {
	for _, s := range []apitype.Sample{
		{Name: "bawn_evil_total"},
		{Name: "bawn_decisions_total", Labels: []string{"egress", "deny"}},
		{Name: "bawn_decisions_total", Labels: []string{"egress", "deny", "api.example.com"}},
		{Name: "bawn_decisions_total", Labels: []string{"egress", "deny", "none"}, Buckets: []uint64{1}},
		{Name: "bawn_ready", Labels: []string{"x"}},
		{Name: "bawn_stage_duration_seconds", Labels: []string{"judge"}},
		{Name: "bawn_stage_duration_seconds", Labels: []string{"judge"}, Buckets: make([]uint64, 3)},
		{Name: "bawn_process_up", Labels: []string{"proxy\"} 1\nevil{x=\""}},
	} {
		if metrics.Check(s) == nil {
			t.Errorf("%+v is taken", s)
		}
		if text := metrics.Write([]apitype.Sample{s}); len(text) > 0 {
			t.Errorf("%+v is written: %s", s, text)
		}
	}
}

// TestCounts: what goes through a recorder is what is counted.
func TestCounts(t *testing.T) {
	p, j := metrics.NewProxy(), journal(t)
	egress, dns := p.Recorder(metrics.Egress, j), p.Recorder(metrics.Resolver, j)
	for range 3 {
		d := decision(verdict.Allow, "")
		if err := egress.Decide(d); err != nil {
			t.Fatal(err)
		}
		o := &audit.Outcome{Request: d.Request, Identity: d.Identity, BytesUp: 10, BytesDown: 100, MessagesUp: 2, Cut: "budget", Code: codes.BudgetExceeded,
			Total: audit.Span(70 * time.Millisecond), DNS: audit.Span(time.Millisecond)}
		if err := egress.Outcome(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := dns.Decide(decision(verdict.Deny, codes.DNSNameNotAllowed)); err != nil {
		t.Fatal(err)
	}
	p.Judged(30 * time.Microsecond)
	p.Judged(time.Hour)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// Nothing can be written any more: what would be let through is refused, and
	// counts as that.
	if err := egress.Decide(decision(verdict.Allow, "")); err == nil {
		t.Error("a closed journal takes decisions")
	}
	egress.Decide(decision(verdict.Deny, codes.JournalUnavailable)) //nolint:errcheck // it is refused either way
	text := string(metrics.Write(append(p.Samples(), metrics.OfJournal("proxy", j.Stats())...)))
	for _, want := range []string{
		`bawn_decisions_total{plane="egress",verdict="allow",code="none"} 3`,
		`bawn_decisions_total{plane="egress",verdict="deny",code="journal_unavailable"} 1`,
		`bawn_decisions_total{plane="resolver",verdict="deny",code="dns_name_not_allowed"} 1`,
		`bawn_failures_total{code="budget_exceeded"} 3`,
		`bawn_cuts_total{why="budget"} 3`,
		`bawn_transferred_bytes_total{direction="up"} 30`,
		`bawn_transferred_bytes_total{direction="down"} 300`,
		`bawn_websocket_messages_total{direction="up"} 6`,
		`bawn_stage_duration_seconds_bucket{stage="judge",le="0.0001"} 1`,
		`bawn_stage_duration_seconds_bucket{stage="judge",le="+Inf"} 2`,
		`bawn_stage_duration_seconds_count{stage="judge"} 2`,
		`bawn_stage_duration_seconds_sum{stage="judge"} 3600.00003`,
		`bawn_stage_duration_seconds_bucket{stage="total",le="0.05"} 0`,
		`bawn_stage_duration_seconds_bucket{stage="total",le="0.1"} 3`,
		`bawn_stage_duration_seconds_count{stage="journal"} 6`,
		`bawn_journal_records_total{journal="proxy"} 7`,
		`bawn_journal_available{journal="proxy"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s in\n%s", want, text)
		}
	}
}

// promtool runs the real one.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		roottest.Skip(t, "no promtool here: make need installs it")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 && args[1] == "metrics" {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// everything has one series of every metric.
func everything() []apitype.Sample {
	var list []apitype.Sample
	for _, f := range metrics.Families() {
		s := apitype.Sample{Name: f.Name, Value: 1.5}
		for _, l := range f.Labels {
			s.Labels = append(s.Labels, l.Values[len(l.Values)-1])
		}
		if f.Kind == metrics.Histogram {
			s.Buckets = slices.Clone(metrics.NewProxy().Samples()[slices.IndexFunc(metrics.NewProxy().Samples(), func(x apitype.Sample) bool { return x.Name == f.Name })].Buckets)
		}
		list = append(list, s)
	}
	return list
}

// TestPromtoolTakesTheText: names, helps and types are as Prometheus wants them.
func TestPromtoolTakesTheText(t *testing.T) {
	text := metrics.Write(everything())
	for _, f := range metrics.Families() {
		if !bytes.Contains(text, []byte("# TYPE "+f.Name+" "+string(f.Kind)+"\n")) {
			t.Errorf("%s is not written", f.Name)
		}
	}
	promtool(t, text, "check", "metrics")
}

const contrib = "../../contrib"

// TestPromtoolTakesTheAlerts: the file of alerts is sound, and its own tests pass.
func TestPromtoolTakesTheAlerts(t *testing.T) {
	promtool(t, nil, "check", "rules", filepath.Join(contrib, "prometheus/bawn.rules.yml"))
	promtool(t, nil, "test", "rules", filepath.Join(contrib, "prometheus/bawn.test.yml"))
}

var named = regexp.MustCompile(`\bbawn_[a-z0-9_]+`)

// exists reports whether text names only metrics that there are, and labels with
// values that they can have.
func exists(t *testing.T, where, text string) (count int) {
	t.Helper()
	known := map[string]metrics.Family{}
	for _, f := range metrics.Families() {
		known[f.Name] = f
		if f.Kind == metrics.Histogram {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				known[f.Name+end] = f
			}
		}
	}
	for _, name := range named.FindAllString(text, -1) {
		count++
		if _, ok := known[name]; !ok {
			t.Errorf("%s names %s, which there is not", where, name)
		}
	}
	for _, m := range regexp.MustCompile(`\b(bawn_[a-z0-9_]+)\{([a-z]+)=\\?"([^"\\]*)\\?"`).FindAllStringSubmatch(text, -1) {
		f := known[m[1]]
		i := slices.IndexFunc(f.Labels, func(l metrics.Label) bool { return l.Name == m[2] })
		if i < 0 || !slices.Contains(f.Labels[i].Values, m[3]) {
			t.Errorf("%s: %s has no %s=%q", where, m[1], m[2], m[3])
		}
	}
	return count
}

// TestEveryMetricThatIsNamedExists, in the dashboard, the alerts and the docs; and
// the dashboard leaves none out.
func TestEveryMetricThatIsNamedExists(t *testing.T) {
	for _, file := range []string{"../contrib/prometheus/bawn.rules.yml", "../contrib/prometheus/bawn.test.yml", "../docs/metrics.md"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		if exists(t, file, string(text)) == 0 {
			t.Errorf("%s names no metric", file)
		}
	}
	text, err := os.ReadFile(filepath.Join(contrib, "grafana/bawn.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	seen := map[int]bool{}
	taken := map[string]string{}
	for _, p := range board.Panels {
		if seen[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q is not sound", p.ID, p.Title)
		}
		seen[p.ID] = true
		at := fmt.Sprint(p.GridPos.X, p.GridPos.Y)
		if other, twice := taken[at]; twice {
			t.Errorf("panel %q stands where %q does", p.Title, other)
		}
		taken[at] = p.Title
		for _, x := range p.Targets {
			all.WriteString(x.Expr + "\n")
			exists(t, p.Title, x.Expr)
		}
	}
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range metrics.Families() {
		if !strings.Contains(string(docs), "`"+f.Name+"`") {
			t.Errorf("docs/metrics.md leaves %s out", f.Name)
		}
	}
}

// BenchmarkDecide is what counting adds to a decision, without a journal's write.
func BenchmarkCount(b *testing.B) {
	p := metrics.NewProxy()
	b.ReportAllocs()
	for b.Loop() {
		p.Judged(50 * time.Microsecond)
	}
}
