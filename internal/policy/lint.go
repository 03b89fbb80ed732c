// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"time"

	"bawn/internal/guard"
	"bawn/internal/names"
)

// lint refuses rules that are far wider than whoever wrote them may think,
// unless accept_risk says why.
func (r *reader) lint(d *Document) {
	d.each(func(_ *body, ru *rule) {
		if ru.deny || ru.acceptRisk != "" {
			return
		}
		if why, wide := names.TooWide(ru.host); wide {
			r.problems.add(ru.at("host"), ru.id+" host", "name the hosts, or say in accept_risk why it has to be so wide",
				"%s is too wide: %s", show(ru.spelled), why)
		}
		for _, p := range ru.addresses {
			if why := wideRange(p); why != "" {
				r.problems.add(ru.at("addresses"), ru.id+" addresses", "name the hosts' own range, or say in accept_risk why it has to be that",
					"%s is %s", p, why)
			}
		}
	})
}

// wideRange says why an address range needs accept_risk, or "".
func wideRange(p netip.Prefix) string {
	for _, s := range []struct{ prefix, why string }{
		{"127.0.0.0/8", "loopback: services of this host"},
		{"::1/128", "loopback: services of this host"},
		{"169.254.0.0/16", "link-local: metadata services of clouds"},
		{"fe80::/10", "link-local"},
		{"0.0.0.0/8", "not the address of another host"},
		{"::/128", "not the address of another host"},
		{"198.18.0.0/15", "the range of Bawn's own stand-in addresses"},
		{"224.0.0.0/3", "multicast and reserved"},
		{"ff00::/8", "multicast"},
	} {
		if p.IsValid() && p.Overlaps(netip.MustParsePrefix(s.prefix)) {
			return s.why
		}
	}
	if p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16 {
		return "very many addresses"
	}
	return ""
}

// Warnings are what is odd about the policy and not wrong, at the time now:
// rules that have expired, that match nothing, or that make no difference.
func (p *Policy) Warnings(now time.Time) Problems {
	if p == nil {
		return nil
	}
	all := append(Problems{}, p.warnings...)
	p.doc.each(func(_ *body, ru *rule) {
		if !ru.expires.IsZero() && !now.Before(ru.expires) {
			effect := "it matches nothing any more"
			if ru.deny {
				effect = "it denies nothing any more"
			}
			all.add(ru.at("expires"), ru.id, "remove it or give it a new time", "expired at %s: %s", ru.expires.UTC().Format(time.RFC3339), effect)
		}
	})
	_ = all.err() // sorts
	return all
}

// emptyRules warns of rules that can never match.
func emptyRules(d *Document, warnings *Problems) {
	d.each(func(_ *body, ru *rule) {
		for _, l := range []struct {
			key   string
			empty bool
		}{
			{"ports", ru.ports != nil && len(ru.ports) == 0},
			{"methods", ru.methods != nil && len(ru.methods) == 0},
			{"paths", ru.paths != nil && len(ru.paths) == 0},
		} {
			if l.empty {
				warnings.add(ru.at(l.key), ru.id+" "+l.key, "leave the key away for all of them", "an empty list matches nothing, so the rule never does")
			}
		}
	})
}

// speechlessTCP warns of rules with a port for TCP at which nothing but TLS is
// understood: whoever waits there for the server to speak waits for nothing.
func speechlessTCP(d *Document, warnings *Problems) {
	d.each(func(_ *body, ru *rule) {
		if ru.deny || ru.inspect != InspectFull {
			return
		}
		for _, p := range ru.ports {
			if p.Plain || p.Number == 443 || !slices.Contains(plainTCP, p.Number) && !slices.Contains(ru.asTCP, p.Number) {
				continue
			}
			warnings.add(ru.at("ports"), ru.id+" ports", "write inspect: none for TCP that is not TLS, such as ssh or a database",
				"port %d is taken for HTTPS, and a connection that does not begin with TLS is refused", p.Number)
		}
	})
}

// plainTCP are ports of protocols that do not begin with TLS: ssh, mail, MySQL and
// PostgreSQL.
var plainTCP = []uint16{22, 25, 587, 3306, 5432}

// deafWebSockets warns of rules that allow WebSockets and never open one.
func deafWebSockets(d *Document, warnings *Problems) {
	d.each(func(_ *body, ru *rule) {
		if !ru.websocket {
			return
		}
		if ru.methods != nil && !contains(ru.methods, "GET") {
			warnings.add(ru.at("websocket"), ru.id+" websocket", "add GET to methods", "a WebSocket is opened by GET, which the rule does not allow")
		}
		for _, step := range ru.chain {
			if _, judges := step.Guard.(guard.MessageGuard); !judges {
				warnings.add(ru.at("websocket"), ru.id+" websocket", "remove one of the two", "guard %s refuses every WebSocket", step.Name)
			}
		}
	})
}

// shadowed warns of rules of list that make no difference beside all.
func shadowed(list []*rule, all *set, warnings *Problems) {
	for _, ru := range list {
		if ru.host.IsZero() {
			continue
		}
		all.around(ru.host, func(other *rule) bool {
			if other == ru || !other.host.Covers(ru.host) {
				return true
			}
			switch {
			case other.deny && !ru.deny && other.expires.IsZero() && other.matchesAllOf(ru):
				warnings.add(ru.line, ru.id, "", "never allows anything: rule %s (line %d) denies all of it", other.id, other.line)
				return false
			case other.deny == ru.deny && other.expires.IsZero() && other.matchesAllOf(ru) && other.sameEffect(ru) && (!ru.matchesAllOf(other) || ru.host != other.host || other.line < ru.line):
				warnings.add(ru.line, ru.id, "", "makes no difference: rule %s (line %d) covers all of it", other.id, other.line)
				return false
			}
			return true
		})
	}
}

// matchesAllOf reports whether ru matches every request on its hosts that other
// matches; false where it cannot say.
func (ru *rule) matchesAllOf(other *rule) bool {
	for _, p := range other.ports {
		if !ru.hasPort(p) {
			return false
		}
	}
	if ru.ports != nil && other.ports == nil {
		return false
	}
	return coversWords(ru.methods, other.methods) && coversPaths(ru.paths, other.paths)
}

// sameEffect reports whether an allowing rule does to a request what other does.
// It may open WebSockets where other does not.
func (ru *rule) sameEffect(other *rule) bool {
	if ru.inspect != other.inspect || !ru.websocket && other.websocket || ru.guard != other.guard || ru.credential != other.credential || ru.sensitive != other.sensitive || len(ru.addresses) != len(other.addresses) {
		return false
	}
	for i, p := range ru.addresses {
		if p != other.addresses[i] {
			return false
		}
	}
	return true
}

func (ru *rule) hasPort(want Port) bool {
	if ru.ports == nil {
		return true
	}
	for _, p := range ru.ports {
		if p == want {
			return true
		}
	}
	return false
}

// coversWords reports whether list a, of which nil stands for all, holds all of b.
func coversWords(a, b []string) bool {
	if a == nil {
		return true
	}
	if b == nil {
		return false
	}
	for _, w := range b {
		if !contains(a, w) {
			return false
		}
	}
	return true
}

func coversPaths(a, b []glob) bool {
	if a == nil {
		return true
	}
	if b == nil {
		return false
	}
	for i := range b {
		found := false
		for j := range a {
			found = found || a[j].covers(&b[i])
		}
		if !found {
			return false
		}
	}
	return true
}
