// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A reader checks nodes against shapes and collects what is wrong.
type reader struct {
	problems Problems
	forms    map[string]*regexp.Regexp // compiled patterns

	ruleKeys, noteKeys, denyKeys []key
}

func newReader() *reader {
	return &reader{
		forms:    map[string]*regexp.Regexp{},
		ruleKeys: ruleKeys(), noteKeys: noteKeys(), denyKeys: append(matchKeys(), noteKeys()...),
	}
}

// A mapping is a checked mapping: its keys and their values.
type mapping struct {
	node   *yaml.Node
	values map[string]*yaml.Node
}

// has reports whether the key was written (and was no duplicate).
func (m mapping) has(key string) bool { return m.values[key] != nil }

// plain refuses what makes the text of a node differ from its meaning: anchors,
// aliases and explicit tags.
func (r *reader) plain(n *yaml.Node, where string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		r.problems.add(n.Line, where, "write the value out", "an alias (*%s)", n.Value)
	case n.Anchor != "":
		r.problems.add(n.Line, where, "write the value out where it is used", "an anchor (&%s)", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		r.problems.add(n.Line, where, "leave the tag away", "an explicit tag (%s)", n.Tag)
	default:
		return true
	}
	return false
}

// fields checks that n is a mapping whose keys are all known and written once.
func (r *reader) fields(n *yaml.Node, keys []key, where string) (mapping, bool) {
	m := mapping{n, map[string]*yaml.Node{}}
	if !r.isMapping(n, where) {
		return m, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, ok := r.keyName(n.Content[i], where)
		if !ok {
			continue
		}
		line := n.Content[i].Line
		switch {
		case lookup(keys, name) == nil:
			r.problems.add(line, where, didYouMean(name, keyNames(keys)), "unknown key %s", show(name))
		case m.has(name):
			r.problems.add(line, where, "", "key %q a second time (first on line %d)", name, m.values[name].Line)
		default:
			m.values[name] = n.Content[i+1]
		}
	}
	for _, k := range keys {
		if k.required && !m.has(k.name) {
			r.problems.add(n.Line, where, "", "key %q is missing", k.name)
		}
	}
	return m, true
}

// members checks that n is a mapping from names to anything, each written once,
// and returns them in the order of the file.
func (r *reader) members(n *yaml.Node, s shape, where string) (names, values []*yaml.Node) {
	if !r.isMapping(n, where) {
		return nil, nil
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, ok := r.keyName(n.Content[i], where)
		if !ok {
			continue
		}
		line := n.Content[i].Line
		if first, twice := seen[name]; twice {
			r.problems.add(line, where, "", "%s a second time (first on line %d)", show(name), first)
			continue
		}
		seen[name] = line
		if !r.form(s.pattern).MatchString(name) {
			r.problems.add(line, where, "", "%s is not %s", show(name), s.saying)
			continue
		}
		names, values = append(names, n.Content[i]), append(values, n.Content[i+1])
	}
	return names, values
}

func (r *reader) isMapping(n *yaml.Node, where string) bool {
	if !r.plain(n, where) {
		return false
	}
	if n.Kind != yaml.MappingNode {
		r.problems.add(n.Line, where, "write {} for an empty one", "wants a mapping (key: value), has %s", kindOf(n))
		return false
	}
	return true
}

// keyName reads the key of a mapping.
func (r *reader) keyName(n *yaml.Node, where string) (string, bool) {
	if !r.plain(n, where) {
		return "", false
	}
	if n.ShortTag() == "!!merge" {
		r.problems.add(n.Line, where, "write the keys out", "a merge key (<<)")
		return "", false
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.problems.add(n.Line, where, "", "a key that is %s", kindOf(n))
		return "", false
	}
	return n.Value, true
}

// value checks n against shape s, all the way down, without a look at what the
// values mean.
func (r *reader) value(n *yaml.Node, s shape, where string) bool {
	switch s.kind {
	case kindObject:
		return r.object(n, s, where)
	case kindNamed:
		_, values := r.members(n, s, where)
		return len(values) == len(n.Content)/2
	case kindList:
		if s.single && n.Kind == yaml.ScalarNode {
			return r.value(n, *s.elem, where)
		}
		return r.list(n, s, where)
	}
	if !r.plain(n, where) {
		return false
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.problems.add(n.Line, where, "", "wants %s, has %s", s.wants(), kindOf(n))
		return false
	}
	if hint, ok := r.scalar(n, s); !ok {
		r.problems.add(n.Line, where, hint, "%s is not %s", show(n.Value), s.wants())
		return false
	}
	return true
}

func (r *reader) object(n *yaml.Node, s shape, where string) bool {
	before := len(r.problems)
	m, ok := r.fields(n, s.keys, where)
	if !ok {
		return false
	}
	for _, k := range s.keys {
		if m.has(k.name) {
			r.value(m.values[k.name], k.shape, strings.TrimSpace(where+" "+k.name))
		}
	}
	return len(r.problems) == before
}

func (r *reader) list(n *yaml.Node, s shape, where string) bool {
	if !r.plain(n, where) {
		return false
	}
	if n.Kind != yaml.SequenceNode {
		r.problems.add(n.Line, where, "write it in brackets; [] is the empty list, which matches nothing", "wants a list, has %s", kindOf(n))
		return false
	}
	fine := true
	for _, c := range n.Content {
		if s.elem.kind == kindObject {
			continue // the caller reads the elements: it knows better names for them
		}
		fine = r.value(c, *s.elem, where) && fine
	}
	return fine
}

// scalar checks a value that is neither list nor mapping. A string that YAML
// would read as something else has to be quoted, except where both readings are
// the same text.
func (r *reader) scalar(n *yaml.Node, s shape) (hint string, ok bool) {
	tag := n.ShortTag()
	switch s.kind {
	case kindOne:
		return "", tag == "!!int" && n.Value == "1"
	case kindBool:
		return "", tag == "!!bool" && (n.Value == "true" || n.Value == "false")
	case kindInt:
		_, err := strconv.ParseUint(n.Value, 10, 31)
		return "", tag == "!!int" && err == nil && n.Value[0] != '0' && n.Value[0] != '+'
	case kindTime:
		_, err := parseTime(n.Value)
		return "", (tag == "!!timestamp" || tag == "!!str") && err == nil
	case kindPort:
		return "", (tag == "!!int" || tag == "!!str") && r.form(s.pattern).MatchString(n.Value)
	case kindText:
		return "", tag == "!!str" && readable(n.Value)
	}
	if tag != "!!str" {
		return "quote it", false
	}
	if s.enum != nil {
		for _, e := range s.enum {
			if n.Value == e {
				return "", true
			}
		}
		return didYouMean(n.Value, s.enum), false
	}
	return "", r.form(s.pattern).MatchString(n.Value)
}

// form compiles a pattern of the key list once; it has to match a whole value.
func (r *reader) form(pattern string) *regexp.Regexp {
	if f := r.forms[pattern]; f != nil {
		return f
	}
	f := regexp.MustCompile(`^(?:` + pattern + `)\z`)
	r.forms[pattern] = f
	return f
}

// wants says in words what a value of shape s is.
func (s shape) wants() string {
	switch s.kind {
	case kindBool:
		return "true or false"
	case kindOne:
		return "1, the only version"
	case kindInt:
		return "a number above zero"
	case kindTime:
		return "a time such as 2027-01-31T00:00:00Z"
	case kindText:
		return "words on one line"
	}
	if s.enum != nil {
		return "one of " + strings.Join(s.enum, ", ")
	}
	return s.saying
}

// kindOf says in words what a node is.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "nothing"
	default:
		return show(n.Value)
	}
}

// readable reports whether s has something to read and shows as itself. A line
// break is fine: it is folded.
func readable(s string) bool {
	folded := fold(s)
	return folded != "" && len(folded) <= maxText && strings.IndexFunc(folded, hidden) < 0
}

// fold makes one line of a text: runs of white space become one space.
func fold(s string) string { return strings.Join(strings.Fields(s), " ") }

var timeForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)\z`)

// parseTime reads the date-time of RFC 3339 in upper case. time.Parse alone
// takes other spellings too.
func parseTime(s string) (time.Time, error) {
	if !timeForm.MatchString(s) {
		return time.Time{}, &time.ParseError{Layout: time.RFC3339, Value: s}
	}
	return time.Parse(time.RFC3339Nano, s)
}

// lookup returns the key called name, or nil.
func lookup(keys []key, name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}
