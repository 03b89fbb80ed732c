// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names_test

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/names"
)

// canonical is the grammar of a Host, written a second time and in another way.
var canonical = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$`)

var seeds = []string{
	"ok.example", "OK.EXAMPLE.", "a..b", "xn--bcher-kva.example", "xn--example-.com", "1.2.3.4", "0x7f000001", "::1",
	"[::1]:443", "ok.example:443", "a@b:443", "*.example.com", "*", "ex*ample.com", "\u212a.example", "evil\x00.ok",
	"fe80::1%eth0", "xn--.x", "r3---sn-a.example", "_x.example", "ok.example:00443", "[1.2.3.4]:80",
}

// FuzzI4Parse: what Parse lets through is in the grammar, parses to itself, is
// no address to net/netip, and differs from the input in case and one final dot
// only. What it refuses carries one of two codes and no Host.
func FuzzI4Parse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := names.Parse(s)
		if err != nil {
			e, ok := errors.AsType[*names.Error](err)
			if !ok || (e.Code != codes.HostInvalid && e.Code != codes.IPLiteralDenied) || !h.IsZero() {
				t.Fatalf("Parse(%q) = %q, %v", s, h, err)
			}
			return
		}
		name := h.String()
		if !canonical.MatchString(name) || len(name) > names.MaxHost {
			t.Fatalf("Parse(%q) = %q, which is not canonical", s, name)
		}
		if again, err := names.Parse(name); err != nil || again != h {
			t.Fatalf("Parse(%q) = %q, %v: not a fixed point", name, again, err)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Fatalf("Parse(%q) = %q, an address", s, name)
		}
		if want := strings.ToLower(strings.TrimSuffix(s, ".")); name != want {
			t.Fatalf("Parse(%q) = %q, want %q: more than case and one dot changed", s, name, want)
		}
	})
}

// FuzzI4ParseAuthority: an authority reads back from its own text as itself, and
// net/url, a second parser, sees the same host and port in it.
func FuzzI4ParseAuthority(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := names.ParseAuthority(s)
		if err != nil {
			if a != (names.Authority{}) {
				t.Fatalf("ParseAuthority(%q) refused, yet %v", s, a)
			}
			return
		}
		if a.Host.IsZero() == !a.Addr.IsValid() {
			t.Fatalf("ParseAuthority(%q) = %v: not one of host and address", s, a)
		}
		if again, err := names.ParseAuthority(a.String()); err != nil || again != a {
			t.Fatalf("ParseAuthority(%q) = %v, %v: want %v", a, again, err, a)
		}
		u, err := url.Parse("http://" + s + "/")
		if err != nil {
			t.Fatalf("ParseAuthority(%q) = %v, and net/url refuses it: %v", s, a, err)
		}
		host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
		if a.IsIP() {
			if addr, err := netip.ParseAddr(host); err != nil || addr != a.Addr {
				t.Fatalf("ParseAuthority(%q) = %v, net/url sees host %q", s, a, host)
			}
		} else if host != a.Host.String() {
			t.Fatalf("ParseAuthority(%q) = %v, net/url sees host %q", s, a, host)
		}
		if b, err := names.ParseAuthority("x.example:" + u.Port()); a.HasPort && (err != nil || b.Port != a.Port) {
			t.Fatalf("ParseAuthority(%q) = %v, net/url sees port %q", s, a, u.Port())
		}
	})
}

// FuzzPattern: a pattern reads back from its text as itself, and Match agrees
// with a comparison label by label.
func FuzzPattern(f *testing.F) {
	for _, s := range seeds {
		f.Add(s, "a.ok.example")
	}
	f.Fuzz(func(t *testing.T, s, name string) {
		p, err := names.ParsePattern(s)
		if err != nil {
			return
		}
		if again, err := names.ParsePattern(p.String()); err != nil || again != p {
			t.Fatalf("ParsePattern(%q) = %q, %v: want %q", p, again, err, p)
		}
		if !p.Covers(p) {
			t.Fatalf("%q does not cover itself", p)
		}
		h, err := names.Parse(name)
		if err != nil {
			return
		}
		if got, want := p.Match(h), matchLabels(p.String(), h.String()); got != want {
			t.Fatalf("%q matches %q: %v, label by label %v", p, h, got, want)
		}
		if p.Match(h) != p.Covers(names.Exact(h)) {
			t.Fatalf("%q: Match and Covers disagree about %q", p, h)
		}
	})
}

// matchLabels is the oracle: labels compared from the right.
func matchLabels(pattern, host string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(host, ".")
	if want[0] != "*" {
		return pattern == host
	}
	want = want[1:]
	if len(have) <= len(want) {
		return false
	}
	tail := have[len(have)-len(want):]
	for i := range want {
		if want[i] != tail[i] {
			return false
		}
	}
	return true
}
