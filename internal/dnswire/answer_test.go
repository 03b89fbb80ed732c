// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnswire_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"bawn/internal/dnswire"
	"bawn/internal/names"
)

var okHost = names.MustParse("ok.example")

func TestAppendQuery(t *testing.T) {
	for _, typ := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA} {
		msg := dnswire.AppendQuery(nil, 7, okHost, typ)
		m := unpack(t, msg)
		if m.ID != 7 || m.Response || !m.RecursionDesired || len(m.Questions) != 1 || len(m.Additionals) != 1 {
			t.Fatalf("%+v", m)
		}
		if q := m.Questions[0]; q.Name.String() != "ok.example." || uint16(q.Type) != uint16(typ) || q.Class != dnsmessage.ClassINET {
			t.Errorf("question %+v", q)
		}
		if q, err := dnswire.ParseQuery(msg); err != nil || q.Host != okHost || !q.EDNS {
			t.Errorf("own query is refused: %+v, %v", q, err)
		}
	}
}

// rr writes one record from text: "owner A address", "owner CNAME target",
// "owner TXT text", each with an optional "/TTL" behind the type.
func rr(t testing.TB, text string) dnsmessage.Resource {
	t.Helper()
	var owner, kind, value string
	if _, err := fmt.Sscan(text, &owner, &kind, &value); err != nil {
		t.Fatal(err)
	}
	kind, ttlText, _ := strings.Cut(kind, "/")
	ttl := uint32(300)
	if ttlText != "" {
		if _, err := fmt.Sscan(ttlText, &ttl); err != nil {
			t.Fatal(err)
		}
	}
	r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET, TTL: ttl}}
	switch kind {
	case "A":
		r.Body = &dnsmessage.AResource{A: netip.MustParseAddr(value).As4()}
	case "AAAA":
		r.Body = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(value).As16()}
	case "CNAME":
		r.Body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(value)}
	default:
		r.Body = &dnsmessage.TXTResource{TXT: []string{value}}
	}
	return r
}

// message builds an answer to the question for the A records of ok.example.
func message(t testing.TB, answers ...string) dnsmessage.Message {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, Response: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("ok.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	for _, a := range answers {
		m.Answers = append(m.Answers, rr(t, a))
	}
	return m
}

func pack(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func addresses(list ...string) []netip.Addr {
	var as []netip.Addr
	for _, s := range list {
		as = append(as, netip.MustParseAddr(s))
	}
	return as
}

func TestParseAnswer(t *testing.T) {
	chain := func(n int) []string {
		list := []string{"ok.example. CNAME c1."}
		for i := 1; i < n; i++ {
			list = append(list, fmt.Sprintf("c%d. CNAME c%d.", i, i+1))
		}
		return append(list, fmt.Sprintf("c%d. A 1.2.3.4", n))
	}
	for name, c := range map[string]struct {
		answers []string
		want    []netip.Addr
		ttl     time.Duration
		fails   bool
	}{
		"one":                         {[]string{"ok.example. A 1.2.3.4"}, addresses("1.2.3.4"), 300 * time.Second, false},
		"several":                     {[]string{"ok.example. A/9 1.2.3.4", "ok.example. A/5 1.2.3.5"}, addresses("1.2.3.4", "1.2.3.5"), 5 * time.Second, false},
		"twice the same":              {[]string{"ok.example. A 1.2.3.4", "ok.example. A 1.2.3.4"}, addresses("1.2.3.4"), 300 * time.Second, false},
		"other case":                  {[]string{"OK.Example. A 1.2.3.4"}, addresses("1.2.3.4"), 300 * time.Second, false},
		"chain":                       {[]string{"ok.example. CNAME/7 CDN.example.", "cdn.example. A 1.2.3.4"}, addresses("1.2.3.4"), 7 * time.Second, false},
		"chain in any order":          {[]string{"cdn.example. A 1.2.3.4", "ok.example. CNAME cdn.example."}, addresses("1.2.3.4"), 300 * time.Second, false},
		"chain over a service label":  {[]string{"ok.example. CNAME _x.example.", "_x.example. A 1.2.3.4"}, addresses("1.2.3.4"), 300 * time.Second, false},
		"chain without end":           {[]string{"ok.example. CNAME cdn.example."}, nil, 300 * time.Second, false},
		"chain of 16":                 {chain(16), addresses("1.2.3.4"), 300 * time.Second, false},
		"chain of 17":                 {chain(17), nil, 0, true},
		"chain into itself":           {[]string{"ok.example. CNAME a.", "a. CNAME b.", "b. CNAME a."}, nil, 0, true},
		"alias of itself":             {[]string{"ok.example. CNAME ok.example."}, nil, 0, true},
		"two aliases":                 {[]string{"ok.example. CNAME a.", "ok.example. CNAME b.", "a. A 1.2.3.4"}, nil, 0, true},
		"alias and address":           {[]string{"ok.example. CNAME a.", "ok.example. A 1.2.3.4"}, nil, 0, true},
		"address of another name":     {[]string{"evil.example. A 6.6.6.6"}, nil, seconds31, false},
		"alias of another name":       {[]string{"ok.example. A 1.2.3.4", "evil.example. CNAME ok.example.", "evil.example. A 6.6.6.6"}, addresses("1.2.3.4"), 300 * time.Second, false},
		"address of the other family": {[]string{"ok.example. AAAA 2001:db8::1"}, nil, seconds31, false},
		"other types":                 {[]string{"ok.example. TXT x", "ok.example. A 1.2.3.4"}, addresses("1.2.3.4"), 300 * time.Second, false},
		"nothing":                     {nil, nil, seconds31, false},
		"TTL of zero":                 {[]string{"ok.example. A/0 1.2.3.4"}, addresses("1.2.3.4"), 0, false},
		"TTL with its top bit":        {[]string{"ok.example. A/2147483648 1.2.3.4"}, addresses("1.2.3.4"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := dnswire.ParseAnswer(pack(t, message(t, c.answers...)), 7, okHost, dnswire.TypeA)
			if c.fails {
				if err == nil || errors.Is(err, dnswire.ErrOtherAnswer) {
					t.Fatalf("%+v, %v: want refusal", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Addrs, c.want) || got.TTL != c.ttl {
				t.Errorf("%v for %v, want %v for %v", got.Addrs, got.TTL, c.want, c.ttl)
			}
		})
	}
}

const seconds31 = (1<<31 - 1) * time.Second

func TestParseAnswerBounds(t *testing.T) {
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("ok.example. A 1.2.3.%d", i))
	}
	if got, err := dnswire.ParseAnswer(pack(t, message(t, many[:64]...)), 7, okHost, dnswire.TypeA); err != nil || len(got.Addrs) != 64 {
		t.Errorf("64 addresses: %d, %v", len(got.Addrs), err)
	}
	if got, err := dnswire.ParseAnswer(pack(t, message(t, many...)), 7, okHost, dnswire.TypeA); err == nil {
		t.Errorf("65 addresses: %d", len(got.Addrs))
	}
	records := append(slices.Repeat([]string{"other.example. TXT x"}, 256), "ok.example. A 1.2.3.4")
	if got, err := dnswire.ParseAnswer(pack(t, message(t, records...)), 7, okHost, dnswire.TypeA); err == nil {
		t.Errorf("257 records: %+v", got)
	}
}

func TestParseAnswerOfOtherQuestions(t *testing.T) {
	for name, change := range map[string]func(*dnsmessage.Message){
		"id":            func(m *dnsmessage.Message) { m.ID = 8 },
		"a query":       func(m *dnsmessage.Message) { m.Response = false },
		"operation":     func(m *dnsmessage.Message) { m.OpCode = 4 },
		"name":          func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("evil.example.") },
		"type":          func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAAAA },
		"class":         func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS },
		"no question":   func(m *dnsmessage.Message) { m.Questions = nil },
		"two questions": func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			m := message(t, "ok.example. A 1.2.3.4")
			change(&m)
			if got, err := dnswire.ParseAnswer(pack(t, m), 7, okHost, dnswire.TypeA); !errors.Is(err, dnswire.ErrOtherAnswer) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	m := message(t, "ok.example. A 1.2.3.4")
	m.Questions[0].Name = dnsmessage.MustNewName("oK.eXAMPLE.")
	if _, err := dnswire.ParseAnswer(pack(t, m), 7, okHost, dnswire.TypeA); err != nil {
		t.Errorf("question in other case: %v", err)
	}
}

func TestParseAnswerStates(t *testing.T) {
	m := message(t, "ok.example. A 1.2.3.4")
	m.RCode = dnsmessage.RCodeNameError
	if got, err := dnswire.ParseAnswer(pack(t, m), 7, okHost, dnswire.TypeA); err != nil || got.RCode != dnswire.NXDomain || got.Addrs != nil {
		t.Errorf("NXDOMAIN: %+v, %v", got, err)
	}
	m = message(t, "ok.example. A 1.2.3.4")
	m.Truncated = true
	if got, err := dnswire.ParseAnswer(pack(t, m), 7, okHost, dnswire.TypeA); err != nil || !got.Truncated || got.Addrs != nil {
		t.Errorf("truncated: %+v, %v", got, err)
	}
	whole := pack(t, message(t, "ok.example. A 1.2.3.4"))
	if got, err := dnswire.ParseAnswer(whole[:len(whole)-1], 7, okHost, dnswire.TypeA); err == nil {
		t.Errorf("cut short: %+v", got)
	}
}

// FuzzParseAnswer: the addresses are those that a simpler reading of
// dnsmessage's whole message gives.
func FuzzParseAnswer(f *testing.F) {
	f.Add(pack(f, message(f, "ok.example. A 1.2.3.4")))
	f.Add(pack(f, message(f, "ok.example. CNAME a.", "a. CNAME b.", "b. A 1.2.3.4", "evil. A 6.6.6.6")))
	f.Add(pack(f, message(f, "ok.example. CNAME a.", "a. CNAME ok.example.")))
	f.Fuzz(func(t *testing.T, msg []byte) {
		got, err := dnswire.ParseAnswer(msg, 7, okHost, dnswire.TypeA)
		if err != nil {
			if !cmp.Equal(got, dnswire.Answer{}, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
				t.Fatalf("%+v, %v", got, err)
			}
			return
		}
		if got.RCode != dnswire.Success || got.Truncated {
			if got.Addrs != nil {
				t.Fatalf("%+v", got)
			}
			return
		}
		var m dnsmessage.Message
		if m.Unpack(msg) != nil {
			return // a section that ParseAnswer does not look at
		}
		if want := walk(m); !slices.Equal(got.Addrs, want) {
			t.Fatalf("%v, want %v", got.Addrs, want)
		}
	})
}

// walk is the oracle: it goes over all records again for each link.
func walk(m dnsmessage.Message) []netip.Addr {
	name := "ok.example."
	for {
		next := ""
		var addrs []netip.Addr
		for _, r := range m.Answers {
			if r.Header.Class != dnsmessage.ClassINET || asciiLower(r.Header.Name.String()) != name {
				continue
			}
			switch b := r.Body.(type) {
			case *dnsmessage.CNAMEResource:
				next = asciiLower(b.CNAME.String())
			case *dnsmessage.AResource:
				if a := netip.AddrFrom4(b.A); !slices.Contains(addrs, a) {
					addrs = append(addrs, a)
				}
			}
		}
		if next == "" {
			return addrs
		}
		name = next
	}
}

// asciiLower leaves bytes beyond ASCII alone, which strings.ToLower does not.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}
