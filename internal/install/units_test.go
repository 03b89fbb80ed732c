// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bawn/internal/config"
	"bawn/internal/netd"
	"bawn/internal/roottest"
)

// staged writes the units of a layout whose binary is there into a directory.
func staged(t *testing.T) (dir string, names []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	l := Own(config.Paths{Root: "/"}, self)
	files, err := l.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Dir(f.Path) != l.Units {
			continue
		}
		name := filepath.Base(f.Path)
		names = append(names, name)
		if err := os.WriteFile(filepath.Join(dir, name), f.Text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 8 {
		t.Fatalf("only %v", names)
	}
	return dir, names
}

func analyze(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		roottest.Skip(t, "needs systemd-analyze")
	}
	return path
}

func TestUnitsAreWhatSystemdTakes(t *testing.T) {
	tool := analyze(t)
	dir, names := staged(t)
	args := []string{"--man=no", "verify"}
	for _, n := range names {
		args = append(args, filepath.Join(dir, n))
	}
	out, err := exec.Command(tool, args...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v:\n%s", err, out)
	}
}

var exposure = regexp.MustCompile(`Overall exposure level for (\S+): ([0-9.]+) `)

// most is the exposure that a unit may have, of 10; others may have the first.
var most = map[string]float64{"": 1.5, "bawn-netd.service": mostNetd}

func TestUnitsAreConfined(t *testing.T) {
	tool := analyze(t)
	dir, names := staged(t)
	for _, n := range names {
		if !strings.HasSuffix(n, ".service") {
			continue
		}
		out, err := exec.Command(tool, "--offline=true", "--no-pager", "security", filepath.Join(dir, n)).CombinedOutput()
		m := exposure.FindSubmatch(out)
		if err != nil || m == nil {
			t.Errorf("%s: %v:\n%s", n, err, out)
			continue
		}
		bound, own := most[n]
		if !own {
			bound = most[""]
		}
		if got, err := strconv.ParseFloat(string(m[2]), 64); err != nil || got > bound {
			t.Errorf("%s: exposure %s, at most %v is allowed", n, m[2], bound)
		}
	}
}

// TestNetdKeepsInTheUnitWhatItKeepsItself: a capability that only one of the
// two names would be missing, or granted for nothing.
func TestNetdKeepsInTheUnitWhatItKeepsItself(t *testing.T) {
	text, err := units.ReadFile("units/bawn-netd.service")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, c := range netd.Kept() {
		want = append(want, "CAP_"+strings.ToUpper(c.Name))
	}
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "CapabilityBoundingSet="); ok {
			got = strings.Fields(list)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the unit has %v, netd keeps %v", got, want)
	}
}

func TestAnotherRootIsInTheUnits(t *testing.T) {
	root := "/srv/second"
	files, err := Own(config.Paths{Root: root}, "/opt/bawn/bin/bawn").Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Path, root+"/") {
			t.Errorf("%s is not below the root", f.Path)
		}
		for line := range strings.Lines(string(f.Text)) {
			for _, path := range []string{"/usr/bin/bawn", " /run/bawn", "=/run/bawn", " /var/lib/bawn", "=/var/lib/bawn"} {
				if strings.Contains(line, path) {
					t.Errorf("%s: %s", f.Path, line)
				}
			}
			if strings.HasPrefix(line, "ExecStart=") && !strings.HasPrefix(line, "ExecStart=/opt/bawn/bin/bawn --root "+root+" ") {
				t.Errorf("%s: %s", f.Path, line)
			}
		}
	}
	for _, bad := range []string{"/srv/a b", "/srv/%n", "/srv/$HOME", "/srv/\"x"} {
		if _, err := Own(config.Paths{Root: bad}, "/usr/bin/bawn").Files(); err == nil {
			t.Errorf("root %q was taken: units cannot name it", bad)
		}
	}
}

// TestTheConfigurationToBeginWithSaysTheDefaults, as it stands and with
// everything in it put in force.
func TestTheConfigurationToBeginWithSaysTheDefaults(t *testing.T) {
	inForce := regexp.MustCompile(`(?m)^#( *[a-z_]+:)`).ReplaceAllString(string(defaultConfig), "$1")
	if inForce == string(defaultConfig) {
		t.Fatal("nothing is commented out")
	}
	for _, text := range []string{string(defaultConfig), inForce} {
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if c.Resolvers != nil && len(c.Resolvers) == 0 {
			c.Resolvers = nil
		}
		if !reflect.DeepEqual(c, config.Default()) {
			t.Errorf("got %+v, want %+v", c, config.Default())
		}
	}
}

// TestAccountsAndDirectoriesInAScratchRoot has the real tools make them.
func TestAccountsAndDirectoriesInAScratchRoot(t *testing.T) {
	roottest.Require(t)
	for _, tool := range []string{"systemd-sysusers", "systemd-tmpfiles"} {
		if _, err := exec.LookPath(tool); err != nil {
			roottest.Skip(t, "needs "+tool)
		}
	}
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Packaged().Stage(root); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"systemd-sysusers", "--root=" + root, "--dry-run", "bawn.conf"},
		{"systemd-sysusers", "--root=" + root, "bawn.conf"},
		{"systemd-tmpfiles", "--root=" + root, "--create", "bawn.conf"},
		{"systemd-tmpfiles", "--root=" + root, "--create", "bawn.conf"}, // once more changes nothing
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	for path, want := range map[string]string{
		"var/lib/bawn/admin": "drwx------", "var/lib/bawn/proxy": "drwxr-x---", "var/lib/bawn/proxy/journal": "dgrwxr-x---",
		"var/lib/bawn/agents": "drwx--x--x", "run/bawn": "drwxr-xr-x", "etc/bawn": "drwxr-xr-x",
	} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v, %v, want %s", path, info, err, want)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(text), "bawn-admin:x:") || !strings.Contains(string(text), "/usr/sbin/nologin") {
		t.Errorf("accounts: %v\n%s", err, text)
	}
}
