// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package siem

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"bawn/internal/audit"
	"bawn/internal/verdict"
)

// CEF gives an entry as one line of the Common Event Format, version 0, without
// a newline and without a syslog header.
func CEF(e audit.Entry, src Source) string {
	switch {
	case e.Decision != nil:
		return cefDecision(e, src)
	case e.Summary != nil:
		s := e.Summary
		l := newLine(src, "denials_summed", "Denials beyond the record budget", 5)
		l.who(s.Agent, s.Session, s.User)
		l.add("rt", strconv.FormatInt(s.To.UnixMilli(), 10))
		l.add("start", strconv.FormatInt(s.From.UnixMilli(), 10))
		l.add("act", "deny")
		l.add("cnt", strconv.FormatUint(s.Denials, 10))
		l.place(src, s.Seq)
		return l.String()
	case e.Act != nil:
		return cefAct(e, src)
	case e.Gap != nil:
		l := newLine(src, "journal_gap", "The journal could not be written", 8)
		l.add("rt", strconv.FormatInt(e.Gap.Time.UnixMilli(), 10))
		l.add("cnt", strconv.FormatUint(e.Gap.Refused, 10))
		l.add("msg", e.Gap.Error)
		l.place(src, e.Gap.Seq)
		return l.String()
	}
	l := newLine(src, "journal_damaged", "Damaged line in the journal", 8)
	if e.Damage != nil {
		l.add("fname", e.Damage.File)
		l.add("msg", e.Damage.Error)
	}
	return l.String()
}

// A line is one event that is being written.
type line struct{ b strings.Builder }

func newLine(src Source, signature, name string, severity int) *line {
	l := new(line)
	fmt.Fprintf(&l.b, "CEF:0|Bawn|Bawn|%s|%s|%s|%d|", headerText(src.Version), headerText(signature), headerText(name), severity)
	return l
}

func (l *line) String() string { return strings.TrimSuffix(l.b.String(), " ") }

// add adds a field; none for an empty value.
func (l *line) add(key, value string) {
	if value != "" {
		l.b.WriteString(key + "=" + valueText(value) + " ")
	}
}

// custom adds one of the strings that have a label.
func (l *line) custom(n int, label, value string) {
	if value != "" {
		l.add(fmt.Sprintf("cs%dLabel", n), label)
		l.add(fmt.Sprintf("cs%d", n), value)
	}
}

func (l *line) who(agent, session, user string) {
	l.add("suser", user)
	l.custom(1, "agent", agent)
	l.custom(2, "session", session)
}

// place names the record that the event is made of.
func (l *line) place(src Source, seq uint64) { l.add("externalId", src.uid(seq)) }

// end adds address and port of one end of a connection.
func (l *line) end(address, port, text string) {
	if a, err := netip.ParseAddrPort(text); err == nil {
		l.add(address, a.Addr().String())
		if port != "" {
			l.add(port, strconv.Itoa(int(a.Port())))
		}
	}
}

func cefDecision(e audit.Entry, src Source) string {
	d, o := e.Decision, e.Outcome
	signature, severity := string(d.Code), 1
	if d.Verdict == verdict.Deny {
		severity = 4
	}
	if d.Sensitive {
		severity = 6
	}
	if signature == "" {
		signature = d.Verdict.String()
	}
	l := newLine(src, signature, "Request of an agent: "+d.Verdict.String(), severity)
	l.add("rt", strconv.FormatInt(d.Time.UnixMilli(), 10))
	l.add("act", d.Verdict.String())
	l.who(d.Agent, d.Session, d.User)
	l.end("src", "spt", d.Client)
	l.add("app", d.Proto)
	l.add("dhost", host(d))
	if d.Port != 0 {
		l.add("dpt", strconv.Itoa(int(d.Port)))
	}
	l.add("requestMethod", d.Method)
	if d.Scheme != "" {
		l.add("request", urlOf(d))
	}
	l.custom(3, "rule", d.Rule)
	l.custom(4, "revision", strconv.FormatUint(d.Revision, 10))
	l.custom(5, "request id", d.Request)
	l.custom(6, "slot and generation", strconv.Itoa(d.Slot)+"/"+d.Gen.String())
	l.add("reason", string(d.Code))
	l.add("msg", d.Detail)
	if o != nil {
		// in is from the source to the destination, by the standard's own words.
		l.add("in", strconv.FormatInt(o.BytesUp, 10))
		l.add("out", strconv.FormatInt(o.BytesDown, 10))
		l.end("dst", "", o.Upstream)
		l.add("end", strconv.FormatInt(o.Time.UnixMilli(), 10))
		if o.Status != 0 {
			l.add("outcome", strconv.Itoa(o.Status))
		}
	}
	l.place(src, d.Seq)
	return l.String()
}

func cefAct(e audit.Entry, src Source) string {
	a, r := e.Act, e.Result
	if r == nil {
		r = a
	}
	severity := 3
	if r.Result != audit.ActDone {
		severity = 5
	}
	l := newLine(src, string(a.Name), "Act on Bawn itself", severity)
	l.add("rt", strconv.FormatInt(a.Time.UnixMilli(), 10))
	l.add("act", string(a.Name))
	l.add("suser", a.Account)
	l.add("suid", strconv.FormatUint(uint64(a.UID), 10))
	l.add("spid", strconv.Itoa(int(a.PID)))
	l.custom(1, "agent", r.Agent)
	l.custom(2, "object", r.Object)
	l.custom(3, "detail", a.Detail)
	l.custom(4, "revision", strconv.FormatUint(r.Revision, 10))
	l.add("outcome", string(r.Result))
	l.add("reason", string(r.Code))
	l.add("msg", r.Error)
	l.place(src, a.Seq)
	return l.String()
}

// headerText escapes a field of the header: backslash and pipe; a line break
// cannot stand there.
func headerText(s string) string {
	return escape(s, func(r rune) string {
		switch r {
		case '\\', '|':
			return `\` + string(r)
		case '\n', '\r':
			return " "
		}
		return ""
	})
}

// valueText escapes a value of the extension: backslash, equals sign and line
// breaks.
func valueText(s string) string {
	return escape(s, func(r rune) string {
		switch r {
		case '\\', '=':
			return `\` + string(r)
		case '\n':
			return `\n`
		case '\r':
			return `\r`
		}
		return ""
	})
}

// escape writes each character by special, or as it is; one that does not print
// becomes a backslash, u and its number.
func escape(s string, special func(rune) string) string {
	var b strings.Builder
	for _, r := range s {
		switch t := special(r); {
		case t != "":
			b.WriteString(t)
		case r == utf8.RuneError || !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
