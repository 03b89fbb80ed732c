// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Table is one nft table of family inet. Its text can be fed to nft.
type Table struct {
	Name     string
	Counters []string
	Sets     []Set
	Chains   []Chain
}

// A Set is a named set of concatenated fields.
type Set struct {
	Name     string
	Fields   []Field
	Elements []Element
}

// An Element holds one value for each field of its set that needs one.
type Element struct {
	UID    uint32
	Cgroup string
	Addr   netip.Addr
	Port   uint16
}

// A Hook is where in the kernel a base chain is called.
type Hook string

// The hooks that plans use.
const (
	HookNone   Hook = ""
	HookOutput Hook = "output"
	HookInput  Hook = "input"
)

// A Chain is a list of rules. Without a hook it is only gone to.
type Chain struct {
	Name     string
	NAT      bool // type nat instead of filter
	Hook     Hook
	Priority int
	Closed   bool // policy drop instead of accept
	Rules    []Rule
}

// A Rule is a list of terms: all matches must hold for the acts to be done.
type Rule []Term

// String gives the terms in nft's words.
func (r Rule) String() string {
	parts := make([]string, len(r))
	for i, t := range r {
		parts[i] = t.String()
	}
	return strings.Join(parts, " ")
}

// Text gives the element's values for the fields, in nft's words.
func (e Element) Text(fields []Field) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		switch f {
		case FieldUID:
			parts[i] = fmt.Sprint(e.UID)
		case FieldCgroup:
			parts[i] = fmt.Sprintf("%q", e.Cgroup)
		case FieldTo, FieldFrom:
			parts[i] = e.Addr.String()
		case FieldToPort, FieldFromPort:
			parts[i] = fmt.Sprint(e.Port)
		}
	}
	return strings.Join(parts, " . ")
}

// String gives the table in the form that nft reads and prints.
func (t Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", t.Name)
	for _, c := range t.Counters {
		fmt.Fprintf(&b, "\tcounter %s {\n\t}\n\n", c)
	}
	for _, s := range t.Sets {
		s.write(&b)
	}
	for i, c := range t.Chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		c.write(&b)
	}
	b.WriteString("}\n")
	return b.String()
}

func (s Set) write(b *strings.Builder) {
	types := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		types[i] = fieldText[f].typ
	}
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n", s.Name, strings.Join(types, " . "))
	if len(s.Elements) > 0 {
		elements := make([]string, len(s.Elements))
		for i, e := range s.Elements {
			elements[i] = e.Text(s.Fields)
		}
		fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(elements, ",\n\t\t\t     "))
	}
	b.WriteString("\t}\n\n")
}

// priority gives the priority as nft prints it: near 0 by the name "filter".
func (c Chain) priority() string {
	switch {
	case c.Priority == 0:
		return "filter"
	case c.Priority > 0 && c.Priority <= 10:
		return fmt.Sprintf("filter + %d", c.Priority)
	}
	return fmt.Sprint(c.Priority)
}

func (c Chain) write(b *strings.Builder) {
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if c.Hook != HookNone {
		kind, policy := "filter", "accept"
		if c.NAT {
			kind = "nat"
		}
		if c.Closed {
			policy = "drop"
		}
		fmt.Fprintf(b, "\t\ttype %s hook %s priority %s; policy %s;\n", kind, c.Hook, c.priority(), policy)
	}
	for _, r := range c.Rules {
		fmt.Fprintf(b, "\t\t%s\n", r)
	}
	b.WriteString("\t}\n")
}
