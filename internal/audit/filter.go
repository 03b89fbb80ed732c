// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"net"
	"strings"
	"time"

	"bawn/internal/verdict"
)

// needles are what every line that f chooses holds, as the journal writes it,
// and so does the line of its outcome.
func (f *Filter) needles() [][]byte {
	var all [][]byte
	for _, n := range []struct{ key, value string }{
		{`"agent":`, f.Agent}, {`"user":`, f.User}, {`"session":`, f.Session}, {`"request":`, f.Request},
	} {
		if n.value != "" {
			all = append(all, appendString([]byte(n.key), n.value))
		}
	}
	return all
}

func (f *Filter) within(t time.Time) bool {
	return (f.Since.IsZero() || !t.Before(f.Since)) && (f.Until.IsZero() || t.Before(f.Until))
}

// decision judges everything but what the outcome may still bring.
func (f *Filter) decision(d *Decision) bool {
	return f.within(d.Time) &&
		is(f.Agent, d.Agent) && (f.Except == "" || f.Except != d.Agent) &&
		is(f.User, d.User) && is(f.Session, d.Session) && is(f.Host, d.Host) &&
		(f.Verdict == nil || *f.Verdict == d.Verdict) &&
		is(f.Plane, d.Plane) && is(f.Rule, d.Rule) && is(f.Method, d.Method) &&
		strings.HasPrefix(d.Path, f.Path) && is(f.Request, d.Request) && f.end(f.Client, d.Client)
}

// is reports whether a field has the value that is wanted; the empty one is not
// wanted at all.
func is(want, have string) bool { return want == "" || want == have }

// end reports whether an address and port is the one that is wanted, or has the
// address that is.
func (f *Filter) end(want, have string) bool {
	if want == "" || want == have {
		return true
	}
	host, _, err := net.SplitHostPort(have)
	return err == nil && host == want
}

// Joined judges what is known of e once its outcome is.
func (f *Filter) Joined(e *Entry) bool {
	if f.Status != 0 && (e.Outcome == nil || e.Outcome.Status != f.Status) {
		return false
	}
	if f.Upstream != "" && !f.reached(e) {
		return false
	}
	if f.Code == "" {
		return true
	}
	return (e.Decision != nil && e.Decision.Code == f.Code) ||
		(e.Outcome != nil && e.Outcome.Code == f.Code) ||
		(e.Summary != nil && e.Summary.Codes[f.Code] > 0) ||
		(e.Act != nil && e.Act.Code == f.Code) || (e.Result != nil && e.Result.Code == f.Code)
}

func (f *Filter) reached(e *Entry) bool {
	switch {
	case e.Outcome != nil:
		return f.end(f.Upstream, e.Outcome.Upstream)
	case e.Dial != nil:
		return f.end(f.Upstream, e.Dial.Upstream)
	}
	return false
}

func (f *Filter) summary(s *Summary) bool {
	return f.within(s.Time) && f.Host+f.Session+f.Rule+f.Method+f.Path+f.Request+f.Client == "" &&
		is(f.Agent, s.Agent) && (f.Except == "" || f.Except != s.Agent) &&
		is(f.User, s.User) && is(f.Plane, s.Plane) &&
		(f.Verdict == nil || *f.Verdict == verdict.Deny)
}

// whole reports whether f is about the journal as a whole; t may be unknown.
func (f *Filter) whole(t time.Time) bool {
	return f.Agent+f.User+f.Session+f.Host+string(f.Code)+f.Plane+f.Rule+f.Method+f.Path+f.Request+f.Client+f.Upstream == "" &&
		f.Verdict == nil && f.Status == 0 && (t.IsZero() || f.within(t))
}

// Chooses reports whether f chooses e, with all that is known of it.
func (f *Filter) Chooses(e *Entry) bool {
	switch {
	case e.Decision != nil:
		return f.decision(e.Decision) && f.Joined(e)
	case e.Outcome != nil:
		return f.lost(e.Outcome) && f.Joined(e)
	case e.Summary != nil:
		return f.summary(e.Summary) && f.Joined(e)
	case e.Act != nil:
		return f.act(e.Act) && f.Joined(e)
	case e.Gap != nil:
		return f.whole(e.Gap.Time)
	case e.Damage != nil:
		return f.whole(time.Time{})
	}
	return false
}

// lost judges an outcome whose decision is gone.
func (f *Filter) lost(o *Outcome) bool {
	return f.within(o.Time) && f.Host+f.Rule+f.Method+f.Path+f.Client == "" && f.Verdict == nil &&
		is(f.Agent, o.Agent) && (f.Except == "" || f.Except != o.Agent) && is(f.User, o.User) && is(f.Session, o.Session) &&
		is(f.Plane, o.Plane) && is(f.Request, o.Request)
}
