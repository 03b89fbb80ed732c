// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"bawn/internal/casetest"
	"bawn/internal/casetest/talk"
	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/world"
	"bawn/internal/world/operator"
)

const corpus = "../../testdata/cases"

// notLive are case files that the live proxy cannot be shown, each with the
// reason.
func notLive(c *casetest.Case) string {
	switch {
	case len(c.Unsupported) > 0:
		return "not supported by this build"
	case !c.Time.IsZero():
		return "sets the clock"
	}
	return ""
}

// TestCasesOnTheLiveProxy runs every case file once as "bawn policy test" does
// and once through the program as it runs, with the case's policy in force and
// the case's bytes sent by an agent. Verdicts, codes and what went up agree.
func TestCasesOnTheLiveProxy(t *testing.T) {
	t.Parallel() // most of it is waiting
	h := boot(t)
	h.clients(t)
	env, err := casetest.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	live := &liveCases{t: t, h: h, env: env, sessions: map[string]*rawSession{}, known: map[string]bool{"dev": true, "guest": true}, journal: h.Journal()}
	type named struct {
		name string
		c    *casetest.Case
		data []byte
	}
	var list []named
	left := map[string]int{}
	err = filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".txtar") {
			return err
		}
		name, err := filepath.Rel(corpus, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c, err := casetest.Parse(path, data)
		if err != nil {
			return err
		}
		if why := notLive(c); why != "" {
			left[why]++
			return nil
		}
		list = append(list, named{strings.TrimSuffix(name, ".txtar"), c, data})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Those with the same policy follow each other: to put one in force is slow.
	slices.SortStableFunc(list, func(a, b named) int { return strings.Compare(a.c.Policy, b.c.Policy) })
	for _, n := range list {
		t.Run(n.name, func(t *testing.T) { live.run(t, n.c, n.data) })
	}
	if found := h.evil(t); len(found) > 0 {
		t.Errorf("got out:\n%s", strings.Join(found, "\n"))
	}
	fmt.Printf("case files on the live proxy: %d, left out: %v\n", len(list), left)
}

// liveCases is the running program and what its cases share.
type liveCases struct {
	t        *testing.T // of all cases: sessions last as long
	h        *host
	env      *casetest.Env
	sessions map[string]*rawSession
	known    map[string]bool
	journal  *operator.Journal
	policy   string // in force
	asked    int    // questions to the internet's resolver before the case
}

func (l *liveCases) run(t *testing.T, c *casetest.Case, data []byte) {
	want := casetest.Run(c, l.env)
	if !want.OK {
		t.Skipf("fails in policy test: %s", want.Why)
	}
	refused := len(c.Want) == 1 && c.Want[0].Code == codes.PolicyInvalid
	if refused {
		if err := l.h.Apply(t.Context(), c.Policy); err == nil {
			t.Error("the policy was accepted")
		}
		return
	}
	p, err := policy.Load([]byte(c.Policy), policy.Known{AnyAgent: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range append(p.Agents(), want.Agent) {
		if !l.known[a] {
			l.h.bawn(t, "agent", "create", a, "--user", "case")
			l.known[a] = true
		}
	}
	if c.Policy != l.policy {
		l.h.apply(t, c.Policy)
		l.policy = c.Policy
	}
	zone := zoneOf(t, data)
	pretence := world.Pretence{
		Answer: c.Upstream, Opaque: c.Arrive == "tcp", Zone: zone,
		Opens: len(c.Messages) > 0, H2: slices.Contains(c.UpstreamProtocols(), "h2"),
	}
	if err := l.h.w.Upstream.Pretend(pretence); err != nil {
		t.Fatal(err)
	}
	if err := l.h.w.Upstream.Forget(); err != nil {
		t.Fatal(err)
	}
	if l.sessions[want.Agent] == nil {
		l.sessions[want.Agent] = l.h.rawSession(l.t, want.Agent)
	}
	l.records(t) // those of the case before
	l.asked = len(l.h.queries(t))
	a := l.sessions[want.Agent].do(t, jobOf(c, p.Agent(want.Agent)))
	if c.Arrive == "dns" {
		l.compareDNS(t, want, a)
		return
	}
	l.compare(t, c, want, a)
}

// compareDNS holds the journal and the resolver's answers against what policy
// test says.
func (l *liveCases) compareDNS(t *testing.T, want casetest.Result, a answer) {
	t.Helper()
	var got []string
	for i, r := range l.records(t) {
		v := casetest.Verdict{Verdict: r.Verdict, Code: codes.Code(r.Code)}
		if i < len(a.Replies) {
			if err := casetest.CheckReply(&v, a.Replies[i]); err != nil {
				t.Errorf("answer %d: %v", i+1, err)
			}
		}
		got = append(got, v.String())
	}
	var wanted []string
	for _, v := range want.Results {
		wanted = append(wanted, v.String())
	}
	if strings.Join(got, ", ") != strings.Join(wanted, ", ") {
		t.Errorf("live: %v, policy test: %v\nerror: %s", got, wanted, a.Error)
	}
	if queries := l.h.queries(t); len(queries) > l.asked {
		t.Errorf("the resolver of the internet was asked for an agent's name: %v", queries)
	}
}

// records are those that have come since the last call.
func (l *liveCases) records(t *testing.T) []operator.Record {
	t.Helper()
	records, err := l.journal.Next()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(records, func(r operator.Record) bool { return r.Agent == "doctor" })
}

// compare waits for the outcomes of what was allowed, and holds what the
// journal and the servers have against what policy test says.
func (l *liveCases) compare(t *testing.T, c *casetest.Case, want casetest.Result, a answer) {
	t.Helper()
	var records []operator.Record
	var got []string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		records = append(records, l.records(t)...)
		var open bool
		if got, open = verdicts(records); !open && len(got) >= want.Recorded {
			break
		}
	}
	for n := len(got); n > 0 && n < len(want.Results) && !strings.HasPrefix(got[n-1], "allow"); n = len(got) {
		got = append(got, got[n-1]) // requests after the one whose refusal ended the connection
	}
	var wanted []string
	for _, v := range want.Results {
		wanted = append(wanted, v.String())
	}
	if len(got) == 0 && len(wanted) == 1 && wanted[0] == "allow" && a.Error == "" {
		got = wanted // let through, and nothing was asked
	}
	if strings.Join(got, ", ") != strings.Join(wanted, ", ") {
		t.Errorf("live: %v, policy test: %v\nthe agent saw: %s", got, wanted, a)
	}
	streams, err := l.h.w.Upstream.Streams("")
	if err != nil {
		t.Fatal(err)
	}
	var up bytes.Buffer
	for _, s := range streams {
		up.Write(readBack(t, c, s.Bytes))
	}
	if !sameBytes(want.Forwarded, up.String()) {
		t.Errorf("live forwarded:\n%q\npolicy test:\n%q", up.String(), want.Forwarded)
	}
}

// verdicts are what the records say, as policy test says it: what was allowed
// and then refused before a byte went up was refused. open reports whether an
// outcome is still to come.
func verdicts(records []operator.Record) (list []string, open bool) {
	outcomes := map[string]operator.Record{}
	for _, r := range records {
		if r.Kind == "outcome" {
			outcomes[r.Request] = r
		}
	}
	for _, r := range records {
		if r.Kind != "decision" || r.Message > 0 { // of messages, what reached the server counts
			continue
		}
		if r.Proto == "dns" {
			// A client asks for both kinds of address: one refusal counts once.
			if r.Verdict == "allow" || len(list) > 0 {
				continue
			}
			r.Code = strings.Replace(r.Code, "dns_name_not_allowed", "host_not_allowed", 1)
		}
		o, ended := outcomes[r.Request]
		if r.Verdict == "allow" && !ended {
			open = true
		}
		if r.Verdict == "allow" && casetest.RefusedLate(codes.Code(o.Code), o.BytesUp, o.Status) {
			r.Verdict, r.Code = "deny", o.Code
		}
		list = append(list, strings.TrimSpace(r.Verdict+" "+r.Code))
		if o.Status != 101 {
			continue
		}
		for range o.MessagesUp {
			list = append(list, "allow")
		}
		if o.Code != "" {
			list = append(list, fmt.Sprintf("close %s %d", o.Code, o.Close))
		}
	}
	return list, open
}

// zoneOf reads the dns section.
func zoneOf(t *testing.T, data []byte) map[string][]world.Answer {
	t.Helper()
	zone := map[string][]world.Answer{}
	for _, f := range txtar.Parse(data).Files {
		if f.Name != "dns" {
			continue
		}
		for line := range strings.Lines(string(f.Data)) {
			w := strings.Fields(line)
			if len(w) < 2 {
				continue
			}
			name := strings.TrimSuffix(strings.ToLower(w[0]), ".")
			a := world.Answer{}
			if old := zone[name]; old != nil {
				a = old[0]
			}
			switch {
			case w[1] == "CNAME":
				a.CNAME = w[2]
			case w[1] == "FAIL":
				a.Fail = true
			default:
				a.Addrs = append(a.Addrs, w[1])
			}
			zone[name] = []world.Answer{a}
		}
	}
	return zone
}

// readBack gives what a server got in the form in which policy test keeps it:
// what is more than the bytes of HTTP/1.1 is read from them.
func readBack(t *testing.T, c *casetest.Case, raw []byte) []byte {
	var out bytes.Buffer
	if bytes.HasPrefix(raw, []byte("PRI * HTTP/2.0\r\n")) {
		keep := func(raw []byte) { out.Write(raw) }
		talk.ServeH2(bytes.NewReader(raw), io.Discard, talk.Server{Keep: keep, Part: keep, Fault: func(what string) { t.Error(what) }})
		return out.Bytes()
	}
	for rest := raw; ; {
		head, after, ok := bytes.Cut(rest, []byte("\r\n\r\n"))
		if !ok {
			return append(out.Bytes(), rest...)
		}
		head = append(head[:len(head):len(head)], "\r\n\r\n"...)
		key, opens := talk.IsUpgrade(head)
		if opens {
			head = casetest.HideKey(head)
		}
		_, final := talk.SplitAnswer(c.Upstream)
		if !opens || c.Upstream != nil && !bytes.HasPrefix(final, []byte("HTTP/1.1 101")) {
			out.Write(head)
			rest = after
			continue
		}
		if c.Upstream == nil {
			final = []byte(talk.DefaultSwitch)
		}
		_, deflate := talk.Switch(final, key)
		out.Write(head)
		talk.ServeWebSocket(bufio.NewReader(bytes.NewReader(after)), io.Discard, deflate, talk.WebSocketServer{
			Keep:  func(m talk.Message) { out.WriteString(m.Notation() + "\n") },
			Fault: func(what string) { t.Error(what) },
		})
		return out.Bytes()
	}
}

// jobOf is what the client of a case sends.
func jobOf(c *casetest.Case, agent *policy.Agent) job {
	j := job{Send: bytes.Join(c.Streams, nil), ALPN: c.ALPN, H2: c.H2}
	for i, s := range c.Streams {
		if _, ok := talk.IsUpgrade(s); ok && c.Arrive != "tcp" {
			j.Send, j.Rest = bytes.Join(c.Streams[:i+1], nil), bytes.Join(c.Streams[i+1:], nil)
			j.Responses, j.Frames = i+1, c.Frames(i)
			break
		}
	}
	authority := c.Authority
	switch c.Arrive {
	case "connect":
		j.Connect = c.ConnectRaw
		if j.Connect == nil {
			j.Connect = connectHead(c.Authority)
		}
	case "tcp":
		j.To, j.First = c.Dst, c.Upstream
	case "transparent":
		j.To, authority = c.Dst, c.Dst
	case "dns":
		j.Send = nil
		for _, q := range c.Queries {
			j.Queries = append(j.Queries, q.Message)
		}
		if len(c.Queries) == 0 {
			j.Segments = c.Streams
		}
		return j
	}
	if c.Arrive == "absolute" || c.Arrive == "tcp" || c.ConnectRaw != nil && len(c.Streams) == 0 {
		return j
	}
	sni := ""
	if a, err := names.ParseAuthority(authority); err == nil {
		if a.Port == 80 || agent.Name(a.Host, a.Port, time.Now()).Plain {
			return j
		}
		sni = a.Host.String()
	}
	if c.SNI != nil {
		sni = *c.SNI
	}
	j.SNI = &sni
	return j
}

// sameBytes compares what went up with the notation of policy test, in which
// line ends are short and other than text is quoted. How a body is cut into
// chunks says nothing.
func sameBytes(notation, raw string) bool {
	short := strings.ReplaceAll(raw, "\r\n", "\n")
	if short == notation || strings.TrimSuffix(short, "\n") == strings.TrimSuffix(notation, "\n") {
		return true
	}
	if strings.Contains(notation, `"`) && fmt.Sprintf("%q\n", raw) == notation {
		return true
	}
	return unchunked(short) == unchunked(notation)
}

// unchunked joins the chunks of a body in the short notation.
func unchunked(text string) string {
	head, body, _ := strings.Cut(text, "\n\n")
	if !strings.Contains(strings.ToLower(head), "transfer-encoding: chunked") {
		return text
	}
	var b strings.Builder
	for body != "" {
		var size int
		line, rest, _ := strings.Cut(body, "\n")
		if _, err := fmt.Sscanf(line, "%x", &size); err != nil || size > len(rest) {
			return text
		}
		b.WriteString(rest[:size])
		body = strings.TrimPrefix(rest[size:], "\n")
	}
	return head + "\n\n" + b.String()
}
