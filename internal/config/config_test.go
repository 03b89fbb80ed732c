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
		"unknown key":      {"version: 1\nresolver: [1.1.1.1]\n", `line 2: unknown key "resolver" (known here: version, resolvers, upstream_roots, system_roots, credentials, parent_proxy, placement, limits, wildcards, grants, doctor, audit)`},
		"unknown limit":    {"version: 1\nlimits: {pid: 1}\n", `line 2: unknown key "pid" (known here: pids, memory_mib, cpu_percent)`},
		"a list":           {"- version: 1\n", "line 1: wants keys and values, has a list"},
		"no list":          {"version: 1\nresolvers: 192.0.2.1\n", `line 2: wants a list, has "192.0.2.1"`},
		"empty":            {"", "version: is missing: write version: 1"},
		"no YAML":          {"{", "line 1: did not find expected node content"},
		"no version":       {"placement: netns\n", "version"},
		"newer version":    {"version: 2\n", "version: 2"},
		"two documents":    {"version: 1\n---\nversion: 1\n", "more than one document"},
		"bad placement":    {"version: 1\nplacement: vm9\n", "vm9"},
		"bad resolver":     {"version: 1\nresolvers: [dns.example.com]\n", "dns.example.com"},
		"relative roots":   {"version: 1\nupstream_roots: a.pem\n", "absolute"},
		"limits too small": {"version: 1\nlimits: {pids: 1, memory_mib: 64}\n", "limits"},
		"wrong type":       {"version: one\n", `line 1: wants a number, has "one"`},
		"no wildcards":     {"version: 1\nwildcards: {names: 0}\n", "wildcards"},
		"a hasty doctor":   {"version: 1\ndoctor: {every: 1s}\n", "less than 1m"},
		"a doctor of word": {"version: 1\ndoctor: {every: often}\n", "wants a duration such as 24h"},
		"no roots at all":  {"version: 1\nsystem_roots: false\n", "leaves no root"},
		"roots of a word":  {"version: 1\nsystem_roots: maybe\n", `line 2: wants true or false, has "maybe"`},

		"a credential's key":       {"version: 1\ncredentials: {k: {knid: x}}\n", `unknown key "knid" (known here: kind, certificate, key, hosts)`},
		"no credentials":           {"version: 1\ncredentials: [k]\n", "wants keys and values, has a list"},
		"an empty credential":      {"version: 1\ncredentials: {k: {}}\n", "certificate is missing"},
		"a name of a credential":   {"version: 1\ncredentials: {k/k: {kind: tls-client, certificate: /c, key: /k, hosts: [a.example]}}\n", "the name is not"},
		"another kind":             {"version: 1\ncredentials: {k: {kind: bearer, certificate: /c, key: /k, hosts: [a.example]}}\n", `kind "bearer" is none that this build knows: write tls-client`},
		"a relative key":           {"version: 1\ncredentials: {k: {kind: tls-client, certificate: /c, key: k, hosts: [a.example]}}\n", `credentials k key: "k" is not an absolute path`},
		"a credential for nothing": {"version: 1\ncredentials: {k: {kind: tls-client, certificate: /c, key: /k}}\n", "hosts: names none"},
		"a credential for many":    {"version: 1\ncredentials: {k: {kind: tls-client, certificate: /c, key: /k, hosts: ['*.example']}}\n", `"*.example" is not the name of one host`},
		"a parent's key":           {"version: 1\nparent_proxy: {adress: x}\n", `unknown key "adress" (known here: address, ca, username, password_file, addresses, bypass)`},
		"a parent without address": {"version: 1\nparent_proxy: {username: x}\n", "address is missing"},
		"a parent without port":    {"version: 1\nparent_proxy: {address: proxy.example}\n", "is not HOST:PORT"},
		"a parent with a path":     {"version: 1\nparent_proxy: {address: 'https://proxy.example:1/x'}\n", "is not HOST:PORT"},
		"a parent's CA":            {"version: 1\nparent_proxy: {address: 'proxy.example:1', ca: /ca}\n", "there is no TLS to the proxy"},
		"a parent's user":          {"version: 1\nparent_proxy: {address: 'proxy.example:1', username: x}\n", "go together"},
		"a parent's colon":         {"version: 1\nparent_proxy: {address: 'proxy.example:1', username: 'a:b', password_file: /p}\n", "a colon"},
		"a parent's range":         {"version: 1\nparent_proxy: {address: 'proxy.example:1', addresses: [10.0.0.1/8]}\n", "is not an address range"},
		"a parent's bypass":        {"version: 1\nparent_proxy: {address: 'proxy.example:1', bypass: ['a*']}\n", "is not a host name"},

		"a record that is not kept": {"version: 1\naudit: {keep: 0d}\n", "audit keep"},
		"a record of no size":       {"version: 1\naudit: {max_size: 20}\n", "audit max_size"},

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
