// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the size in bytes that a policy may have.
const MaxSize = 1 << 20

// maxText bounds a text for people, in bytes.
const maxText = 1000

// maxDepth bounds how deep lists and mappings may nest; a policy needs eight.
const maxDepth = 12

// checkText refuses what a reader of the file would not see, or see otherwise
// than the parser does: bytes that are not UTF-8, control and invisible
// characters (tabs too), directives.
func checkText(src []byte, problems *Problems) bool {
	if len(src) > MaxSize {
		problems.add(0, "", "", "the policy has %d bytes, the limit is %d", len(src), MaxSize)
		return false
	}
	if !utf8.Valid(src) {
		problems.add(1+bytes.Count(src[:invalidAt(src)], []byte("\n")), "", "save the file as UTF-8", "not UTF-8")
		return false
	}
	text := string(src)
	if strings.HasPrefix(text, "\ufeff") {
		problems.add(1, "", "save the file without byte order mark", "begins with a byte order mark")
		return false
	}
	fine := true
	line := 0
	for l := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		line++
		if strings.HasPrefix(l, "%") {
			problems.add(line, "", "", "a YAML directive (a line that begins with %%)")
			fine = false
		}
		if i := strings.IndexFunc(l, hidden); i >= 0 {
			r, _ := utf8.DecodeRuneInString(l[i:])
			hint := ""
			if r == '\t' {
				hint = "indent with spaces"
			}
			problems.add(line, "", hint, "holds the character %U, which shows as nothing or as something else", r)
			fine = false
		}
	}
	return fine
}

// hidden reports whether r does not show as itself.
func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// invalidAt is the offset of the first byte that is not UTF-8.
func invalidAt(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return 0
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parseYAML returns the root node of the one document in src, or nil.
func parseYAML(src []byte, problems *Problems) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && (len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null") {
		problems.add(1, "", `the policy that allows nothing is "version: 1"`, "the policy is empty")
		return nil
	}
	if err != nil {
		addYAML(problems, src, err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		addYAML(problems, src, err)
		return nil
	default:
		problems.add(second.Line, "", "one policy is one document: remove the --- line", "more than one YAML document")
		return nil
	}
	if why := tooDeep(doc.Content[0], 0); why != nil {
		problems.add(why.Line, "", "", "nested deeper than %d levels", maxDepth)
		return nil
	}
	return doc.Content[0]
}

// addYAML takes the line out of an error of the YAML library. Of a block that goes
// wrong, that is where the block begins; the line at fault is looked for.
func addYAML(problems *Problems, src []byte, err error) {
	text := err.Error()
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits by the expression, or empty
		text = text[len(m[0]):]
	}
	at := line
	if line > 0 && (strings.HasPrefix(text, "did not find expected key") || strings.HasPrefix(text, "did not find expected '-'")) {
		at = faultLine(src, err.Error())
	}
	if at > line {
		problems.add(at, "", "look at its indentation, and at that of the line above", "not YAML: %s, in the block that begins at line %d", text, line)
		return
	}
	problems.add(line, "", "", "not YAML: %s", text)
}

// faultLine is the first line with which src, cut off behind it, fails with fault.
func faultLine(src []byte, fault string) int {
	lines := bytes.SplitAfter(src, []byte("\n"))
	size := make([]int, len(lines)+1)
	for i, l := range lines {
		size[i+1] = size[i] + len(l)
	}
	return sort.Search(len(lines), func(n int) bool {
		dec := yaml.NewDecoder(bytes.NewReader(src[:size[n]]))
		for {
			var doc yaml.Node
			if err := dec.Decode(&doc); err != nil {
				return err.Error() == fault
			}
		}
	})
}

// tooDeep returns the first node that lies too deep, or nil.
func tooDeep(n *yaml.Node, depth int) *yaml.Node {
	if depth > maxDepth {
		return n
	}
	for _, c := range n.Content {
		if deep := tooDeep(c, depth+1); deep != nil {
			return deep
		}
	}
	return nil
}
