// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/resolver"
	"bawn/internal/verdict"
)

const rules = `
version: 1
profiles:
  coder:
    rules:
      - host: ok.example
      - host: "*.wild.example"
        ports: [8443]
      - host: old.example
        expires: 2020-01-01T00:00:00Z
      - deny: {host: bad.wild.example}
agents:
  dev: {profile: coder}
`

var who = ids.Identity{Slot: 3, Gen: ids.Generation{Epoch: 1, Count: 7}, Session: "s-1", Agent: "dev", User: "ann"}

// A desk holds what the plane meets: a policy in force, a record, a table.
type desk struct {
	mu      sync.Mutex
	policy  *policy.Policy
	held    verdict.Verdict // what the lease says
	records []audit.Decision
	fail    error  // what Decide returns
	onWrite func() // runs within Decide
	panics  bool
	given   []string // names that got an address
	full    error
	taken   []string // names that were counted, and under which wildcard
	spent   bool     // no more names under wildcards
	odd     string
}

func (d *desk) Take(agent string, h names.Host, under names.Pattern, _ time.Time) verdict.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	if under.Wildcard() {
		d.taken = append(d.taken, agent+" "+h.String()+" "+under.String())
	}
	if d.spent && under.Wildcard() {
		return verdict.Refuse("name", codes.DNSLabelBudget, "too many")
	}
	return verdict.Verdict{Effect: verdict.Allow, Detail: d.odd}
}

func (d *desk) Current() (*policy.Policy, uint64, verdict.Verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.policy, 42, d.held
}

func (d *desk) Decide(r *audit.Decision) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onWrite != nil {
		d.onWrite()
	}
	if d.fail != nil {
		return d.fail
	}
	d.records = append(d.records, *r)
	return nil
}

func (d *desk) Synthetic(agent string, h names.Host) (netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.panics {
		panic("table")
	}
	if d.full != nil {
		return netip.Addr{}, d.full
	}
	d.given = append(d.given, agent+" "+h.String())
	return netip.MustParseAddr("198.18.1.1"), nil
}

func (d *desk) recorded() []audit.Decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.records)
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	doc, err := policy.Parse([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(doc, policy.Known{AnyAgent: true})
	if err != nil {
		t.Fatal(err)
	}
	return &desk{policy: p, held: verdict.Verdict{Effect: verdict.Allow}}
}

func (d *desk) server(lim resolver.Limits) *resolver.Server {
	return resolver.New(resolver.Config{Policies: d, Recorder: d, Addresses: d, Budget: d, Limits: lim, Now: func() time.Time { return time.Unix(1800000000, 0) }})
}

// query packs a question, with EDNS.
func query(name string, typ, class uint16) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.Type(typ), Class: dnsmessage.Class(class)}},
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(1232, 0, false); err != nil {
		panic(err)
	}
	m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// A reply is what a test looks at.
type reply struct {
	rcode  dnsmessage.RCode
	answer string // address
	ede    string // text of the extended error
	name   string
}

func read(t testing.TB, b []byte) reply {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("reply %q: %v", b, err)
	}
	r := reply{rcode: m.RCode}
	if len(m.Questions) == 1 {
		r.name = m.Questions[0].Name.String()
	}
	for _, a := range m.Answers {
		r.answer += netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A).String()
		if a.Header.TTL != 60 {
			t.Errorf("TTL %d", a.Header.TTL)
		}
	}
	for _, a := range m.Additionals {
		for _, o := range a.Body.(*dnsmessage.OPTResource).Options {
			r.ede += string(o.Data[2:])
		}
	}
	return r
}

const (
	typeA, typeTXT, typeAAAA, typeSVCB, typeHTTPS, typeANY = 1, 16, 28, 64, 65, 255
	noError, formErr, servFail, refused                    = 0, 1, 2, 5
)

// TestI3NamesAreJudgedBeforeAnything: the answer to each kind of question. A
// name that is not allowed gets no address, not even a synthetic one.
func TestI3NamesAreJudgedBeforeAnything(t *testing.T) {
	for _, c := range []struct {
		name       string
		typ, class uint16
		rcode      dnsmessage.RCode
		answer     string
		code       codes.Code
	}{
		{"ok.example.", typeA, 1, noError, "198.18.1.1", ""},
		{"OK.exAMPLE.", typeA, 1, noError, "198.18.1.1", ""},
		{"a.wild.example.", typeA, 1, noError, "198.18.1.1", ""}, // allowed on another port than 443
		{"ok.example.", typeAAAA, 1, noError, "", ""},
		{"ok.example.", typeHTTPS, 1, noError, "", ""}, // no keys for encrypted client hello
		{"ok.example.", typeSVCB, 1, noError, "", ""},
		{"ok.example.", typeTXT, 1, refused, "", codes.DNSTypeDenied},
		{"ok.example.", typeANY, 1, refused, "", codes.DNSTypeDenied},
		{"ok.example.", 65399, 1, refused, "", codes.DNSTypeDenied},
		{"ok.example.", typeA, 3, refused, "", codes.DNSTypeDenied},
		{"ok.example.", typeA, 255, refused, "", codes.DNSTypeDenied},
		{"evil.example.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{"evil.example.", typeAAAA, 1, refused, "", codes.DNSNameNotAllowed},
		{"evil.example.", typeTXT, 1, refused, "", codes.DNSNameNotAllowed},
		{"evil.example.", typeHTTPS, 1, refused, "", codes.DNSNameNotAllowed},
		{"wild.example.", typeA, 1, refused, "", codes.DNSNameNotAllowed}, // never the apex
		{"notok.example.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{"ok.example.evil.example.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{"bad.wild.example.", typeA, 1, refused, "", codes.PolicyDenied},
		{"old.example.", typeA, 1, refused, "", codes.RuleExpired},
		{"_http._tcp.ok.example.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{"localhost.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{"metadata.google.internal.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{"1.1.18.198.in-addr.arpa.", 12, 1, refused, "", codes.DNSNameNotAllowed},
		{"169.254.169.254.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{"xn--ok-.example.", typeA, 1, refused, "", codes.DNSNameNotAllowed},
		{".", typeA, 1, refused, "", codes.DNSNameNotAllowed},
	} {
		d := newDesk(t)
		got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query(c.name, c.typ, c.class)))
		if want := (reply{c.rcode, c.answer, string(c.code), c.name}); got != want {
			t.Errorf("%s %d %d: %+v, want %+v", c.name, c.typ, c.class, got, want)
		}
		if (len(d.given) > 0) != (c.answer != "") {
			t.Errorf("%s %d: addresses given: %v", c.name, c.typ, d.given)
		}
		records := d.recorded()
		if len(records) != 1 {
			t.Fatalf("%s %d: %d records", c.name, c.typ, len(records))
		}
		r := records[0]
		if r.Identity != who || r.Revision != 42 || r.Proto != "dns" || r.Request == "" || r.Code != c.code || (r.Verdict == verdict.Allow) != (c.code == "") {
			t.Errorf("%s %d: record %+v", c.name, c.typ, r)
		}
	}
}

// TestNamesUnderWildcardsAreCounted: before one gets an address, and only if
// policy lets it in by a wildcard alone; what is refused for another reason
// costs nothing.
func TestNamesUnderWildcardsAreCounted(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  uint16
		want string
	}{
		{"A.wild.example.", typeA, "dev a.wild.example *.wild.example"},
		{"a.wild.example.", typeHTTPS, "dev a.wild.example *.wild.example"},
		{"a.b.wild.example.", typeA, "dev a.b.wild.example *.wild.example"},
		{"ok.example.", typeA, ""},
		{"a.wild.example.", typeTXT, ""},
		{"bad.wild.example.", typeA, ""},
		{"evil.example.", typeA, ""},
	} {
		d := newDesk(t)
		d.odd = "odd"
		d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query(c.name, c.typ, 1))
		if got := strings.Join(d.taken, "; "); got != c.want {
			t.Errorf("%s %d: counted %q, want %q", c.name, c.typ, got, c.want)
		}
		if r := d.recorded(); len(d.given) > 0 && r[0].Detail != "198.18.1.1, odd" {
			t.Errorf("%s: record %+v", c.name, r)
		}
	}
	d := newDesk(t)
	d.spent = true
	for _, typ := range []uint16{typeA, typeAAAA, typeHTTPS} {
		got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query("a.wild.example.", typ, 1)))
		if want := (reply{refused, "", string(codes.DNSLabelBudget), "a.wild.example."}); got != want {
			t.Errorf("type %d: %+v, want %+v", typ, got, want)
		}
	}
	if got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query("ok.example.", typeA, 1))); got.answer == "" {
		t.Errorf("a name that a rule names: %+v", got)
	}
	if r := d.recorded(); len(r) != 4 || r[0].Code != codes.DNSLabelBudget || r[0].Verdict != verdict.Deny || len(d.given) != 1 {
		t.Errorf("%v given, records %+v", d.given, r)
	}
}

// TestI9IdentityIsTheListeners: the same question of another agent is judged by
// that agent's policy.
func TestI9IdentityIsTheListeners(t *testing.T) {
	d := newDesk(t)
	other := who
	other.Agent = "other"
	got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: other}, query("ok.example.", typeA, 1)))
	if got.rcode != refused || got.ede != string(codes.DNSNameNotAllowed) {
		t.Errorf("%+v", got)
	}
	if r := d.recorded()[0]; r.Agent != "other" {
		t.Errorf("record %+v", r)
	}
}

func TestRecordTellsWhatWasAsked(t *testing.T) {
	d := newDesk(t)
	s := d.server(resolver.Limits{})
	s.Answer(resolver.Source{Identity: who}, query("OK.example.", typeA, 1))
	s.Answer(resolver.Source{Identity: who}, query("a b.example.", typeTXT, 1))
	records := d.recorded()
	if r := records[0]; r.Host != "ok.example" || r.Asked != "OK.example" || r.Method != "A" || r.Detail != "198.18.1.1" || r.Rule == "" || r.Stage != "name" {
		t.Errorf("%+v", r)
	}
	if r := records[1]; r.Host != "" || r.Asked != `a\032b.example` || r.Method != "TXT" {
		t.Errorf("%+v", r)
	}
}

// TestI7NoRecordNoAnswer: a query that cannot be recorded is refused, allowed or
// not.
func TestI7NoRecordNoAnswer(t *testing.T) {
	for code, fault := range map[codes.Code]error{
		codes.JournalUnavailable: errors.New("disk full"),
		codes.AuditQuota:         audit.ErrQuota,
	} {
		for _, name := range []string{"ok.example.", "evil.example."} {
			d := newDesk(t)
			d.fail = fault
			got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query(name, typeA, 1)))
			if got.rcode != refused || got.answer != "" || got.ede != string(code) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// TestI7JudgedAgainAfterTheRecord: policy that tightens while the record is
// written is obeyed, and the second judgement is on record too.
func TestI7JudgedAgainAfterTheRecord(t *testing.T) {
	d := newDesk(t)
	d.onWrite = func() {
		d.held = verdict.Refuse("lease", codes.LeaseLapsed, "")
		d.onWrite = nil
	}
	got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query("ok.example.", typeA, 1)))
	if got.rcode != refused || got.answer != "" || got.ede != string(codes.LeaseLapsed) {
		t.Errorf("%+v", got)
	}
	if r := d.recorded(); len(r) != 2 || r[0].Verdict != verdict.Allow || r[1].Verdict != verdict.Deny || r[1].Code != codes.LeaseLapsed {
		t.Errorf("%+v", r)
	}
}

// TestI2NoPolicyNoAnswer: without a lease, or with one that says nothing,
// everything is refused.
func TestI2NoPolicyNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		held verdict.Verdict
		code codes.Code
	}{
		"lapsed":     {verdict.Refuse("lease", codes.LeaseLapsed, ""), codes.LeaseLapsed},
		"no policy":  {verdict.Refuse("lease", codes.PolicyUnavailable, ""), codes.PolicyUnavailable},
		"zero value": {verdict.Verdict{}, codes.InternalError},
	} {
		d := newDesk(t)
		d.held = c.held
		got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query("ok.example.", typeA, 1)))
		if got.rcode != refused || got.ede != string(c.code) || len(d.given) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	d := newDesk(t)
	d.policy = nil
	if got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query("ok.example.", typeA, 1))); got.rcode != refused {
		t.Errorf("nil policy: %+v", got)
	}
}

func TestTableFullOrBroken(t *testing.T) {
	for _, c := range []struct {
		full error
		code codes.Code
	}{
		{&resolver.Error{Code: codes.BudgetExceeded, Detail: "full"}, codes.BudgetExceeded},
		{errors.New("disk"), codes.InternalError},
	} {
		d := newDesk(t)
		d.full = c.full
		got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query("ok.example.", typeA, 1)))
		if got.rcode != refused || got.ede != string(c.code) || got.answer != "" {
			t.Errorf("%v: %+v", c.full, got)
		}
		if r := d.recorded(); len(r) != 1 || r[0].Code != c.code || r[0].Verdict != verdict.Deny {
			t.Errorf("%v: %+v", c.full, r)
		}
	}
}

// TestI12PanicIsDenied: a panic ends one query, denied and recorded.
func TestI12PanicIsDenied(t *testing.T) {
	d := newDesk(t)
	d.panics = true
	got := read(t, d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, query("ok.example.", typeA, 1)))
	if got.rcode != servFail || got.ede != string(codes.InternalError) || got.answer != "" {
		t.Errorf("%+v", got)
	}
	if r := d.recorded(); len(r) != 1 || r[0].Verdict != verdict.Deny || r[0].Code != codes.InternalError || r[0].Identity != who {
		t.Errorf("%+v", r)
	}
}

func TestMalformedIsRecorded(t *testing.T) {
	good := query("ok.example.", typeA, 1)
	for name, c := range map[string]struct {
		msg   []byte
		reply bool
	}{
		"nothing":               {nil, false},
		"short":                 {good[:5], false},
		"an answer":             {append([]byte{0, 77, 0x81, 0x80}, good[4:]...), false},
		"bytes behind":          {append(slices.Clone(good), 0), true},
		"two queries in one":    {append(slices.Clone(good), good...), true},
		"longer than any query": {append(slices.Clone(good), make([]byte, 5000)...), false},
	} {
		d := newDesk(t)
		b := d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, c.msg)
		if (b != nil) != c.reply {
			t.Errorf("%s: reply %q", name, b)
		}
		if b != nil {
			if got := read(t, b); got.rcode != formErr {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if r := d.recorded(); len(r) != 1 || r[0].Code != codes.DNSMalformed || r[0].Verdict != verdict.Deny || len(d.given) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// FuzzAnswer: whatever an agent sends, an address is given only for the one name
// that policy allows, each message has one record at least, and a reply reads.
func FuzzAnswer(f *testing.F) {
	f.Add(query("ok.example.", typeA, 1))
	f.Add(query("evil.example.", typeA, 1))
	f.Add(query("a.wild.example.", typeHTTPS, 1))
	f.Add(append(query("ok.example.", typeA, 1), query("evil.example.", typeA, 1)...))
	f.Fuzz(func(t *testing.T, msg []byte) {
		d := newDesk(t)
		b := d.server(resolver.Limits{}).Answer(resolver.Source{Identity: who}, msg)
		if len(d.recorded()) == 0 {
			t.Fatal("no record")
		}
		for _, g := range d.given {
			name, _ := strings.CutPrefix(g, "dev ")
			if name != "ok.example" && !strings.HasSuffix(name, ".wild.example") {
				t.Fatalf("%q has an address", name)
			}
		}
		if b == nil {
			return
		}
		var p dnsmessage.Parser
		head, err := p.Start(b)
		if err != nil || !head.Response || len(b) > 512 {
			t.Fatalf("reply %q: %v", b, err)
		}
		answers := binary.BigEndian.Uint16(b[6:])
		if answers > 0 && (d.recorded()[0].Verdict != verdict.Allow || len(d.given) != 1) {
			t.Fatalf("answered, yet recorded as %v", d.recorded()[0].Verdict)
		}
	})
}

// BenchmarkAnswer is an allowed question, without journal and disk.
func BenchmarkAnswer(b *testing.B) {
	d := newDesk(b)
	s := d.server(resolver.Limits{})
	msg := query("ok.example.", typeA, 1)
	b.ReportAllocs()
	for b.Loop() {
		s.Answer(resolver.Source{Identity: who}, msg)
		d.records, d.given = d.records[:0], d.given[:0]
	}
}
