// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labels judges the names that an agent makes up under a wildcard.
//
// A rule such as "*.example.com" lets the agent choose the labels in front of
// example.com. Each name that is new has to be looked up, and whoever answers
// for the domain, or watches its servers, reads what the agent wrote: a tunnel
// that needs no connection. Real services are content with a few short names;
// [Limits] bound how many a day, how much they hold together, and what one may
// look like. The names of one registered domain are counted together, under
// whatever rules and however they are split into labels.
//
// A name that some rule names exactly is the operator's word and is not counted.
//
// Everything here is pure; who counts is package budget.
package labels

import (
	"fmt"
	"strings"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/verdict"
)

// Limits bound what one agent may make up. A zero field means its default.
type Limits struct {
	Names    int // new names in a day under one registered domain; 256
	Octets   int // of their chosen labels, added up; 8192
	AllNames int // new names in a day under all wildcards; 4096

	NameOctets int // of the chosen labels of one name, dots included; 100
	NameLabels int // labels chosen in one name; 8
}

// WithDefaults fills in what is zero.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		have      *int
		otherwise int
	}{{&l.Names, 256}, {&l.Octets, 8192}, {&l.AllNames, 4096}, {&l.NameOctets, 100}, {&l.NameLabels, 8}} {
		if *f.have == 0 {
			*f.have = f.otherwise
		}
	}
	return l
}

// A Choice is a name as far as the agent chose it.
type Choice struct {
	Domain names.Host // the registered domain that the name counts for
	Labels string     // what stands in front of the rule's own part, dots included
}

// Of says what an agent chose in host, which the wildcard under lets in.
func Of(host names.Host, under names.Pattern) Choice {
	return Choice{names.Registrable(host), strings.TrimSuffix(host.String(), strings.TrimPrefix(under.String(), "*"))}
}

// A Count is what an agent has made up today.
type Count struct {
	Names, Octets int // under the domain in question
	All           int // names under all wildcards
}

// stage is what verdicts about names say.
const stage = "name"

// Shape judges the name alone, however often it was asked for.
func (l Limits) Shape(c Choice) verdict.Verdict {
	switch n := 1 + strings.Count(c.Labels, "."); {
	case len(c.Labels) > l.NameOctets:
		return refuse("%d octets in front of what the rule says, and %d are allowed", len(c.Labels), l.NameOctets)
	case n > l.NameLabels:
		return refuse("%d labels in front of what the rule says, and %d are allowed", n, l.NameLabels)
	}
	return verdict.Verdict{Effect: verdict.Allow}
}

// New judges a name that is new today, after what there was before it.
func (l Limits) New(c Choice, before Count) verdict.Verdict {
	switch {
	case before.Names >= l.Names:
		return refuse("%d names under %s today, and no more are allowed", before.Names, c.Domain)
	case before.Octets+len(c.Labels) > l.Octets:
		return refuse("%d octets in names under %s today, and %d are allowed", before.Octets, c.Domain, l.Octets)
	case before.All >= l.AllNames:
		return refuse("%d names under wildcards today, and no more are allowed", before.All)
	}
	return verdict.Verdict{Effect: verdict.Allow}
}

func refuse(format string, args ...any) verdict.Verdict {
	return verdict.Refuse(stage, codes.DNSLabelBudget, fmt.Sprintf(format, args...))
}

// encodedFrom is the length from which a label is long enough to tell.
const encodedFrom = 24

// Encoded reports whether the labels look like encoded data rather than words:
// a hint for whoever reads the record, never a reason to refuse, since the names
// of real machines look so too. It looks for a label of two dozen octets or more
// in which letters and digits alternate as they do in hexadecimal, base32 and
// base36.
func (c Choice) Encoded() bool {
	for label := range strings.SplitSeq(c.Labels, ".") {
		label = strings.ReplaceAll(label, "-", "")
		if len(label) < encodedFrom {
			continue
		}
		turns, digits := 0, 0
		for i := range len(label) {
			if isDigit(label[i]) {
				digits++
			}
			if i > 0 && isDigit(label[i]) != isDigit(label[i-1]) {
				turns++
			}
		}
		if turns*5 >= len(label) && digits*8 >= len(label) {
			return true
		}
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
