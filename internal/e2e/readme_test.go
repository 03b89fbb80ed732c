// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// TestTheReadmesFiveMinutes follows README.md as a newcomer would, in a world
// that has example.com: each command line of the tour is run and must say what
// the page shows. A change of either is one of the other.
func TestTheReadmesFiveMinutes(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	for _, name := range []string{"example.com", "example.org"} {
		if err := h.w.DNS.Set(name, world.Answer{Addrs: []string{world.APIAddr}}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tour, _ := strings.Cut(string(page), "## Five minutes")
	tour, _, _ = strings.Cut(tour, "\n## ")
	policy := blocks(tour, "yaml")
	if len(policy) != 1 {
		t.Fatalf("%d policies", len(policy))
	}
	if err := os.WriteFile(h.w.Host.File("/home/"+operator.Account+"/policy.yaml"), []byte(policy[0]), 0o644); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range blocks(tour, "console") {
		for _, c := range typed(block) {
			if c.root { // how Bawn comes to run is the host's business here
				if strings.HasPrefix(c.line, "bawn up") && !same(c.shows, h.Log()) {
					t.Errorf("# %s shows\n%s\nnot\n%s", c.line, h.Log(), c.shows)
				}
				continue
			}
			cmd := h.w.Host.CommandAs(t.Context(), operator.Account, "/bin/sh", "-c", "cd && "+c.line)
			cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(operator.Binary)+":"+world.Path)
			out, _ := cmd.CombinedOutput() // that something is denied is a status too
			if !same(c.shows, string(out)) {
				t.Errorf("$ %s shows\n%s\nnot\n%s", c.line, out, c.shows)
			}
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("only %d command lines were found", ran)
	}
}

// blocks returns the text of the page's fenced blocks of one kind.
func blocks(page, kind string) (list []string) {
	for {
		var ok bool
		if _, page, ok = strings.Cut(page, "```"+kind+"\n"); !ok {
			return list
		}
		block, rest, _ := strings.Cut(page, "```")
		list, page = append(list, block), rest
	}
}

// A shown is one command line of the page, and what it says there.
type shown struct {
	root        bool
	line, shows string
}

func typed(block string) (list []shown) {
	for line := range strings.Lines(block) {
		switch {
		case strings.HasPrefix(line, "$ "), strings.HasPrefix(line, "# "):
			list = append(list, shown{root: line[0] == '#', line: strings.TrimSpace(line[2:])})
		case len(list) > 0:
			list[len(list)-1].shows += line
		}
	}
	return list
}

var (
	vary   = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z|Z)?|[0-9]+ self-test|, [0-9]+ warnings?|time=.*\n`)
	counts = regexp.MustCompile(`( 200 +)\d+ +\d+`)
	spaces = regexp.MustCompile(` +`)
)

// same compares what the page shows with what was said, but for times, counts of
// bytes, how many warnings there are about this host, the log of "bawn up" and the spaces that line columns up. "..." on the
// page stands for anything on a line.
func same(shows, said string) bool {
	norm := func(s string) string {
		s = vary.ReplaceAllString(s, "")
		return strings.TrimSpace(spaces.ReplaceAllString(counts.ReplaceAllString(s, "${1}N N"), " "))
	}
	parts := strings.Split(norm(shows), "...")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^(?:" + strings.Join(parts, ".*") + ")$").MatchString(norm(said))
}
