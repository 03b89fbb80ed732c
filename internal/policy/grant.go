// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"bawn/internal/httpwire"
	"bawn/internal/names"
)

// A Grant is a rule that one agent has for a time, beside the policy. It only
// ever allows, and is read as strictly as a rule of the file.
type Grant struct {
	ID     string // of the rule, in records and denials. It holds a dot, so that no rule of a file is called so
	Agent  string
	Rule   string    // as [ParseRule] gives it
	Until  time.Time // when it ends by itself
	Ended  bool      // it matches nothing any more, whatever the clock says
	By     string    // who gave it
	Reason string    // that person's words; may be empty
}

// ended is when a grant expires that somebody has ended: before every clock.
var ended = time.Unix(0, 0).UTC()

// read reads the rule of g, with a reader that may have read others. The problems
// have no line: there is no file.
func (g Grant) read(r *reader) (*rule, Problems) {
	r.problems = nil
	if !checkText([]byte(g.Rule), &r.problems) {
		return nil, r.problems
	}
	root := parseYAML([]byte(g.Rule), &r.problems)
	if root == nil {
		return nil, unlined(r.problems)
	}
	ru := r.rule(root, g.ID)
	if ru == nil {
		return nil, unlined(r.problems)
	}
	for _, refused := range [][2]string{
		{"deny", "a grant only allows: what is to be denied belongs in the policy"},
		{"expires", "a grant ends when --for says"},
		{"id", "a grant has an id of its own"},
	} {
		if _, written := ru.lines[refused[0]]; written {
			r.problems.add(0, g.ID+" "+refused[0], "remove it", "%s", refused[1])
		}
	}
	if g.Reason != "" && !readable(g.Reason) {
		r.problems.add(0, g.ID+" reason", "", "%s is not %s", show(g.Reason), shape{kind: kindText}.wants())
	}
	ru.id, ru.given = g.ID, false
	ru.line, ru.grant, ru.expires = 0, &g, g.Until
	if g.Ended {
		ru.expires = ended
	}
	if ru.reason == "" {
		ru.reason = fold(g.Reason)
	}
	r.lint(g.document(ru))
	return ru, unlined(r.problems)
}

// document is the grant as if it stood in a policy, for what checks those.
func (g Grant) document(ru *rule) *Document {
	return &Document{agents: []*body{{name: g.Agent, agent: true, rules: []*rule{ru}}}}
}

func unlined(problems Problems) Problems {
	for _, p := range problems {
		p.Line = 0
	}
	return problems
}

// grants adds those of known to the agents. One for an agent that is not
// registered is a problem: names come again.
func (p *Policy) grants(known Known, problems *Problems) {
	r := newReader()
	for _, g := range known.Grants {
		ru, found := g.read(r)
		*problems = append(*problems, found...)
		if ru == nil || len(found) > 0 {
			continue
		}
		if !known.AnyAgent && !known.Agents[g.Agent] {
			problems.add(0, g.ID, "", "no agent %s is registered", show(g.Agent))
			continue
		}
		before := len(*problems)
		d := g.document(ru)
		unsupported(d, problems)
		owned(d, known.Owned, problems)
		credentials(d, known, problems)
		if len(*problems) == before {
			p.grant(g, ru, problems)
		}
	}
	for _, a := range p.agents {
		if a.grantCount > 0 {
			a.granted = newSet(a.rules[len(a.rules)-a.grantCount:])
		}
	}
	unlinedGrants(*problems)
}

// unlinedGrants takes the lines out of problems of grants, which come from
// their own text and not from the file.
func unlinedGrants(problems Problems) {
	for _, p := range problems {
		if strings.HasPrefix(p.Where, GrantPrefix) {
			p.Line = 0
		}
	}
}

// GrantPrefix begins the id of every grant. Derived ids of rules that begin so
// go on with a digit.
const GrantPrefix = "grant.g"

// grant gives the agent a rule that has been checked by itself. One that has
// ended is only there to say so, and gets in nobody's way.
func (p *Policy) grant(g Grant, ru *rule, problems *Problems) {
	a := p.agents[g.Agent]
	if a == nil {
		a = &Agent{name: g.Agent}
		p.agents[g.Agent] = a
	}
	if !g.Ended {
		all := newSet(append(a.live(ru.host), ru))
		onePort([]*rule{ru}, all, problems)
		oneCredential([]*rule{ru}, all, problems)
	}
	chained(ru)
	a.rules = append(a.rules, ru)
	a.grantCount++
}

// live lists the rules of a that may be about a name of a pattern, without grants
// that have ended.
func (a *Agent) live(p names.Pattern) []*rule {
	var list []*rule
	for _, ru := range a.rules {
		if (ru.host.Covers(p) || p.Covers(ru.host)) && (ru.grant == nil || !ru.grant.Ended) {
			list = append(list, ru)
		}
	}
	return list
}

// said says in a few words whose grant it is and how long it holds.
func (g *Grant) said() string {
	by := ""
	if g.By != "" {
		by = " by " + g.By
	}
	if g.Ended {
		return "grant" + by + ", ended"
	}
	return "grant" + by + " until " + g.Until.UTC().Format(time.RFC3339)
}

var (
	errShortForm = errors.New(`wants a rule as YAML in braces ("{host: api.example.com, methods: [GET]}"), ` +
		`or "METHOD[,METHOD] https://HOST[:PORT]/PATH", "wss://HOST/PATH", "HOST[:PORT]" or "HOST:PORT/tcp"`)
	errNoSlash = errors.New("a path begins with /")
)

// ParseRule reads one rule as an operator writes it on a command line: YAML in
// braces, or a short form, which is as narrow as it can be. It returns the rule
// as YAML on one line; whether it may stand is for [Compile].
//
//	GET,HEAD https://api.example.com/v1/items   these methods on this path
//	wss://api.example.com/feed                  a WebSocket there
//	api.example.com                             every request there, over TLS on port 443
//	db.example.com:5432/tcp                     any TCP, judged by name alone
func ParseRule(text string) (string, error) {
	text = strings.TrimSpace(text)
	if strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("reading rule: a line break")
	}
	if strings.HasPrefix(text, "{") {
		return text, nil
	}
	rule, err := shortForm(text)
	if err != nil {
		return "", fmt.Errorf("reading rule %s: %w", show(text), err)
	}
	return rule, nil
}

func shortForm(text string) (string, error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 1 && strings.HasSuffix(words[0], "/tcp") && !strings.Contains(words[0], "://"):
		return shortTCP(strings.TrimSuffix(words[0], "/tcp"))
	case len(words) == 1 && !strings.Contains(words[0], "/") && strings.Contains(words[0], "."):
		return shortHost(words[0])
	case len(words) == 1 && (strings.HasPrefix(words[0], "ws://") || strings.HasPrefix(words[0], "wss://")):
		return shortURL("GET", words[0])
	case len(words) == 2 && strings.Contains(words[1], "://"):
		return shortURL(words[0], words[1])
	}
	return "", errShortForm
}

func shortTCP(s string) (string, error) {
	host, port, ok := strings.Cut(s, ":")
	if _, err := names.Parse(host); err != nil {
		return "", err
	}
	if !ok {
		return "", errShortForm
	}
	return "{host: " + quoted(host) + ", ports: [" + quoted(port+"/tcp") + "], inspect: none}", nil
}

func shortHost(s string) (string, error) {
	host, port, ok := strings.Cut(s, ":")
	if _, err := names.ParsePattern(host); err != nil {
		return "", err
	}
	rule := "{host: " + quoted(host)
	if ok {
		rule += ", ports: [" + quoted(port) + "]"
	}
	return rule + "}", nil
}

// shortURL reads methods and a URL, of which the path is a pattern.
func shortURL(methods, target string) (string, error) {
	scheme, rest, _ := strings.Cut(target, "://")
	authority, path := rest, "/"
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	plain := map[string]bool{"https": false, "http": true, "wss": false, "ws": true}
	isPlain, known := plain[scheme]
	if !known {
		return "", errShortForm
	}
	canonical, query, err := httpwire.CanonicalTarget(path)
	switch {
	case err != nil:
		return "", err
	case query != "":
		return "", errors.New("a query: rules are about paths")
	}
	host, port, err := shortAuthority(authority, isPlain)
	if err != nil {
		return "", err
	}
	rule := fmt.Sprintf("{host: %s, ports: [%s], methods: [%s], paths: [%s]", quoted(host), quoted(port), methodList(methods), quoted(canonical))
	if scheme == "ws" || scheme == "wss" {
		rule += ", websocket: true"
	}
	return rule + "}", nil
}

func methodList(s string) string {
	list := strings.Split(s, ",")
	for i := range list {
		list[i] = quoted(list[i])
	}
	return strings.Join(list, ", ")
}

// shortAuthority reads HOST[:PORT], where HOST may be a wildcard.
func shortAuthority(s string, plain bool) (host, port string, err error) {
	wild, rest := "", s
	if after, ok := strings.CutPrefix(s, "*."); ok {
		wild, rest = "*.", after
	}
	a, err := names.ParseAuthority(rest)
	switch {
	case err != nil:
		return "", "", err
	case a.IsIP():
		return "", "", errors.New("an address; rules are about names")
	}
	p := Port{Number: 443}
	if plain {
		p = Port{Number: a.PortOr(80), Plain: true}
	} else {
		p.Number = a.PortOr(443)
	}
	if !plain && p.Number == 80 {
		return "", "", errors.New("port 80 is always HTTP without TLS")
	}
	return wild + a.Host.String(), p.String(), nil
}
