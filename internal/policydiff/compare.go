// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bawn/internal/policy"
)

// maxAsked bounds how many requests are put to the policies about one place.
const maxAsked = 400_000

// Compare says how policy b differs from policy a for each of the agents, from
// now on.
func Compare(a, b *policy.Policy, agents []string, now time.Time) Report {
	r := Report{Groups: []Group{}, Same: []string{}}
	byText := map[string]int{}
	for _, name := range agents {
		changes := Agent(a.Agent(name), b.Agent(name), now)
		if len(changes) == 0 {
			r.Same = append(r.Same, name)
			continue
		}
		var key strings.Builder
		for _, c := range changes {
			fmt.Fprintln(&key, c.Kind, c.Text)
		}
		i, known := byText[key.String()]
		if !known {
			i = len(r.Groups)
			byText[key.String()] = i
			r.Groups = append(r.Groups, Group{Changes: changes})
		}
		r.Groups[i].Agents = append(r.Groups[i].Agents, name)
	}
	return r
}

// Agent says how b differs from a, which are what two policies say of one agent.
func Agent(a, b *policy.Agent, now time.Time) []Change {
	rulesA, rulesB := a.Rules(), b.Rules()
	var found []Change
	all, bound := places(rulesA, rulesB), stillBound(a, b)
	for _, p := range all {
		aboutA, aboutB := about(rulesA, p.name), about(rulesB, p.name)
		if sameMeaning(aboutA, aboutB) {
			continue // whatever is asked gets the same answer
		}
		q := question{a: a, b: b, place: p, rules: slices.Concat(aboutA, aboutB), now: now, bound: bound}
		found = append(found, q.changes()...)
	}
	found = append(joinHosts(found, all), budgets(a, b)...)
	found = append(found, reworded(rulesA, rulesB, len(found) == 0)...)
	for i := range found {
		if found[i].Text == "" {
			found[i].Text = found[i].words()
		}
	}
	slices.SortStableFunc(found, func(x, y Change) int { return cmp.Compare(order(x.Kind), order(y.Kind)) })
	return found
}

func order(k Kind) int {
	return slices.Index([]Kind{Uncompared, Widened, Narrowed, Neither}, k)
}

// A question is all that is to be asked about one place.
type question struct {
	a, b  *policy.Agent
	place place
	rules []policy.Rule // of both, about the place
	now   time.Time
	bound map[string]bool // budgets of rules that both have

	ports   []uint16
	methods []string // that rules name
	other   string   // one that none names
	paths   []policy.Path
	classes []class
	times   []time.Time // now, and whenever a rule expires
}

// changes asks everything, and puts what was found together.
func (q *question) changes() []Change {
	q.divide()
	var ok bool
	if q.classes, ok = classes(q.paths); !ok || q.asked() > maxAsked {
		c := Change{Kind: Uncompared, What: TooMany, Hosts: []string{q.place.pattern.String()}}
		c.Text = c.subject() + ": its rules have too many paths, methods, ports and times to go through; counts as wider"
		return []Change{c}
	}
	var all []Change
	for _, port := range q.ports {
		all = append(all, q.port(port)...)
	}
	return joinPorts(all)
}

func (q *question) asked() int {
	return len(q.ports) * 2 * (len(q.methods) + 2) * len(q.classes) * len(q.times)
}

// divide finds what the rules tell apart.
func (q *question) divide() {
	known := map[string]bool{}
	q.times = []time.Time{q.now}
	for _, r := range q.rules {
		for _, p := range r.Ports {
			if !r.Deny && !slices.Contains(q.ports, p.Number) {
				q.ports = append(q.ports, p.Number)
			}
		}
		for _, m := range r.Methods {
			if !slices.Contains(q.methods, m) {
				q.methods = append(q.methods, m)
			}
		}
		for _, p := range r.Paths {
			if !known[p.String()] {
				known[p.String()] = true
				q.paths = append(q.paths, p)
			}
		}
		if r.Expires.After(q.now) && !slices.ContainsFunc(q.times, r.Expires.Equal) {
			q.times = append(q.times, r.Expires)
		}
	}
	slices.Sort(q.ports)
	slices.Sort(q.methods)
	slices.SortFunc(q.times, time.Time.Compare)
	for q.other = "ANY"; slices.Contains(q.methods, q.other); {
		q.other += "-X"
	}
}

// A cell is where a finding holds: a method, of which the last two of the list
// are any other and a WebSocket, a class of paths, and a time.
type cell struct{ method, class, time int }

// port asks about one port.
func (q *question) port(port uint16) []Change {
	found := map[located]*cells{}
	note := func(f finding, plain, whole bool, c cell) {
		at := located{f, plain, whole}
		if f.what == BudgetMore && !q.bound[f.more] {
			return // said once for the whole
		}
		if found[at] == nil {
			found[at] = &cells{}
		}
		found[at].add(c)
	}
	for t, now := range q.times {
		connA, connB := connection(q.a, q.place.name, port, now), connection(q.b, q.place.name, port, now)
		unread := connA.reach > judged || connB.reach > judged
		switch {
		case unread: // said once for the port
			for _, f := range compare(connA, connB) {
				note(f, connB.plain, true, cell{time: t})
			}
		case connA.reach != closed && connB.reach != closed:
			for _, f := range compareUnder(connA, connB) {
				note(f, connB.plain, true, cell{time: t})
			}
		}
		for _, plain := range []bool{false, true} {
			if unread && connB.reach == closed || connB.reach == anything || connB.reach == anyTLS && !plain {
				continue // that has said all
			}
			q.each(port, plain, func(query policy.Query, c cell) {
				for _, f := range compare(ofPlain(q.a, query, connA, now), ofPlain(q.b, query, connB, now)) {
					if c.time = t; !unread || f.what != Inspected && f.what != CountedLess && f.what != CountedMore {
						note(f, plain, false, c)
					}
				}
			})
		}
	}
	return q.gather(port, found)
}

// ofPlain asks about a request on a connection that either is or is not TLS,
// which the policy settles.
func ofPlain(a *policy.Agent, q policy.Query, conn answer, now time.Time) answer {
	if conn.reach == judged && conn.plain != q.Plain {
		return answer{code: "plain_http_denied"}
	}
	return request(a, q, conn, now)
}

// each makes one query of each class.
func (q *question) each(port uint16, plain bool, do func(policy.Query, cell)) {
	for m := range len(q.methods) + 2 {
		query := policy.Query{Host: q.place.name, Port: port, Plain: plain}
		switch {
		case m < len(q.methods):
			query.Method = q.methods[m]
		case m == len(q.methods):
			query.Method = q.other
		default:
			query.Method, query.WebSocket = "GET", true
		}
		for i, c := range q.classes {
			query.Path = c.path
			do(query, cell{method: m, class: i})
		}
	}
}

// sameMeaning reports whether two lists hold the same rules, whatever these are
// called and in which order they stand.
func sameMeaning(a, b []policy.Rule) bool {
	return slices.Equal(meanings(a), meanings(b))
}

func meanings(list []policy.Rule) []string {
	all := make([]string, len(list))
	for i, r := range list {
		all[i] = meaning(r)
	}
	slices.Sort(all)
	return all
}

// meaning is all of a rule that decides. Lists are sorted: their order decides
// nothing.
func meaning(r policy.Rule) string {
	sorted := func(list []string) string {
		if list == nil {
			return "every"
		}
		list = slices.Sorted(slices.Values(list))
		return fmt.Sprintf("%q", list)
	}
	ports := []string(nil)
	if r.Ports != nil {
		ports = []string{}
		for _, p := range r.Ports {
			ports = append(ports, p.String())
		}
	}
	paths := []string(nil)
	if r.Paths != nil {
		paths = []string{}
		for _, p := range r.Paths {
			paths = append(paths, p.String())
		}
	}
	addresses := []string{}
	for _, p := range r.Addresses {
		addresses = append(addresses, p.String())
	}
	bounds := []string{}
	for _, b := range r.Budgets {
		bounds = append(bounds, b.String())
	}
	return fmt.Sprintln(sorted(bounds), r.Deny, r.Host, sorted(ports), sorted(r.Methods), sorted(paths), r.Inspect, r.WebSocket,
		sorted(addresses), r.Guard, r.Credential, r.Sensitive, r.Expires.UTC().UnixNano())
}

// reworded lists what changed and decides nothing. alone says that nothing else
// changed: then rules that came and went made no difference.
func reworded(a, b []policy.Rule, alone bool) []Change {
	var list []Change
	say := func(format string, args ...any) {
		list = append(list, Change{Kind: Neither, What: Reworded, Text: fmt.Sprintf(format, args...)})
	}
	pairs, gone, left := matched(a, b)
	moved, last := false, -1
	var renamed []string
	for _, p := range pairs {
		was, is := a[p[0]], b[p[1]]
		moved, last = moved || p[1] < last, max(p[1], last)
		if is.ID != was.ID {
			renamed = append(renamed, fmt.Sprintf("rule %s is called %s now", was.ID, is.ID))
		}
		if is.Reason != was.Reason {
			say("rule %s has another reason: %q, was %q", is.ID, is.Reason, was.Reason)
		}
		if is.AcceptRisk != was.AcceptRisk {
			say("rule %s accepts its risk for another reason: %q, was %q", is.ID, is.AcceptRisk, was.AcceptRisk)
		}
	}
	for _, text := range renamed[:min(len(renamed), maxRenamed)] {
		say("%s", text)
	}
	if more := len(renamed) - maxRenamed; more > 0 {
		say("%d more rules are called otherwise", more)
	}
	if moved {
		say("rules stand in another order, which makes no difference")
	}
	if alone {
		list = append(list, idle(a, b, gone, left)...)
	}
	return list
}

// maxRenamed is how many rules are listed that only have another id: one rule
// more at the top renames all that have none of their own.
const maxRenamed = 5

// matched pairs the rules that mean the same, those with the same id first, and
// lists what has no partner in a and in b. Pairs are in the order of a.
func matched(a, b []policy.Rule) (pairs [][2]int, gone, left []int) {
	open := map[string][]int{}
	for i, r := range b {
		m := meaning(r)
		open[m] = append(open[m], i)
	}
	partner := map[int]int{}
	for _, sameID := range []bool{true, false} {
		for i, r := range a {
			if _, has := partner[i]; has {
				continue
			}
			m := meaning(r)
			at := slices.IndexFunc(open[m], func(j int) bool { return !sameID || b[j].ID == r.ID })
			if at >= 0 {
				partner[i] = open[m][at]
				open[m] = slices.Delete(open[m], at, at+1)
			}
		}
	}
	for i := range a {
		if j, has := partner[i]; has {
			pairs = append(pairs, [2]int{i, j})
		} else {
			gone = append(gone, i)
		}
	}
	for _, list := range open {
		left = append(left, list...)
	}
	slices.Sort(left)
	return pairs, gone, left
}

// idle says which rules came, went or were written otherwise without making a
// difference.
func idle(a, b []policy.Rule, gone, left []int) []Change {
	var list []Change
	say := func(r policy.Rule, how string) {
		list = append(list, Change{Kind: Neither, What: Reworded, Text: fmt.Sprintf("rule %s (%s) is %s, which makes no difference", r.ID, r.Host, how)})
	}
	for _, i := range gone {
		if at := slices.IndexFunc(left, func(j int) bool { return b[j].ID == a[i].ID }); at >= 0 {
			left = slices.Delete(slices.Clone(left), at, at+1)
			say(a[i], "written otherwise")
			continue
		}
		say(a[i], "gone")
	}
	for _, j := range left {
		say(b[j], "new")
	}
	return list
}
