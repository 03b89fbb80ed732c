// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bawn/internal/apitype"
	"bawn/internal/doctor"
)

type doctorLine = apitype.DoctorLine

func TestTheCatalogueIsSound(t *testing.T) {
	seen, titles := map[doctor.Name]bool{}, map[string]bool{}
	form := regexp.MustCompile(`^[a-z][a-z0-9_]{2,31}$`)
	group := 0
	for _, c := range doctor.All {
		if !form.MatchString(string(c.Name)) || seen[c.Name] || titles[c.Title] || c.Title == "" || c.Looks == "" {
			t.Errorf("%+v", c)
		}
		seen[c.Name], titles[c.Title] = true, true
		if c.Worst != doctor.Fail && c.Worst != doctor.Warn || c.Shuts && c.Worst != doctor.Fail {
			t.Errorf("%s is %s at worst", c.Name, c.Worst)
		}
		at := slices.IndexFunc(doctor.Headings, func(h struct {
			Group doctor.Group
			Text  string
		}) bool {
			return h.Group == c.Group
		})
		if at < group {
			t.Errorf("%s stands in no group, or not with it", c.Name)
		}
		group = max(group, at)
	}
}

// TestI12EveryCheckHasATestInWhichItFails: the maps called breaks, in the tests
// of these packages, name what is broken, and their tests see it turn red.
func TestI12EveryCheckHasATestInWhichItFails(t *testing.T) {
	broken := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, name := range brokenIn(t, path) {
			broken[name] = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	constants := namesOfConstants(t)
	for constant, name := range constants {
		if broken[constant] == "" {
			t.Errorf("%s (%s) has no test in which it fails", constant, name)
		}
	}
	if len(constants) != len(doctor.All) {
		t.Errorf("%d names, %d checks", len(constants), len(doctor.All))
	}
}

// brokenIn lists the keys of the maps called breaks in a file: doctor.X or, in
// package probe's tests, probe.CheckX.
func brokenIn(t *testing.T, path string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || spec.Names[0].Name != "breaks" || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if sel, ok := kv.Key.(*ast.SelectorExpr); ok {
					names = append(names, sel.Sel.Name)
				}
			}
		}
		return true
	})
	return names
}

// namesOfConstants are the constants of the catalogue.
func namesOfConstants(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "catalogue.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Type != nil {
			if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Name" {
				m[spec.Names[0].Name] = strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
			}
		}
		return true
	})
	return m
}

// page is the documentation; UPDATE=1 writes its tables anew.
const page = "../../docs/doctor.md"

// TestThePageHasEveryCheck: the tables of docs/doctor.md are those of the
// catalogue.
func TestThePageHasEveryCheck(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- checks -->\n", "<!-- end of checks -->"
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("no %q and %q", begin, end)
	}
	want := tables()
	if old == want {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("the tables are not those of the catalogue: UPDATE=1 go test ./internal/doctor writes them")
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func tables() string {
	var b strings.Builder
	for _, h := range doctor.Headings {
		fmt.Fprintf(&b, "\n### %s\n\n| name | at worst | what is looked at | remedy |\n|---|---|---|---|\n", h.Text)
		for _, c := range doctor.All {
			if c.Group != h.Group {
				continue
			}
			worst := string(c.Worst)
			if c.Shuts {
				worst = "**shuts**"
			}
			fix := c.Fix
			if fix == "" {
				fix = "named with what is seen"
			}
			only := ""
			if c.Only != "" {
				only = fmt.Sprintf(" (placement `%s`)", c.Only)
			}
			fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", c.Name, only, worst, c.Looks, fix)
		}
	}
	b.WriteString("\n")
	return b.String()
}
