// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	_ "embed" // of the recipes
	"encoding/json"
	"fmt"
	"strings"
)

// Schema returns the JSON Schema (draft 2020-12) of policies, for editors. It
// says what has the right form. What the form cannot say (hosts that are too
// wide, keys that exclude each other, ids that stand twice) only [Parse] says.
func Schema() []byte {
	root := objectSchema(documentKeys())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Bawn policy"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // maps of strings always encode
	}
	return append(text, '\n')
}

// schema returns the schema of a shape.
func (s shape) schema() map[string]any {
	switch s.kind {
	case kindObject:
		return objectSchema(s.keys)
	case kindNamed:
		return map[string]any{
			"type":                 "object",
			"propertyNames":        map[string]any{"pattern": whole(s.pattern)},
			"additionalProperties": s.elem.schema(),
		}
	case kindList:
		list := map[string]any{"type": "array", "items": s.elem.schema()}
		if s.single {
			return map[string]any{"anyOf": []any{s.elem.schema(), list}}
		}
		return list
	case kindBool:
		return map[string]any{"type": "boolean"}
	case kindOne:
		return map[string]any{"const": 1}
	case kindInt:
		return map[string]any{"type": "integer", "minimum": 1, "maximum": 1<<31 - 1}
	case kindTime:
		return map[string]any{"type": "string", "format": "date-time"}
	case kindText:
		return map[string]any{"type": "string", "minLength": 1, "maxLength": maxText}
	case kindPort:
		return map[string]any{"anyOf": []any{
			map[string]any{"type": "integer", "minimum": 1, "maximum": 65535},
			map[string]any{"type": "string", "pattern": whole(s.pattern)},
		}}
	}
	if s.enum != nil {
		return map[string]any{"enum": s.enum}
	}
	return map[string]any{"type": "string", "pattern": whole(s.pattern)}
}

func whole(pattern string) string { return "^(?:" + pattern + ")$" }

func objectSchema(keys []key) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, k := range keys {
		p := k.shape.schema()
		p["description"] = k.text()
		properties[k.name] = p
		if k.required {
			required = append(required, k.name)
		}
	}
	object := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		object["required"] = required
	}
	about := []any{}
	for _, name := range []string{"host", "cidr", "preset", "deny"} {
		if lookup(keys, name) != nil {
			about = append(about, map[string]any{"required": []string{name}})
		}
	}
	if len(about) > 0 {
		object["oneOf"] = about
	}
	return object
}

// text is the whole description of a key.
func (k key) text() string {
	text := k.doc
	if k.later != "" {
		text += " " + strings.ToUpper(k.later[:1]) + k.later[1:] + "."
	}
	if k.fallback != "" {
		text += " Default: " + k.fallback + "."
	}
	return text
}

// Reference returns the reference page of the format, in Markdown.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(referenceHead)
	document := documentKeys()
	writeKeys(&b, "The file", "", document)
	profile := lookup(document, "profiles").shape.elem.keys
	writeKeys(&b, "A profile", "A member of `profiles`. Its name is 1 to 27 of a-z, 0-9 and `-` and begins with a letter.", profile)
	writeKeys(&b, "An agent", "A member of `agents`, called as it is registered.", lookup(document, "agents").shape.elem.keys)
	rule := lookup(profile, "rules").shape.elem.keys
	writeKeys(&b, "A rule", "An element of `rules`. It has exactly one of `host`, `cidr`, `preset` and `deny`.", rule)
	writeKeys(&b, "Inside deny", "Exactly one of `host`, `cidr` and `preset`. `expires`, `reason` and `id` may stand beside `deny` instead.", lookup(rule, "deny").shape.keys)
	writeKeys(&b, "Budgets", budgetsLead, lookup(profile, "budgets").shape.keys)
	b.WriteString(referenceFoot + recipes)
	return []byte(b.String())
}

func writeKeys(b *strings.Builder, title, lead string, keys []key) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if lead != "" {
		b.WriteString(lead + "\n\n")
	}
	b.WriteString("| key | value | meaning |\n|---|---|---|\n")
	for _, k := range keys {
		value := k.shape.describe()
		if k.example != "" {
			value += "; `" + k.example + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.name, strings.ReplaceAll(value, "|", `\|`), strings.ReplaceAll(k.text(), "|", `\|`))
	}
}

// describe says in a few words what a value is.
func (s shape) describe() string {
	switch s.kind {
	case kindObject:
		return "mapping"
	case kindNamed:
		return "mapping by name"
	case kindList:
		switch {
		case s.elem.kind == kindObject:
			return "list of mappings"
		case s.single:
			return s.elem.wants() + ", or a list of them"
		}
		return "list, each " + s.elem.wants()
	}
	return s.wants()
}

const budgetsLead = "Periods are `s`, `min`, `h` and `day`, by the clock in UTC. Rules have `egress_bytes`, `ingress_bytes`, `requests`, `messages` and `names` only. [Budgets](budgets.md) says what is counted, and when it begins anew."

const referenceHead = `<!-- Generated from internal/policy by "go generate ./internal/policy". Do not edit. -->

# Policy reference

A policy is one YAML file. It is read strictly: an unknown key, a key that
stands twice, an anchor, an alias, a tag, a second document, a tab, an invisible
character or a value of the wrong type refuses the file, and every problem is
reported with its line. A file may have 1 MiB. [policy.schema.json](policy.schema.json)
is the JSON Schema for editors.

` + "```yaml" + `
version: 1
profiles:
  coder:
    rules:
      - host: api.example.com
        methods: [GET]
        paths: ["/v1/**"]
      - host: "*.docs.example.org"
        guard: read-only
      - host: db.example.com
        ports: [5432/tcp]
        inspect: none
      - host: models.corp.example
        addresses: [10.20.0.0/16]
      - deny: {host: files.example.com}
agents:
  dev: {profile: coder, rules: []}
` + "```" + `

What rules mean:

- What no rule allows is denied. A new host has no policy, and denies everything.
- A rule with ` + "`deny`" + ` wins over every rule that allows. The order of rules makes no difference.
- Where several rules allow a request, the strictest of their ` + "`inspect`" + ` values and all of their guards apply.
- Names are compared in one canonical form. ` + "`*.example.com`" + ` never covers ` + "`example.com`" + `.
- The name and the port are judged before anything is resolved; method and path before a byte of the body is read.
- A key that this build cannot enforce refuses the policy. It is never ignored.
`

// recipes are the part of the reference that is written by hand.
//
//go:embed recipes.md
var recipes string

const referenceFoot = `
## What is refused although it has the right form

- A host under which strangers can have names (` + "`*`, `*.com`, `*.github.io`" + `) without ` + "`accept_risk`" + `.
- ` + "`addresses`" + ` that hold loopback, link-local, multicast, or very many addresses, without ` + "`accept_risk`" + `.
- Two spellings of one host (` + "`Example.com` and `example.com`" + `).
- ` + "`methods`, `paths` or `guard`" + ` together with ` + "`inspect: sni` or `none`" + `: nothing would enforce them.
- A port that is TLS in one rule and HTTP without TLS in another for the same host.
- An allowing rule on a host that belongs to a preset.
- An agent that is not registered, or a profile that the policy does not have.

## What is warned of

- A rule that has expired.
- An empty list, which matches nothing.
- A port written ` + "`PORT/tcp`" + `, or one of ssh, mail or a database, without ` + "`inspect: none`" + `: nothing but TLS is understood there.
- A rule that another one covers, or that a ` + "`deny`" + ` leaves nothing of.
- A registered agent whose profile the policy does not have.
`
