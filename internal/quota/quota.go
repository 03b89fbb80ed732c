// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota says what a budget is: how much of something an agent may use in
// a period.
//
// Periods are those of the calendar in UTC: a day begins at midnight, a minute
// with its second zero. What is used up begins anew with the next period, for
// everybody at once, so that a refusal can say when. [Budget.Window] numbers the
// periods; package budget counts.
//
// Everything here is pure.
package quota

import (
	"fmt"
	"strings"
	"time"

	"bawn/internal/codes"
	"bawn/internal/verdict"
)

// A What is what a budget is about.
type What uint8

// The things that budgets are about.
const (
	EgressBytes    What = iota // octets to servers
	IngressBytes               // octets to the agent
	Requests                   // requests, WebSockets and tunnels that are let through
	Messages                   // messages on WebSockets, from the agent
	Queries                    // questions to the resolver
	Names                      // different names that something was let through to
	NewConnections             // connections that are accepted
	Connections                // connections that are open at a time
	whats
)

var whatNames = [whats]string{"egress_bytes", "ingress_bytes", "requests", "messages", "dns_queries", "names", "new_connections", "connections"}

// Whats lists all, in the order in which they are shown.
func Whats() []What {
	list := make([]What, whats)
	for i := range list {
		list[i] = What(i)
	}
	return list
}

// String is the key in policies.
func (w What) String() string {
	if w >= whats {
		return fmt.Sprintf("what(%d)", uint8(w))
	}
	return whatNames[w]
}

// ParseWhat reads what [What.String] gives.
func ParseWhat(s string) (What, bool) {
	for w, name := range whatNames {
		if name == s {
			return What(w), true
		}
	}
	return 0, false
}

// Bytes reports whether w is counted in octets.
func (w What) Bytes() bool { return w == EgressBytes || w == IngressBytes }

// OfRules reports whether a rule can have a budget of w: whether it is known, when
// w is used, which rules let it through.
func (w What) OfRules() bool {
	switch w {
	case EgressBytes, IngressBytes, Requests, Messages, Names:
		return true
	}
	return false
}

// A Period is how long a budget lasts.
type Period uint8

// The periods. At a time is none: what is given back can be used again.
const (
	AtATime Period = iota
	Second
	Minute
	Hour
	Day
	periods
)

var (
	periodNames   = [periods]string{"", "s", "min", "h", "day"}
	periodSeconds = [periods]int64{0, 1, 60, 60 * 60, 24 * 60 * 60}
)

// String is the shortest word of policies; that of [AtATime] is empty.
func (p Period) String() string {
	if p >= periods {
		return fmt.Sprintf("period(%d)", uint8(p))
	}
	return periodNames[p]
}

// ParsePeriod reads the words of policies.
func ParsePeriod(s string) (Period, bool) {
	switch s {
	case "s", "second":
		return Second, true
	case "min", "minute":
		return Minute, true
	case "h", "hour":
		return Hour, true
	case "day":
		return Day, true
	}
	return 0, false
}

// Seconds is how long the period is.
func (p Period) Seconds() int64 { return periodSeconds[p] }

// Window numbers the period that t is in, from 1970. There is one only of what
// is at a time.
func (p Period) Window(t time.Time) int64 {
	if p == AtATime {
		return 0
	}
	s, n := t.Unix(), periodSeconds[p]
	if s < 0 {
		return 0 // no clock is that wrong by accident
	}
	return s / n
}

// Begins is when a period begins.
func (p Period) Begins(window int64) time.Time {
	return time.Unix(window*periodSeconds[p], 0).UTC()
}

// A Key is what is counted apart: of an agent as a whole, or of what one rule
// lets it do.
type Key struct {
	What What
	Per  Period
	Rule string // id; empty: the agent as a whole
}

// A Budget is a bound on a Key.
type Budget struct {
	Key
	Limit  int64
	Origin string // "profile NAME", "agent NAME" or "rule ID"
	Line   int    // of the policy
}

// String gives the key and the value that a policy has for it: "requests 600/min".
func (b Budget) String() string { return b.What.String() + " " + b.Amount() }

// Amount is the value that a policy has for the budget.
func (b Budget) Amount() string {
	s := amount(b.What, b.Limit)
	if b.Per != AtATime {
		s += "/" + b.Per.String()
	}
	return s
}

// Stage is what verdicts about budgets say.
const Stage = "budget"

// Code is the code of a refusal: that of a budget which is gone for long, of one
// that comes back soon, or of one that comes back when the agent gives back.
func (b Budget) Code() codes.Code {
	switch {
	case b.Per == AtATime:
		return codes.ConcurrencyExceeded
	case b.Per <= Minute && !b.What.Bytes():
		return codes.RateLimited
	}
	return codes.BudgetExceeded
}

// Refuse is the verdict on what goes beyond the budget in a window.
func (b Budget) Refuse(window int64) verdict.Verdict {
	detail := "the budget " + b.String()
	if b.Per == AtATime {
		detail += " is in use"
	} else {
		detail += " is used up, and begins anew at " + b.Per.Begins(window+1).Format(time.RFC3339)
	}
	v := verdict.Refuse(Stage, b.Code(), fmt.Sprintf("%s (%s, line %d of the policy)", detail, b.Origin, b.Line))
	v.Rule = b.Rule
	return v
}

// ForAgents is what of the detail of a refusal an agent may know.
func ForAgents(detail string) string {
	said, _, _ := strings.Cut(detail, " (")
	return said
}

// Tightest puts lists about one agent together: of several budgets for the same
// the smallest holds, and of equal ones the first.
func Tightest(lists ...[]Budget) []Budget {
	var all []Budget
	for _, list := range lists {
	next:
		for _, b := range list {
			for i := range all {
				if all[i].Key == b.Key {
					if b.Limit < all[i].Limit {
						all[i] = b
					}
					continue next
				}
			}
			all = append(all, b)
		}
	}
	return all
}
