// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bawn/internal/names"
	"bawn/internal/policy"
)

// A located finding is one with the kind of connection that it is about. whole
// says that it is about the connection and not about single requests.
type located struct {
	finding
	plain, whole bool
}

// cells is where a finding holds.
type cells struct{ list []cell }

func (c *cells) add(one cell) { c.list = append(c.list, one) }

// A block is methods and paths for which a finding holds during some times.
type block struct {
	from, until int // of the times; until is the first at which it does not hold
	methods     []int
	classes     []int
}

// blocks puts cells together: those of one method and class that follow each
// other in time, then all classes of a method, then the methods with the same
// classes.
func (c *cells) blocks() []block {
	runs := map[[2]int][][2]int{} // method and class -> from, until
	slices.SortFunc(c.list, func(a, b cell) int {
		return cmp.Or(a.method-b.method, a.class-b.class, a.time-b.time)
	})
	for _, one := range c.list {
		at := [2]int{one.method, one.class}
		list := runs[at]
		if n := len(list); n > 0 && list[n-1][1] >= one.time {
			list[n-1][1] = one.time + 1
			continue
		}
		runs[at] = append(list, [2]int{one.time, one.time + 1})
	}
	rows := map[[3]int][]int{} // from, until, method -> classes
	for at, list := range runs {
		for _, r := range list {
			key := [3]int{r[0], r[1], at[0]}
			rows[key] = append(rows[key], at[1])
		}
	}
	same := map[string]*block{}
	for _, key := range slices.SortedFunc(maps.Keys(rows), func(a, b [3]int) int { return slices.Compare(a[:], b[:]) }) {
		classes := rows[key]
		slices.Sort(classes)
		k := fmt.Sprint(key[0], key[1], classes)
		if same[k] == nil {
			same[k] = &block{from: key[0], until: key[1], classes: classes}
		}
		same[k].methods = append(same[k].methods, key[2])
	}
	var all []block
	for _, k := range slices.Sorted(maps.Keys(same)) {
		all = append(all, *same[k])
	}
	return all
}

// gather makes changes of what was found about a port.
func (q *question) gather(port uint16, found map[located]*cells) []Change {
	var all []Change
	for at, where := range found {
		if !at.whole && q.saidWhole(at, where, found) {
			continue
		}
		for _, b := range where.blocks() {
			c := Change{
				Kind: at.kind, What: at.what, More: at.more, Rule: at.rule,
				Hosts: []string{q.place.pattern.String()},
				Ports: []string{policy.Port{Number: port, Plain: at.plain}.String()},
				From:  q.when(b.from), Until: q.when(b.until),
			}
			if !at.whole {
				q.nameMethods(&c, b.methods)
				q.namePaths(&c, b.classes)
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.words(), b.words()) })
	return all
}

// saidWhole reports whether the same was found about the connection at all these
// times.
func (q *question) saidWhole(at located, where *cells, found map[located]*cells) bool {
	at.whole = true
	whole := found[at]
	return whole != nil && !slices.ContainsFunc(where.list, func(c cell) bool {
		return !slices.ContainsFunc(whole.list, func(o cell) bool { return o.time == c.time })
	})
}

// when returns the time of a place in the list; nil for now and for never.
func (q *question) when(i int) *time.Time {
	if i == 0 || i >= len(q.times) {
		return nil
	}
	return &q.times[i]
}

// nameMethods names the methods of a block; all of them are none. Whether a
// WebSocket is among them is said only where something else is left out: it is
// a GET, too.
func (q *question) nameMethods(c *Change, methods []int) {
	socket := slices.Contains(methods, len(q.methods)+1)
	switch {
	case socket && len(methods) == len(q.methods)+2:
		return
	case !socket && len(methods) == len(q.methods)+1:
		c.NoWebSocket = true
		return
	}
	for _, m := range methods {
		switch {
		case m < len(q.methods):
			c.Methods = append(c.Methods, q.methods[m])
		case m == len(q.methods):
			c.OtherMethods, c.KnownMethods = true, q.methods
		default:
			c.Methods = append(c.Methods, webSocket)
		}
	}
}

// namePaths names the paths of a block by the patterns of the rules.
func (q *question) namePaths(c *Change, list []int) {
	if len(list) == len(q.classes) {
		return
	}
	var named []policy.Path
	for _, i := range list {
		p, ok := meet(q.matching(i))
		switch {
		case ok:
			named = append(named, p)
		case len(q.matching(i)) > 0:
			named = append(named, q.matching(i)[0]) // wider, and never too narrow
		default:
			c.OtherPaths = true
		}
	}
	except := q.exceptPaths(c, named, list)
	for _, p := range named {
		wider := func(o policy.Path) bool { return o.Covers(p) && !p.Covers(o) }
		// What lies within what it is not about is named in any case.
		if !slices.ContainsFunc(named, wider) || slices.ContainsFunc(except, wider) {
			c.Paths = append(c.Paths, p.String())
		}
	}
	slices.Sort(c.Paths)
	c.Paths = slices.Compact(c.Paths)
}

// exceptPaths names the patterns inside those of c that c is not about.
func (q *question) exceptPaths(c *Change, named []policy.Path, list []int) (except []policy.Path) {
	for i := range q.classes {
		inside := func(p policy.Path) bool { return p.Match(q.classes[i].path) }
		if slices.Contains(list, i) || !slices.ContainsFunc(named, inside) {
			continue
		}
		if p, ok := meet(q.matching(i)); ok && !slices.Contains(c.ExceptPaths, p.String()) {
			except = append(except, p)
			c.ExceptPaths = append(c.ExceptPaths, p.String())
		}
	}
	slices.Sort(c.ExceptPaths)
	return except
}

// matching lists the patterns that a class matches.
func (q *question) matching(i int) []policy.Path {
	var list []policy.Path
	for j, yes := range q.classes[i].matches {
		if yes {
			list = append(list, q.paths[j])
		}
	}
	return list
}

// joinPorts puts changes together that differ in their port only.
func joinPorts(all []Change) []Change {
	return join(all, func(c *Change) *[]string { return &c.Ports })
}

// joinHosts puts changes together that differ in their names only, and leaves
// out names under a wildcard that the same change is about. What it is not about
// is named.
func joinHosts(all []Change, asked []place) []Change {
	joined := join(all, func(c *Change) *[]string { return &c.Hosts })
	for i := range joined {
		c := &joined[i]
		slices.SortFunc(c.Hosts, compareHosts)
		whole, wild := map[string]bool{}, []names.Pattern(nil)
		for _, h := range c.Hosts {
			whole[h] = true
			if p, err := names.ParsePattern(h); err == nil && p.Wildcard() {
				wild = append(wild, p)
			}
		}
		if len(wild) == 0 {
			continue
		}
		var except []names.Pattern
		for _, p := range asked {
			if h := p.pattern.String(); !whole[h] && coveredBy(p.pattern, wild) {
				except = append(except, p.pattern)
				c.Except = append(c.Except, h)
			}
		}
		// What lies within what it is not about is named in any case.
		c.Hosts = slices.DeleteFunc(c.Hosts, func(h string) bool {
			p, err := names.ParsePattern(h)
			return err == nil && coveredBy(p, wild) && !coveredBy(p, except)
		})
		slices.SortFunc(c.Except, compareHosts)
	}
	return joined
}

// coveredBy reports whether another pattern of list covers p.
func coveredBy(p names.Pattern, list []names.Pattern) bool {
	return slices.ContainsFunc(list, func(o names.Pattern) bool { return o != p && o.Covers(p) })
}

// join puts changes together that are the same but for one list.
func join(all []Change, part func(*Change) *[]string) []Change {
	at := map[string]int{}
	var joined []Change
	for _, c := range all {
		list := *part(&c)
		*part(&c) = nil
		key := fmt.Sprint(c.words(), c.Kind, c.What, c.Text)
		*part(&c) = list
		i, known := at[key]
		if !known {
			at[key] = len(joined)
			joined = append(joined, c)
			continue
		}
		*part(&joined[i]) = append(*part(&joined[i]), list...)
	}
	return joined
}
