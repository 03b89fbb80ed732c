// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Effective writes the policy as it is enforced: every default spelled out,
// every name canonical, and behind each line where it comes from. With agents
// only these are shown, with the profiles that they have. The text is itself a
// policy, which decides as p does.
func (p *Policy) Effective(agents ...string) string {
	w := &writer{}
	w.line("version: 1", "")
	if p == nil {
		return w.text()
	}
	shown := agents
	if len(shown) == 0 {
		shown = p.Agents()
	}
	profiles := p.doc.Profiles()
	if len(agents) > 0 {
		profiles = p.profilesOf(agents)
	}
	w.section("profiles", len(profiles))
	for _, name := range profiles {
		b := find(p.doc.profiles, name)
		w.line("  "+name+":", fmt.Sprintf("line %d", b.line))
		w.rules(b.rules)
		w.budgets(b)
	}
	shown = slices.DeleteFunc(slices.Clone(shown), func(name string) bool { return p.agents[name] == nil })
	w.section("agents", len(shown))
	for _, name := range shown {
		p.writeAgent(w, name)
	}
	return w.text()
}

// profilesOf lists the profiles that some agents have.
func (p *Policy) profilesOf(agents []string) []string {
	used := map[string]bool{}
	for _, name := range agents {
		if a := p.agents[name]; a != nil && find(p.doc.profiles, a.profile) != nil {
			used[a.profile] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

func (p *Policy) writeAgent(w *writer, name string) {
	a := p.agents[name]
	b := find(p.doc.agents, name)
	if b == nil {
		b = &body{name: name, agent: true}
		w.line("  "+name+":", "registered; no line of the policy")
	} else {
		w.line("  "+name+":", fmt.Sprintf("line %d", b.line))
	}
	switch {
	case find(p.doc.profiles, a.profile) == nil: // a registered profile that the policy does not have
	case b.profile != "":
		w.line("    profile: "+a.profile, fmt.Sprintf("line %d", b.lines["profile"]))
	default:
		w.line("    profile: "+a.profile, "from the agent's registration")
	}
	w.rules(append(slices.Clone(b.rules), a.grantsInForce()...))
	w.budgets(b)
}

// grantsInForce lists the grants of a that nobody has ended.
func (a *Agent) grantsInForce() []*rule {
	var list []*rule
	for _, ru := range a.rules[len(a.rules)-a.grantCount:] {
		if !ru.grant.Ended {
			list = append(list, ru)
		}
	}
	return list
}

func (w *writer) budgets(b *body) {
	if len(b.budgets) > 0 {
		w.line("    budgets: "+budgetsText(b.budgets), fmt.Sprintf("line %d", b.lines["budgets"]))
	}
}

// A writer builds the canonical text.
type writer struct{ lines []string }

func (w *writer) text() string { return strings.Join(w.lines, "\n") + "\n" }

// line adds a line, with its origin as a comment.
func (w *writer) line(text, origin string) {
	if origin != "" {
		text += " # " + origin
	}
	w.lines = append(w.lines, text)
}

func (w *writer) section(name string, n int) {
	if n == 0 {
		name += ": {}"
	} else {
		name += ":"
	}
	w.line(name, "")
}

func (w *writer) rules(rules []*rule) {
	if len(rules) == 0 {
		w.line("    rules: []", "")
		return
	}
	w.line("    rules:", "")
	for _, ru := range rules {
		w.rule(ru)
	}
}

// rule writes one rule. Its first line names it, since a derived id cannot be
// written as a key.
func (w *writer) rule(ru *rule) {
	indent := "      - "
	put := func(key, value string) {
		w.line(indent+key+": "+value, ru.origin(key))
		indent = "        "
	}
	if ru.deny {
		w.line("      - deny:", fmt.Sprintf("%s, line %d", ru.id, ru.line))
		indent = "          "
		put = func(key, value string) { w.line(indent+key+": "+value, ru.origin(key)) }
	}
	put("host", scalar(ru.host.String()))
	if ru.ports != nil {
		put("ports", flow(ru.ports, Port.String))
	}
	if ru.methods != nil {
		put("methods", flow(ru.methods, func(s string) string { return s }))
	}
	if ru.paths != nil {
		put("paths", flow(ru.paths, func(g glob) string { return g.text }))
	}
	if !ru.deny {
		w.allowing(ru, put)
	}
	if !ru.expires.IsZero() {
		put("expires", ru.expires.Format(time.RFC3339Nano))
	}
	if ru.reason != "" {
		put("reason", quoted(ru.reason))
	}
	if ru.given {
		put("id", ru.id)
	}
}

// allowing writes the keys that only allowing rules have.
func (w *writer) allowing(ru *rule, put func(key, value string)) {
	put("inspect", ru.inspect.String())
	put("websocket", strconv.FormatBool(ru.websocket))
	if ru.addresses != nil {
		list := make([]string, len(ru.addresses))
		for i, p := range ru.addresses {
			list[i] = `"` + p.String() + `"`
		}
		put("addresses", "["+strings.Join(list, ", ")+"]")
	}
	if ru.guard != "" {
		put("guard", ru.guard)
	}
	if ru.credential != "" {
		put("credential", scalar(ru.credential))
	}
	if len(ru.budgets) > 0 {
		put("budgets", budgetsText(ru.budgets))
	}
	if ru.sensitive {
		put("sensitive", "true")
	}
	if ru.acceptRisk != "" {
		put("accept_risk", quoted(ru.acceptRisk))
	}
}

// origin says where a line of a rule comes from.
func (ru *rule) origin(key string) string {
	where := "default"
	if line, written := ru.lines[key]; written {
		where = fmt.Sprintf("line %d", line)
	}
	if _, written := ru.lines[key]; ru.grant != nil && (written || key == "expires" || key == "reason") {
		where = ru.grant.said()
	}
	if key == "host" && !ru.deny {
		return ru.id + ", " + where
	}
	return where
}

// flow writes a list in brackets.
func flow[T any](list []T, text func(T) string) string {
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = scalar(text(e))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

var (
	safe      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./-]*\z`)
	yamlWords = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n)\z`)
)

// scalar writes a word, quoted unless every reader of YAML takes it for a
// string, or for the number that a port is.
func scalar(s string) string {
	if safe.MatchString(s) && !yamlWords.MatchString(s) {
		return s
	}
	return quoted(s)
}

// quoted writes text in the double quotes of YAML. Text in a policy is
// printable, so that only two characters need an escape.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
