// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/policy"
)

// A Kind says which way a change goes.
type Kind string

// The kinds. What could not be compared counts as wider.
const (
	Widened    Kind = "widened"
	Narrowed   Kind = "narrowed"
	Neither    Kind = "neither"
	Uncompared Kind = "uncompared"
)

// A What is what changed.
type What string

// What can change. The first three are about what is let through, the next
// about how; the last ones let nothing through and hold nothing back.
const (
	Allowed   What = "allowed"
	Denied    What = "denied"
	Unread    What = "not inspected"
	Inspected What = "inspected"

	GuardGone     What = "guard gone"
	GuardAdded    What = "guard added"
	Credential    What = "credential"
	AddressesMore What = "addresses added"
	AddressesLess What = "addresses gone"
	CountedLess   What = "names count less"
	CountedMore   What = "names count more"
	BudgetMore    What = "budget greater"
	BudgetLess    What = "budget smaller"

	Sensitive What = "sensitive"
	Reworded  What = "reworded"
	TooMany   What = "too much to compare"
)

// A Change is one way in which policy B differs from policy A for an agent.
// Lists that are nil stand for everything.
type Change struct {
	Kind Kind   `json:"kind"`
	What What   `json:"what"`
	More string `json:"more,omitempty"` // which guard, credential, ranges; the code of a denial

	Hosts  []string `json:"hosts,omitempty"`
	Except []string `json:"except,omitempty"` // names under these wildcards that this is not about
	Ports  []string `json:"ports,omitempty"`
	// Methods holds "WebSocket" for a GET that opens one. With OtherMethods it
	// is about every method that is not among Known.
	Methods      []string `json:"methods,omitempty"`
	OtherMethods bool     `json:"other_methods,omitempty"`
	KnownMethods []string `json:"known_methods,omitempty"`
	NoWebSocket  bool     `json:"no_websocket,omitempty"` // every method, and not a GET that opens a WebSocket
	Paths        []string `json:"paths,omitempty"`
	OtherPaths   bool     `json:"other_paths,omitempty"` // and those that no pattern of either policy stands for
	ExceptPaths  []string `json:"except_paths,omitempty"`

	From  *time.Time `json:"from,omitempty"`  // absent: from now on
	Until *time.Time `json:"until,omitempty"` // absent: for good
	Rule  string     `json:"rule,omitempty"`  // that makes it so, of B where B has one
	Text  string     `json:"text"`            // the change in words
}

// A Group is agents for which the same changed.
type Group struct {
	Agents  []string `json:"agents"`
	Changes []Change `json:"changes"`
}

// A Report is all that differs between two policies.
type Report struct {
	Groups []Group  `json:"groups"`
	Same   []string `json:"same"` // agents for which nothing changed
}

// Reach sums up: the widest kind of all changes, or Neither.
func (r Report) Reach() Kind {
	reach := Neither
	for _, g := range r.Groups {
		for _, c := range g.Changes {
			switch {
			case c.Kind == Widened || c.Kind == Uncompared:
				return Widened
			case c.Kind == Narrowed:
				reach = Narrowed
			}
		}
	}
	return reach
}

// Covers reports whether the change, as its words say it, is about a request at a
// time, or with an empty method about a connection. It is never too narrow, and
// may be wider than the difference is.
func (c Change) Covers(q policy.Query, at time.Time) bool {
	if c.From != nil && at.Before(*c.From) || c.Until != nil && !at.Before(*c.Until) {
		return false
	}
	return c.coversHost(q.Host) && c.coversPort(q) && c.coversMethod(q) && c.coversPath(q)
}

func (c Change) coversHost(h names.Host) bool {
	if c.Hosts == nil {
		return true
	}
	// Patterns that stand for one name lie within each other; the narrowest
	// decides.
	narrowest, in := names.Pattern{}, false
	for i, s := range slices.Concat(c.Hosts, c.Except) {
		p, err := names.ParsePattern(s)
		if err == nil && p.Match(h) && (narrowest.IsZero() || narrowest.Covers(p)) {
			narrowest, in = p, i < len(c.Hosts)
		}
	}
	return in
}

func (c Change) coversPort(q policy.Query) bool {
	return c.Ports == nil || slices.Contains(c.Ports, policy.Port{Number: q.Port, Plain: q.Plain}.String()) ||
		slices.Contains(c.Ports, fmt.Sprintf("%d", q.Port))
}

func (c Change) coversMethod(q policy.Query) bool {
	switch {
	case q.Method == "" || c.Methods == nil && !c.OtherMethods:
		return !q.WebSocket || !c.NoWebSocket
	case q.WebSocket:
		return slices.Contains(c.Methods, webSocket)
	}
	return slices.Contains(c.Methods, q.Method) || c.OtherMethods && !slices.Contains(c.KnownMethods, q.Method)
}

func (c Change) coversPath(q policy.Query) bool {
	if q.Method == "" || c.Paths == nil || c.OtherPaths {
		return true
	}
	return slices.ContainsFunc(c.Paths, func(s string) bool {
		p, err := policy.ParsePath(s)
		if err != nil {
			return true
		}
		return p.Match(q.Path) && !slices.ContainsFunc(c.ExceptPaths, func(s string) bool {
			e, err := policy.ParsePath(s)
			return err == nil && e.Match(q.Path) && p.Covers(e)
		})
	})
}

// webSocket stands among methods for a GET that opens a WebSocket.
const webSocket = "WebSocket"

// subject says in words what the change is about.
func (c Change) subject() string {
	var b strings.Builder
	b.WriteString(strings.Join(c.Hosts, ", "))
	if len(c.Except) > 0 {
		b.WriteString(" (but not " + strings.Join(c.Except, ", ") + ")")
	}
	if c.Ports != nil {
		b.WriteString(" port " + strings.Join(c.Ports, ", "))
	}
	if c.Methods != nil || c.OtherMethods {
		list := slices.Clone(c.Methods)
		if c.OtherMethods {
			other := "other methods"
			if len(c.KnownMethods) > 0 {
				other = "methods other than " + strings.Join(c.KnownMethods, ", ")
			}
			list = append(list, other)
		}
		b.WriteString(": " + strings.Join(list, ", "))
	} else if c.Paths != nil || c.OtherPaths {
		b.WriteString(": every method")
	}
	if c.Paths != nil || c.OtherPaths {
		list := slices.Clone(c.Paths)
		if c.OtherPaths {
			list = append(list, "other paths")
		}
		b.WriteString(" on " + strings.Join(list, ", "))
		if len(c.ExceptPaths) > 0 {
			b.WriteString(" (but not " + strings.Join(c.ExceptPaths, ", ") + ")")
		}
	}
	return b.String()
}

// words says the whole change.
func (c Change) words() string {
	text := c.subject() + ": " + c.verb()
	switch {
	case c.Rule == "":
	case c.What == Denied && c.More != string(codes.PolicyDenied):
		text += ", rule " + c.Rule + " allowed it"
	default:
		text += ", by rule " + c.Rule
	}
	if c.From != nil {
		text += ", from " + c.From.UTC().Format(time.RFC3339)
	}
	if c.Until != nil {
		text += ", until " + c.Until.UTC().Format(time.RFC3339)
	}
	return text
}

func (c Change) verb() string {
	switch c.What {
	case Allowed:
		if c.More != "" {
			return "allowed now (" + c.More + ")"
		}
		return "allowed now"
	case Denied:
		return "denied now (" + c.More + ")"
	case Unread:
		return "not inspected any more: " + c.More + " passes"
	case Inspected:
		return "inspected now, where " + c.More + " passed"
	case GuardGone:
		return "guard " + c.More + " does not judge it any more"
	case GuardAdded:
		return "guard " + c.More + " judges it now"
	case Credential:
		return "goes with another credential: " + c.More
	case AddressesMore:
		return "may resolve to " + c.More + " now"
	case AddressesLess:
		return "may not resolve to " + c.More + " any more"
	case CountedLess, CountedMore:
		return string(c.What) + " against the budget of made-up names: " + c.More
	case BudgetMore:
		return "does not count any more for budget " + c.More
	case Sensitive:
		return "records are " + c.More + " as sensitive now"
	}
	return c.More
}
