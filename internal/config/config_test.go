// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/config"
)

func TestBadConfigurationNamesEveryProblem(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":       {"version: 1\nresolver: [1.1.1.1]\n", `line 2: unknown key "resolver" (known here: version, resolvers, upstream_roots, placement, limits, wildcards)`},
		"unknown limit":     {"version: 1\nlimits: {pid: 1}\n", `line 2: unknown key "pid" (known here: pids, memory_mib, cpu_percent)`},
		"a list":            {"- version: 1\n", "line 1: wants keys and values, has a list"},
		"no list":           {"version: 1\nresolvers: 192.0.2.1\n", `line 2: wants a list, has "192.0.2.1"`},
		"empty":             {"", "version: is missing: write version: 1"},
		"no YAML":           {"{", "line 1: did not find expected node content"},
		"no version":        {"placement: netns\n", "version"},
		"newer version":     {"version: 2\n", "version: 2"},
		"two documents":     {"version: 1\n---\nversion: 1\n", "more than one document"},
		"bad placement":     {"version: 1\nplacement: vm9\n", "vm9"},
		"bad resolver":      {"version: 1\nresolvers: [dns.example.com]\n", "dns.example.com"},
		"relative roots":    {"version: 1\nupstream_roots: a.pem\n", "absolute"},
		"limits too small":  {"version: 1\nlimits: {pids: 1, memory_mib: 64}\n", "limits"},
		"wrong type":        {"version: one\n", `line 1: wants a number, has "one"`},
		"no wildcards":      {"version: 1\nwildcards: {names: 0}\n", "wildcards"},
		"second bad beside": {"version: 3\nupstream_roots: a.pem\n", "absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not name %q", err, c.want)
			}
		})
	}
}

func TestAbsentIsDefaultAndInvalidIsNot(t *testing.T) {
	p := config.Paths{Root: t.TempDir()}
	if c, err := config.Load(p); err != nil || c.Placement != "netns" {
		t.Fatalf("no file: %+v, %v", c, err)
	}
	os.MkdirAll(p.Etc(), 0o755)
	os.WriteFile(p.ConfigFile(), []byte("{"), 0o644)
	if _, err := config.Load(p); err == nil || !strings.Contains(err.Error(), p.ConfigFile()) {
		t.Errorf("broken file: %v does not name it", err)
	}
}

func TestMarkIsOfOneInstallation(t *testing.T) {
	if m := (config.Paths{Root: "/"}).Mark(); m != "bawn" {
		t.Errorf("mark of / is %q", m)
	}
	dir := t.TempDir()
	a, b := config.Paths{Root: dir}.Mark(), config.Paths{Root: filepath.Join(dir, "x")}.Mark()
	if a == b || !strings.HasPrefix(a, "bawn-") {
		t.Errorf("marks %q and %q", a, b)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("version: 1\nresolvers: [\"[::1]:53\"]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := config.Parse(text); err == nil && c.Validate() != nil {
			t.Errorf("accepted what does not validate: %+v", c)
		}
	})
}
