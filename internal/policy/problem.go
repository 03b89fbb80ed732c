// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A Problem is one thing that is wrong, or for a warning odd, in a policy.
type Problem struct {
	Line  int    // line of the file, from 1; 0 where no line is to blame
	Where string // rule id and key, or the path of the key
	What  string // what is wrong
	Hint  string // what to write instead; may be empty
}

// Error gives the problem on one line.
func (p *Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Where != "" {
		b.WriteString(p.Where + ": ")
	}
	b.WriteString(p.What)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Problems are all that is wrong with a policy, in the order of its lines. It
// is the error of [Parse] and [Compile].
type Problems []*Problem

// maxShown is how many problems one message lists.
const maxShown = 100

// Error gives one problem a line, and counts those that are too many to read.
func (p Problems) Error() string {
	lines := make([]string, 0, min(len(p), maxShown+1))
	for _, problem := range p[:min(len(p), maxShown)] {
		lines = append(lines, problem.Error())
	}
	if more := len(p) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more problems", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single problems to errors.As.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

// err returns the problems sorted by line, and nil when there are none.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b *Problem) int { return a.Line - b.Line })
	return p
}

// add appends a problem.
func (p *Problems) add(line int, where, hint, format string, args ...any) {
	*p = append(*p, &Problem{Line: line, Where: where, What: fmt.Sprintf(format, args...), Hint: hint})
}

// show quotes a piece of the file for a message: escaped, and not more of it
// than a reader needs.
func show(s string) string {
	const most = 48
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q...", s[:most])
}

// didYouMean returns a hint that names the word that word was probably meant
// to be, or lists all when none is near.
func didYouMean(word string, known []string) string {
	best, least := "", 3 // two slips of the finger at most
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d < least && d < len(k) {
			best, least = k, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	if len(known) == 0 {
		return ""
	}
	return "known here: " + strings.Join(known, ", ")
}

// distance is the number of single-byte edits between a and b (Levenshtein).
// Words that differ much in length are far apart, and not measured.
func distance(a, b string) int {
	const far = 99
	if len(a)-len(b) > 3 || len(b)-len(a) > 3 {
		return far
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
