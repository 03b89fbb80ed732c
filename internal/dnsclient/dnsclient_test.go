// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnsclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"bawn/internal/codes"
	"bawn/internal/dnsclient"
	"bawn/internal/names"
)

var okHost = names.MustParse("ok.example")

// lookup is Lookup with the addresses sorted and as text.
func lookup(t *testing.T, c *dnsclient.Client, h names.Host) ([]string, error) {
	t.Helper()
	addrs, err := c.Lookup(t.Context(), h)
	slices.SortFunc(addrs, netip.Addr.Compare)
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list, err
}

func client(opt dnsclient.Options, servers ...*server) *dnsclient.Client {
	for _, s := range servers {
		opt.Servers = append(opt.Servers, s.addr)
	}
	if opt.Timeout == 0 {
		opt.Timeout = 5 * time.Second
	}
	if opt.Patience == 0 {
		opt.Patience = 5 * time.Second
	}
	return dnsclient.New(opt)
}

func wantReason(t *testing.T, err error, want dnsclient.Reason) {
	t.Helper()
	e, ok := errors.AsType[*dnsclient.Error](err)
	if !ok || e.Reason != want || e.Code() != codes.AddressUnresolved {
		t.Errorf("error %v, want reason %q", err, want)
	}
}

func TestLookup(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1", "ok.example. A 192.0.2.2"}, "ok.example. AAAA": {"ok.example. AAAA 2001:db8::1"}})
	got, err := lookup(t, client(dnsclient.Options{}, s), okHost)
	if err != nil || strings.Join(got, " ") != "192.0.2.1 192.0.2.2 2001:db8::1" {
		t.Errorf("%v, %v", got, err)
	}
	if q := s.asked(); strings.Join(q, ", ") != "udp ok.example. A, udp ok.example. AAAA" {
		t.Errorf("asked %v", q)
	}
}

func TestLookupOneFamily(t *testing.T) {
	for typ, answer := range map[string]string{"A": "192.0.2.1", "AAAA": "2001:db8::1"} {
		s := serve(t, zone{"ok.example. " + typ: {"ok.example. " + typ + " " + answer}})
		if got, err := lookup(t, client(dnsclient.Options{}, s), okHost); err != nil || strings.Join(got, " ") != answer {
			t.Errorf("%s: %v, %v", typ, got, err)
		}
	}
}

// TestI6AliasesStayInsideTheAnswer: addresses count along the chain of aliases
// from the name, and nowhere else.
func TestI6AliasesStayInsideTheAnswer(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. CNAME CDN.example.", "cdn.example. A 192.0.2.1", "evil.example. A 192.0.2.66"}})
	c := client(dnsclient.Options{}, s)
	if got, err := lookup(t, c, okHost); err != nil || strings.Join(got, " ") != "192.0.2.1" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := lookup(t, c, names.MustParse("evil.example")); err == nil {
		t.Error("an address beside the question was kept")
	}
}

func TestNegativeAnswers(t *testing.T) {
	s := serve(t, zone{"empty.example. A": {}, "cut.example. A": {"cut.example. CNAME elsewhere.example."}})
	c := client(dnsclient.Options{}, s)
	_, err := lookup(t, c, names.MustParse("none.example"))
	wantReason(t, err, dnsclient.NoName)
	_, err = lookup(t, c, names.MustParse("empty.example"))
	wantReason(t, err, dnsclient.NoAddress)
	_, err = lookup(t, c, names.MustParse("cut.example"))
	wantReason(t, err, dnsclient.NoAddress)
	if slices.ContainsFunc(s.asked(), func(q string) bool { return strings.Contains(q, "elsewhere") }) {
		t.Error("the end of a chain was asked for")
	}
	_, err = c.Lookup(t.Context(), names.Host{})
	wantReason(t, err, dnsclient.NoName)
	_, err = lookup(t, dnsclient.New(dnsclient.Options{}), okHost)
	wantReason(t, err, dnsclient.Unanswered)
}

func TestTruncatedGoesOverTCP(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	s.set(func(r *request) {
		if r.network == "udp" {
			r.reply.Truncated = true
			r.reply.Answers = nil
		}
	})
	got, err := lookup(t, client(dnsclient.Options{}, s), okHost)
	if err != nil || strings.Join(got, " ") != "192.0.2.1" {
		t.Errorf("%v, %v", got, err)
	}
	if q := s.asked(); !slices.Contains(q, "tcp ok.example. A") {
		t.Errorf("asked %v", q)
	}
}

// TestFailingServerIsPassedOver: whatever a server does wrong, the next is asked.
func TestFailingServerIsPassedOver(t *testing.T) {
	good := zone{"ok.example. A": {"ok.example. A 192.0.2.1"}}
	for name, wrong := range map[string]func(*request){
		"SERVFAIL":              func(r *request) { r.reply.RCode = dnsmessage.RCodeServerFailure },
		"REFUSED":               func(r *request) { r.reply.RCode = dnsmessage.RCodeRefused },
		"silence":               func(r *request) { r.drop = true },
		"an answer cut short":   func(r *request) { r.mangle = func(b []byte) []byte { return b[:len(b)-1] } },
		"truncated on TCP too":  func(r *request) { r.reply.Truncated = true },
		"a loop of aliases":     func(r *request) { r.reply.Answers = []dnsmessage.Resource{rr("ok.example. CNAME ok.example.")} },
		"another question":      func(r *request) { r.reply.Questions[0].Name = dnsmessage.MustNewName("evil.example.") },
		"another id":            func(r *request) { r.reply.ID++ },
		"empty packets":         func(r *request) { r.mangle = func([]byte) []byte { return nil } },
		"TCP that ends at once": func(r *request) { r.reply.Truncated = r.network == "udp"; r.drop = r.network == "tcp" },
		"TCP that is too short": func(r *request) {
			r.reply.Truncated = r.network == "udp"
			if r.network == "tcp" {
				r.mangle = func(b []byte) []byte { return b[:5] }
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad, fine := serve(t, good), serve(t, good)
			bad.set(wrong)
			c := client(dnsclient.Options{Timeout: 200 * time.Millisecond}, bad, fine)
			got, err := lookup(t, c, okHost)
			if err != nil || strings.Join(got, " ") != "192.0.2.1" {
				t.Fatalf("%v, %v", got, err)
			}
			if len(bad.asked()) == 0 || len(fine.asked()) == 0 {
				t.Errorf("asked %v, then %v", bad.asked(), fine.asked())
			}
			// The one that answered is asked first from now on.
			before := len(bad.asked())
			if _, err := lookup(t, c, names.MustParse("none.example")); err == nil {
				t.Error("a name that is not there resolves")
			}
			if n := len(bad.asked()); n != before {
				t.Errorf("the failing server was asked again: %v", bad.asked()[before:])
			}
			// Alone, it is a failure, not "no such name".
			_, err = lookup(t, client(dnsclient.Options{Timeout: 50 * time.Millisecond}, bad), okHost)
			wantReason(t, err, dnsclient.Unanswered)
		})
	}
}

func TestClosedPortIsPassedOver(t *testing.T) {
	fine := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	gone := &server{addr: netip.MustParseAddrPort("127.0.0.1:1")}
	if got, err := lookup(t, client(dnsclient.Options{}, gone, fine), okHost); err != nil || strings.Join(got, " ") != "192.0.2.1" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestStrayPacketsArePassedOver: packets with another id or question in front of
// the true answer do no harm, up to a bound.
func TestStrayPacketsArePassedOver(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	for strays, fails := range map[int]bool{5: false, 40: true} {
		s.set(func(r *request) { r.strays = strays })
		got, err := lookup(t, client(dnsclient.Options{}, s), okHost)
		if (err != nil) != fails || (!fails && strings.Join(got, " ") != "192.0.2.1") {
			t.Errorf("%d stray packets: %v, %v", strays, got, err)
		}
	}
}

// TestSilentFamilyHoldsNothingUp: no answer for IPv6 leaves IPv4.
func TestSilentFamilyHoldsNothingUp(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	s.set(func(r *request) { r.drop = r.reply.Questions[0].Type == dnsmessage.TypeAAAA })
	c := client(dnsclient.Options{Timeout: time.Hour, Patience: 10 * time.Millisecond}, s)
	if got, err := lookup(t, c, okHost); err != nil || strings.Join(got, " ") != "192.0.2.1" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFailedFamilyLeavesTheOther(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	s.set(func(r *request) {
		if r.reply.Questions[0].Type == dnsmessage.TypeAAAA {
			r.reply.RCode = dnsmessage.RCodeServerFailure
		}
	})
	if got, err := lookup(t, client(dnsclient.Options{}, s), okHost); err != nil || strings.Join(got, " ") != "192.0.2.1" {
		t.Errorf("%v, %v", got, err)
	}
	// With nothing from the other family it is a failure.
	_, err := lookup(t, client(dnsclient.Options{}, s), names.MustParse("none.example"))
	wantReason(t, err, dnsclient.Unanswered)
}

func TestCacheKeepsTTLAndBound(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	s := serve(t, zone{
		"short.example. A": {"short.example. A/5 192.0.2.1"},
		"long.example. A":  {"long.example. A/86400 192.0.2.1"},
		"zero.example. A":  {"zero.example. A/0 192.0.2.1"},
	})
	c := client(dnsclient.Options{Now: clock}, s)
	asks := func(name string) int {
		before := len(s.asked())
		_, _ = c.Lookup(t.Context(), names.MustParse(name))
		return len(s.asked()) - before
	}
	for _, step := range []struct {
		pass time.Duration
		name string
		want int
	}{
		{0, "short.example", 2}, {0, "long.example", 2}, {0, "zero.example", 2}, {0, "none.example", 2},
		{4 * time.Second, "short.example", 0}, {0, "long.example", 0}, {0, "zero.example", 2}, {0, "none.example", 0},
		{time.Second, "short.example", 2}, {0, "none.example", 2}, {0, "long.example", 0},
		{54 * time.Second, "long.example", 0}, {time.Second, "long.example", 2},
	} {
		pass(step.pass)
		if got := asks(step.name); got != step.want {
			t.Errorf("at %v %s: %d questions, want %d", clock().Unix(), step.name, got, step.want)
		}
	}
}

func TestFailuresAreNotKept(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	s.set(func(r *request) { r.reply.RCode = dnsmessage.RCodeServerFailure })
	c := client(dnsclient.Options{}, s)
	_, err := lookup(t, c, okHost)
	wantReason(t, err, dnsclient.Unanswered)
	s.set(nil)
	if got, err := lookup(t, c, okHost); err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCallersSliceIsItsOwn(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	c := client(dnsclient.Options{}, s)
	first, err := c.Lookup(t.Context(), okHost)
	if err != nil {
		t.Fatal(err)
	}
	first[0] = netip.MustParseAddr("192.0.2.66")
	if second, err := lookup(t, c, okHost); err != nil || second[0] != "192.0.2.1" {
		t.Errorf("%v, %v: a caller changed the cache", second, err)
	}
}

// TestLookupsShareQuestions: many lookups of one name at one time ask once, and
// one that gives up does not take the others with it.
func TestLookupsShareQuestions(t *testing.T) {
	s := serve(t, zone{"ok.example. A": {"ok.example. A 192.0.2.1"}})
	gate := make(chan struct{})
	s.set(func(r *request) { <-gate })
	c := client(dnsclient.Options{}, s)
	gone, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := c.Lookup(gone, okHost); first <- err }()
	s.waitAsked(t, 1)
	results := make(chan error, 8)
	for range cap(results) {
		go func() { _, err := c.Lookup(t.Context(), okHost); results <- err }()
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that gave up: %v", err)
	}
	close(gate)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if q := s.asked(); len(q) != 2 {
		t.Errorf("asked %v", q)
	}
}

func TestErrorsSayWho(t *testing.T) {
	s := serve(t, nil)
	s.set(func(r *request) { r.reply.RCode = dnsmessage.RCodeRefused })
	_, err := lookup(t, client(dnsclient.Options{}, s), okHost)
	for _, want := range []string{"ok.example", s.addr.String(), "REFUSED"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}
