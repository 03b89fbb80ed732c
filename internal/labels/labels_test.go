// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package labels_test

import (
	"strings"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/labels"
	"bawn/internal/names"
)

func of(host, under string) labels.Choice {
	return labels.Of(names.MustParse(host), names.MustPattern(under))
}

// TestOf: what the agent chose is in front of the rule's own part; what it
// counts for is what somebody registered, so that neither splitting a name into
// labels nor a second rule makes a second budget.
func TestOf(t *testing.T) {
	for _, c := range []struct{ host, under, domain, chosen string }{
		{"a.example.com", "*.example.com", "example.com", "a"},
		{"sk-ant.aabb.ccdd.example.com", "*.example.com", "example.com", "sk-ant.aabb.ccdd"},
		{"x.a.example.com", "*.a.example.com", "example.com", "x"},
		{"x.b.example.com", "*.b.example.com", "example.com", "x"},
		{"x.example.co.uk", "*.example.co.uk", "example.co.uk", "x"},
		{"bucket.s3.amazonaws.com", "*.s3.amazonaws.com", "amazonaws.com", "bucket"},
		{"me.github.io", "*.github.io", "github.io", "me"},
		{"www.example.com", "*", "example.com", "www.example.com"},
		{"a.b.com", "*.com", "b.com", "a.b"},
		{"host.corp.internal", "*.corp.internal", "corp.internal", "host"},
		{"single", "*", "single", "single"},
	} {
		got := of(c.host, c.under)
		if got.Domain.String() != c.domain || got.Labels != c.chosen {
			t.Errorf("%s under %s: %+v", c.host, c.under, got)
		}
	}
}

func TestShape(t *testing.T) {
	lim := labels.Limits{NameOctets: 20, NameLabels: 3}.WithDefaults()
	for name, ok := range map[string]bool{
		"a": true, strings.Repeat("a", 20): true, strings.Repeat("a", 21): false,
		"a.b.c": true, "a.b.c.d": false, "aaaaaaaaa.aaaaaaaaaa": true, "aaaaaaaaaa.aaaaaaaaaa": false,
	} {
		v := lim.Shape(of(name+".example.com", "*.example.com"))
		if v.Allowed() != ok || (!ok && (v.Code != codes.DNSLabelBudget || v.Stage != "name")) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestShapeOfRealServices: names that providers really give, under the widest
// wildcards that somebody may write for them.
func TestShapeOfRealServices(t *testing.T) {
	lim := labels.Limits{}.WithDefaults()
	for _, c := range []struct{ host, under string }{
		{"my-application-git-a-feature-branch-of-the-team-my-team-name.vercel.app", "*.vercel.app"},
		{"vpce-0123456789abcdef0-abcdefgh-us-east-1a.s3.us-east-1.vpce.amazonaws.com", "*.amazonaws.com"},
		{"search-a-domain-with-28-letters-abcdefghijklmnopqrstuvwxyz.us-gov-west-1.es.amazonaws.com", "*.amazonaws.com"},
		{strings.Repeat("b", 63) + ".s3.dualstack.ap-southeast-1.amazonaws.com", "*.amazonaws.com"},
		{"abcdefghijklmnopqrstuvwxyz012345.lambda-url.us-east-1.on.aws", "*.on.aws"},
		{strings.Repeat("b", 40) + "." + strings.Repeat("0", 32) + ".r2.cloudflarestorage.com", "*.r2.cloudflarestorage.com"},
		{"my.bucket.with.dots.s3.us-east-1.amazonaws.com", "*.amazonaws.com"},
		{"myaccount-secondary.blob.core.windows.net", "*.windows.net"},
		{"us-central1-docker.pkg.dev", "*.pkg.dev"},
	} {
		if v := lim.Shape(of(c.host, c.under)); !v.Allowed() {
			t.Errorf("%s: %s", c.host, v.Detail)
		}
	}
}

func TestNew(t *testing.T) {
	lim := labels.Limits{Names: 3, Octets: 30, AllNames: 5}.WithDefaults()
	c := of("0123456789.example.com", "*.example.com")
	for _, x := range []struct {
		before labels.Count
		ok     bool
	}{
		{labels.Count{}, true},
		{labels.Count{Names: 2, Octets: 20, All: 4}, true},
		{labels.Count{Names: 3}, false},
		{labels.Count{Octets: 21}, false},
		{labels.Count{All: 5}, false},
	} {
		v := lim.New(c, x.before)
		if v.Allowed() != x.ok || (!x.ok && v.Code != codes.DNSLabelBudget) {
			t.Errorf("%+v: %+v", x.before, v)
		}
	}
}

// TestEncoded is about a hint; it may be wrong, and should rarely be.
func TestEncoded(t *testing.T) {
	for chosen, want := range map[string]bool{
		"www":    false,
		"a1b2c3": false,
		"my-application-git-a-feature-branch-team":                     false,
		"search-documents-of-2024-in-us-east-1":                        false,
		"48656c6c6f20776f726c6421202020202020202048656c6c6f20776f726c": true, // hexadecimal
		"nbswy3dpeb3w64tmmqqsa2lomuqgc3teebsgc5dbfqqhg33":              true, // base32
		"ok.9f86d081884c7d659a2feaa0c55ad015":                          true,
	} {
		if got := of(chosen+".example.com", "*.example.com").Encoded(); got != want {
			t.Errorf("%s: %v", chosen, got)
		}
	}
}

// FuzzOf: chosen labels and the rule's own part are the whole name, and the
// domain is a part of it that no agent can move by what stands in front.
func FuzzOf(f *testing.F) {
	f.Add("a.b", "example.com")
	f.Add("x", "s3.amazonaws.com")
	f.Add("x.y.z", "co.uk")
	f.Fuzz(func(t *testing.T, front, rest string) {
		p, err := names.ParsePattern("*." + rest)
		if err != nil {
			return
		}
		h, err := names.Parse(front + "." + p.Host().String())
		if err != nil || !p.Match(h) {
			return
		}
		c := labels.Of(h, p)
		if c.Labels+"."+p.Host().String() != h.String() || c.Labels == "" {
			t.Fatalf("%s under %s: chosen %q", h, p, c.Labels)
		}
		if d := c.Domain.String(); d != h.String() && !strings.HasSuffix(h.String(), "."+d) {
			t.Fatalf("%s counts for %s", h, d)
		}
		if names.Registrable(c.Domain) != c.Domain {
			t.Fatalf("%s counts for %s, and that for %s", h, c.Domain, names.Registrable(c.Domain))
		}
		if base := names.Registrable(p.Host()); base != p.Host() && c.Domain != base {
			t.Fatalf("%s counts for %s, the rule's own part for %s", h, c.Domain, base)
		}
	})
}
