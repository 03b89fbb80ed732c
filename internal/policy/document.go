// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"bawn/internal/names"
	"bawn/internal/quota"
)

// A Document is a policy as read: every line of it has the right form, but
// whether its agents exist and this build can enforce it is for [Compile].
type Document struct {
	profiles []*body
	agents   []*body
}

// A body is a profile or an agent: rules and what else hangs on the name.
type body struct {
	name    string
	line    int
	agent   bool
	profile string // of an agent: the profile that it has
	rules   []*rule
	budgets []quota.Budget
	lines   map[string]int
}

// owner begins the ids of the rules of b, and names it in messages.
func (b *body) owner() string {
	if b.agent {
		return "agent." + b.name
	}
	return b.name
}

// Agents lists the agents that the policy names, in the order of the file.
func (d *Document) Agents() []string { return bodyNames(d.agents) }

// Profiles lists the profiles, in the order of the file.
func (d *Document) Profiles() []string { return bodyNames(d.profiles) }

func bodyNames(bodies []*body) []string {
	list := make([]string, len(bodies))
	for i, b := range bodies {
		list[i] = b.name
	}
	return list
}

// find returns the body called name, or nil.
func find(bodies []*body, name string) *body {
	for _, b := range bodies {
		if b.name == name {
			return b
		}
	}
	return nil
}

// Parse reads a policy. The error is [Problems], all of them.
func Parse(src []byte) (*Document, error) {
	d, problems := read(src)
	if err := problems.err(); err != nil {
		return nil, err
	}
	return d, nil
}

// read is Parse that returns what it could read beside the problems, so that
// further checks can report at the same time.
func read(src []byte) (*Document, Problems) {
	r := newReader()
	d := &Document{}
	if !checkText(src, &r.problems) {
		return d, r.problems
	}
	root := parseYAML(src, &r.problems)
	if root == nil {
		return d, r.problems
	}
	keys := documentKeys()
	m, ok := r.fields(root, keys, "")
	if !ok {
		return d, r.problems
	}
	if n := m.values["version"]; n != nil {
		r.value(n, lookup(keys, "version").shape, "version")
	}
	if n := m.values["profiles"]; n != nil {
		d.profiles = r.bodies(n, lookup(keys, "profiles").shape, "profiles", false)
	}
	if n := m.values["agents"]; n != nil {
		d.agents = r.bodies(n, lookup(keys, "agents").shape, "agents", true)
	}
	r.fewPerHost(d)
	r.uniqueIDs(d)
	r.oneSpelling(d)
	r.lint(d)
	return d, r.problems
}

// bodies reads the profiles or the agents.
func (r *reader) bodies(n *yaml.Node, s shape, where string, agents bool) []*body {
	var list []*body
	names, values := r.members(n, s, where)
	for i, key := range names {
		name := key.Value
		b := &body{name: name, agent: agents, line: key.Line, lines: map[string]int{}}
		list = append(list, b)
		m, ok := r.fields(values[i], s.elem.keys, where+" "+name)
		if !ok {
			continue
		}
		for key, v := range m.values {
			b.lines[key] = v.Line
		}
		if v := m.values["profile"]; v != nil && r.value(v, lookup(s.elem.keys, "profile").shape, where+" "+name+" profile") {
			b.profile = v.Value
		}
		if v := m.values["rules"]; v != nil {
			b.rules = r.rules(v, b.owner())
		}
		if v := m.values["budgets"]; v != nil && r.value(v, lookup(s.elem.keys, "budgets").shape, where+" "+name+" budgets") {
			b.budgets = r.budgets(v, lookup(s.elem.keys, "budgets").shape.keys, where+" "+name+" budgets", where[:len(where)-1]+" "+name)
		}
	}
	return list
}

// each calls do with every rule, in the order of the file.
func (d *Document) each(do func(*body, *rule)) {
	for _, list := range [][]*body{d.profiles, d.agents} {
		for _, b := range list {
			for _, ru := range b.rules {
				do(b, ru)
			}
		}
	}
}

// maxPerHost is how many rules one list may have about one host, so that no
// decision takes long.
const maxPerHost = 256

// fewPerHost refuses more rules about one host than maxPerHost, and forgets
// them: what follows compares the rules about a host with each other.
func (r *reader) fewPerHost(d *Document) {
	for _, list := range [][]*body{d.profiles, d.agents} {
		for _, b := range list {
			count := map[names.Pattern]int{}
			kept := b.rules[:0]
			for _, ru := range b.rules {
				count[ru.host]++
				if count[ru.host] == maxPerHost+1 {
					r.problems.add(ru.line, ru.id, "put their paths and methods together", "more than %d rules about one host", maxPerHost)
				}
				if count[ru.host] <= maxPerHost {
					kept = append(kept, ru)
				}
			}
			b.rules = kept
		}
	}
}

// uniqueIDs refuses a given id that another rule has. Derived ids hold a dot,
// which a given one cannot.
func (r *reader) uniqueIDs(d *Document) {
	first := map[string]int{}
	d.each(func(_ *body, ru *rule) {
		if line, taken := first[ru.id]; taken {
			r.problems.add(ru.at("id"), ru.id, "", "the id of another rule (line %d)", line)
			return
		}
		first[ru.id] = ru.at("id")
	})
}

// oneSpelling refuses two spellings of one host: whoever compares the file by
// eye or with a text tool would take them for two.
func (r *reader) oneSpelling(d *Document) {
	type seen struct {
		text string
		line int
	}
	first := map[names.Pattern]seen{}
	d.each(func(_ *body, ru *rule) {
		if ru.host.IsZero() {
			return
		}
		if s, ok := first[ru.host]; ok && s.text != ru.spelled {
			r.problems.add(ru.at("host"), ru.id+" host", "write "+ru.host.String()+" in both",
				"%s and %s (line %d) are one host in two spellings", show(ru.spelled), show(s.text), s.line)
			return
		}
		first[ru.host] = seen{ru.spelled, ru.at("host")}
	})
}

func itoa(n int) string { return strconv.Itoa(n) }
