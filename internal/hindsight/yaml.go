// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Everything that goes into the text of a policy passes through word or comment,
// so that what an agent wrote cannot end a value or a comment.

// word writes a value in the double quotes of YAML. Its escapes are those of Go
// for ASCII, which YAML has too; a byte that is none becomes one.
func word(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// comment writes text behind a number sign, on one line of printable ASCII.
func comment(indent, text string) string {
	quoted := strconv.QuoteToASCII(text)
	quoted = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
	return indent + "# " + quoted + "\n"
}

func list(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = word(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// YAML gives the rule on one line, in braces.
func (r SuggestedRule) YAML() string {
	text := "{host: " + word(r.Host) + ", ports: " + list(r.Ports) + ", methods: " + list(r.Methods) + ", paths: " + list(r.Paths)
	if r.WebSocket {
		text += ", websocket: true"
	}
	if r.Guard != "" {
		text += ", guard: " + r.Guard
	}
	return text + "}"
}

// RawYAML gives the rule that would be taken instead if what was seen is not HTTP, in
// braces; "" where there is none.
func (r SuggestedRule) RawYAML() string {
	if r.Raw == 0 {
		return ""
	}
	return "{host: " + word(r.Host) + ", ports: " + list([]string{strconv.Itoa(int(r.Raw)) + "/tcp"}) + ", inspect: none}"
}

// count sums the denials that the rule is for.
func (r SuggestedRule) count() (n uint64, first, last time.Time) {
	for _, c := range r.Claims {
		n += c.Count
		if first.IsZero() || c.First.Before(first) {
			first = c.First
		}
		if c.Last.After(last) {
			last = c.Last
		}
	}
	return n, first, last
}

// YAML gives the suggestions as a policy that can be checked as it is. Rules
// that are only offered, and all that is to be known, stand in comments.
func (s Suggestions) YAML() string {
	var b strings.Builder
	say := func(indent, format string, args ...any) { b.WriteString(comment(indent, fmt.Sprintf(format, args...))) }
	say("", "Rules that would allow what was denied from %s to %s, and nothing else.", stamp(s.Since), stamp(s.At))
	say("", "Nothing was applied. Add those that you want to your policy: applied as it is, this")
	say("", "file would take its place. \"bawn policy diff current FILE\" shows what then changes.")
	if s.Note != "" {
		say("", "Note: %s", s.Note)
	}
	b.WriteString("version: 1\n")
	agents := s.agents()
	if len(agents) == 0 {
		say("", "no denial that a rule could allow")
	} else {
		b.WriteString("agents:\n")
	}
	for _, agent := range agents {
		fmt.Fprintf(&b, "  %s:\n    rules:", agent)
		if !slices.ContainsFunc(s.Rules, func(r SuggestedRule) bool { return r.Agent == agent && !r.Offered }) {
			b.WriteString(" []")
		}
		b.WriteString("\n")
		domain := ""
		for _, r := range s.Rules {
			if r.Agent != agent {
				continue
			}
			if r.Domain != domain {
				domain = r.Domain
				say("      ", "--- %s", domain)
			}
			b.WriteString(r.text())
		}
	}
	b.WriteString(s.rest())
	return b.String()
}

func (s Suggestions) agents() []string {
	var list []string
	for _, r := range s.Rules {
		if !slices.Contains(list, r.Agent) {
			list = append(list, r.Agent)
		}
	}
	return list
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return strconv.FormatUint(n, 10) + " times"
}

func between(first, last time.Time) string {
	if stamp(first) == stamp(last) {
		return ", at " + stamp(first)
	}
	return ", from " + stamp(first) + " to " + stamp(last)
}

// text is the rule with what is to be known of it in front.
func (r SuggestedRule) text() string {
	const indent = "      "
	var b strings.Builder
	n, first, last := r.count()
	b.WriteString(comment(indent, "denied "+times(n)+between(first, last)))
	if r.Tunnel {
		b.WriteString(comment(indent, "seen: only that it was to be connected to or resolved. A rule has to allow some request;"))
		b.WriteString(comment(indent, "this one lets the connection open, so that the record shows what is asked for"))
	}
	if r.Raw != 0 {
		b.WriteString(comment(indent, "for ssh, a database or other TCP this instead, with its port; nothing is judged but the name:"))
		b.WriteString(comment(indent, "- "+r.RawYAML()))
	}
	for _, m := range r.Marks {
		b.WriteString(comment(indent, "note: "+m))
	}
	for _, w := range r.Wider {
		b.WriteString(comment(indent, "wider than what was seen, and so not taken: paths: ["+word(w)+"]"))
	}
	if r.Offered {
		b.WriteString(comment(indent, "not taken: - "+r.YAML()))
		return b.String()
	}
	b.WriteString(indent + "- " + r.YAML() + "\n")
	return b.String()
}

// rest lists what no rule is suggested for.
func (s Suggestions) rest() string {
	var b strings.Builder
	if len(s.Apart) > 0 {
		b.WriteString(comment("", "Denials that are no matter of a further rule:"))
	}
	for _, a := range s.Apart {
		line := fmt.Sprintf("agent %s: %s %s, last at %s", a.Agent, times(a.Count), a.Code, stamp(a.Last))
		if a.Sample != "" {
			line += ", such as " + a.Sample
		}
		b.WriteString(comment("", line))
		b.WriteString(comment("  ", a.Why))
	}
	if s.Settled > 0 {
		b.WriteString(comment("", fmt.Sprintf("%d denials were of what the policy in force allows by now.", s.Settled)))
	}
	if s.Beyond > 0 {
		b.WriteString(comment("", fmt.Sprintf("%d denials were not looked at: there are too many different ones. Name an agent or a shorter time.", s.Beyond)))
	}
	return b.String()
}
