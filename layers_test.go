// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package bawn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rows lists every package, lowest first. A package imports packages of lower
// rows only, never its own: what depends on what is then visible here, and
// nowhere else. Where one row seems to need two levels, it has two rows.
var rows = [][]string{
	// words: standard library only
	{"internal/codes", "internal/ids", "internal/undo", "internal/lifecycle", "internal/secret"},
	{"internal/verdict"},
	// decisions: pure, no clock, no socket
	{"internal/names", "internal/addr", "internal/termfilter", "internal/agentenv", "internal/wirejson", "internal/strictjson", "internal/contentcoding", "internal/quota"},
	{"internal/httpwire", "internal/tlshello", "internal/dnswire", "internal/wswire", "internal/netplan", "internal/apitype", "internal/labels"},
	{"internal/guard", "internal/h2head", "internal/doctor"},
	{"internal/policy"},
	{"internal/policydiff"},
	// memory of things
	{"internal/agentfile"},
	{"internal/audit", "internal/ca", "internal/store", "internal/budget"},
	{"internal/index", "internal/metrics"},
	{"internal/hindsight"},
	// hands: what touches the host
	{"internal/proof", "internal/siem"},
	{"internal/fdpass", "internal/lending", "internal/notify", "internal/peercred", "internal/uptls"},
	{"internal/netkern", "internal/proc", "internal/probe", "internal/dnsclient", "internal/parent", "internal/h2conn"},
	{"internal/netd/netdapi", "internal/inspect"},
	{"internal/netd"},
	// planes: the data path; they never import each other
	{"internal/egress", "internal/resolver", "internal/lease"},
	// control
	{"internal/config", "internal/client", "internal/casetest"},
	{"internal/session", "internal/handover", "internal/backup"},
	{"internal/admin", "internal/supervise", "internal/terminal"},
	{"internal/install"},
	// verbs and wiring
	{"cmd/bawn"},
	// the tests' small internet
	{"internal/roottest", "internal/steady", "internal/world/supply"},
	{"internal/world", "internal/h2suite"},
	{"internal/demo", "internal/e2e"},
}

// pure lists the first rows, which decide and never act, and what they may not
// import.
const pureRows = 7

var impure = map[string]string{
	"os/exec":               "decisions start nothing",
	"net/http":              "net/http hides what our own codec must see",
	"database/sql":          "memory has its own row",
	"golang.org/x/sys/unix": "the kernel belongs to the hands",
	"os":                    "decisions read no files",
	"crypto/tls":            "decisions hold no connections",
}

// owners names the packages that alone may import a thing, and why.
var owners = map[string]struct {
	why string
	by  []string
}{
	"github.com/google/nftables":     {"one place writes firewall rules", []string{"internal/netkern"}},
	"github.com/vishvananda/netlink": {"one place changes links", []string{"internal/netkern", "internal/world"}},
	"modernc.org/sqlite":             {"one place opens each database", []string{"internal/store", "internal/index"}},
}

// pkg is one folder's Go files.
type pkg struct {
	dir     string
	imports map[string]string // path -> file that imports it
	doc     []string          // files with a package comment
	tested  bool
}

func TestPackagesImportLowerRowsOnly(t *testing.T) {
	row := map[string]int{}
	for i, r := range rows {
		for _, p := range r {
			row[p] = i
		}
	}
	for _, p := range packages(t) {
		own, ok := row[rowOf(p.dir, row)]
		if !ok {
			t.Errorf("%s is in no row of layers_test.go", p.dir)
			continue
		}
		for path, file := range p.imports {
			rel, local := strings.CutPrefix(path, "bawn/")
			if !local || parentOf(rel, p.dir) {
				continue
			}
			if theirs, ok := row[rowOf(rel, row)]; !ok || theirs >= own {
				t.Errorf("%s imports %s, which is not in a lower row", file, path)
			}
		}
	}
}

// rowOf finds the row's entry for dir: its own or that of the nearest parent
// folder, so that generators and one-guard packages need no line.
func rowOf(dir string, row map[string]int) string {
	for d := dir; d != "." && d != "internal"; d = filepath.Dir(d) {
		if _, ok := row[d]; ok {
			return d
		}
	}
	return dir
}

// parentOf reports whether one of the two folders is within the other: a
// folder's own parts are its own business.
func parentOf(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}

func TestDecisionsArePure(t *testing.T) {
	var low []string
	for _, r := range rows[:pureRows] {
		low = append(low, r...)
	}
	for _, p := range packages(t) {
		if !slices.Contains(low, p.dir) {
			continue
		}
		for path, file := range p.imports {
			if why, bad := impure[path]; bad {
				t.Errorf("%s imports %s: %s", file, path, why)
			}
		}
	}
}

func TestOnlyOwnersImport(t *testing.T) {
	for _, p := range packages(t) {
		for path, file := range p.imports {
			o, owned := owners[path]
			if owned && !slices.ContainsFunc(o.by, func(d string) bool { return parentOf(d, p.dir) }) {
				t.Errorf("%s imports %s: %s", file, path, o.why)
			}
		}
	}
}

func TestEveryPackageSaysWhatToHoldInMind(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.doc) != 1 {
			t.Errorf("%s has %d package comments, want one: %v", p.dir, len(p.doc), p.doc)
		}
	}
}

const licence = "// Copyright The Bawn Authors.\n// SPDX-License-Identifier: Apache-2.0\n"

// The longest file that one reader can hold in mind.
const maxLines = 700

func TestEveryFileHasLicenceAndBoundedLength(t *testing.T) {
	walk(t, func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		body := strings.TrimPrefix(string(text), buildTag(string(text)))
		if !strings.HasPrefix(body, licence) {
			t.Errorf("%s does not begin with the licence header", path)
		}
		if n := strings.Count(string(text), "\n"); n > maxLines {
			t.Errorf("%s has %d lines, more than %d: does it hold one thing?", path, n, maxLines)
		}
	})
}

// buildTag returns the build constraint and the blank line after it, which
// must stand first in a file.
func buildTag(text string) string {
	if !strings.HasPrefix(text, "//go:build ") {
		return ""
	}
	_, rest, _ := strings.Cut(text, "\n\n")
	return strings.TrimSuffix(text, rest)
}

func TestModuleReplacesNothing(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "replace ") {
		t.Error("go.mod replaces a module: what is built would not be what is named")
	}
}

func packages(t *testing.T) []*pkg {
	t.Helper()
	byDir := map[string]*pkg{}
	var list []*pkg
	walk(t, func(path string) {
		dir := filepath.Dir(path)
		if dir == "." || strings.HasPrefix(dir, "bench") {
			return // this test itself, and the bench's own module
		}
		p := byDir[dir]
		if p == nil {
			p = &pkg{dir: dir, imports: map[string]string{}}
			byDir[dir] = p
			list = append(list, p)
		}
		read(t, p, path)
	})
	return list
}

func read(t *testing.T, p *pkg, path string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, "_test.go") {
		p.tested = true
		return // tests may reach up: the world is above what it tests
	}
	if hasDoc(f) {
		p.doc = append(p.doc, path)
	}
	for _, i := range f.Imports {
		p.imports[strings.Trim(i.Path.Value, `"`)] = path
	}
}

func hasDoc(f *ast.File) bool {
	return f.Doc != nil && !strings.HasPrefix(f.Doc.Text(), "Copyright")
}

// walk calls visit with every Go file of the tree, slash-separated.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".go") {
			visit(filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
