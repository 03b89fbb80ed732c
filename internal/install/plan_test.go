// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"bawn/internal/config"
	"bawn/internal/roottest"
)

func scratch(t *testing.T) Layout {
	t.Helper()
	return Own(config.Paths{Root: t.TempDir()}, "/usr/bin/bawn")
}

func apply(t *testing.T, p Plan) (did []string) {
	t.Helper()
	err := p.Apply(func(s Step) { did = append(did, string(s.Action)+" "+filepath.Base(s.What)) })
	if err != nil {
		t.Fatal(err)
	}
	return did
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMarks(t *testing.T) {
	text := marked([]byte("[Unit]\n"), "Advice.")
	for name, c := range map[string]struct {
		text []byte
		want state
	}{
		"as written":        {text, pristine},
		"changed":           {bytes.Replace(text, []byte("[Unit]"), []byte("[unit]"), 1), edited},
		"a line more":       {append(bytes.Clone(text), '\n'), edited},
		"cut off":           {text[:len(text)-1], edited},
		"without the mark":  {[]byte("[Unit]\n"), foreign},
		"the mark alone":    {bytes.TrimSuffix(text[:bytes.IndexByte(text, '\n')], []byte("\n")), foreign},
		"a sum that is not": {[]byte(markBefore + "xyz" + markAfter + "\n"), foreign},
		"the mark further":  {append([]byte("\n"), text...), foreign},
		"empty":             {nil, foreign},
	} {
		if got := stateOf(c.text); got != c.want {
			t.Errorf("%s: state %d, want %d", name, got, c.want)
		}
	}
}

func FuzzMark(f *testing.F) {
	f.Add([]byte("[Unit]\nDescription=x\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		m := marked(text, "Advice.")
		if stateOf(m) != pristine {
			t.Fatalf("what was marked is not pristine: %q", m)
		}
		if at < 0 {
			at = -(at + 1)
		}
		first := bytes.IndexByte(m, '\n') + 1
		if first < len(m) {
			m[first+at%(len(m)-first)] ^= 1
			if stateOf(m) != edited {
				t.Fatalf("a changed text counts as ours: %q", m)
			}
		}
	})
}

func TestInstallingTwiceChangesNothing(t *testing.T) {
	l := scratch(t)
	for _, want := range []Action{Makes, Keeps} {
		plan, err := l.plan(false)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range plan {
			if s.Action != want {
				t.Errorf("%s %s: %s, want %s", s.Action, s.What, s.Why, want)
			}
		}
		apply(t, plan)
	}
}

// TestI13WhatIsNotOursStays goes through what may stand in a file's place.
func TestI13WhatIsNotOursStays(t *testing.T) {
	mine := marked([]byte("old\n"), "Advice.")
	for name, c := range map[string]struct {
		unit       string // what is at the place of a unit
		plain      Action
		forced     Action
		keptAside  bool // by --force
		atRemoval  Action
		afterPurge bool // whether it is still there
	}{
		"nothing":              {"", Makes, Makes, false, "", false},
		"ours of another time": {string(mine), Replaces, Replaces, false, Removes, false},
		"ours and changed":     {string(mine) + "#\n", Refuses, Replaces, true, Keeps, false},
		"somebody else's":      {"[Unit]\n", Refuses, Replaces, true, Keeps, true},
	} {
		l := scratch(t)
		path := filepath.Join(l.Units, Target)
		if c.unit != "" {
			write(t, path, c.unit)
		}
		if plan, err := l.plan(false); err != nil || actionOn(plan, path) != c.plain {
			t.Errorf("%s: planned %q, %v, want %q", name, actionOn(plan, path), err, c.plain)
		} else if c.plain == Refuses && plan.Apply(func(Step) { t.Errorf("%s: something was done", name) }) == nil {
			t.Errorf("%s: a refused plan was applied", name)
		}
		if c.unit != "" {
			checkRemoval(t, name, l, path, c.atRemoval, c.afterPurge, c.unit)
			write(t, path, c.unit)
		}
		plan, err := l.plan(true)
		if err != nil || actionOn(plan, path) != c.forced {
			t.Errorf("%s: forced %q, %v, want %q", name, actionOn(plan, path), err, c.forced)
		}
		apply(t, plan)
		aside, err := os.ReadFile(path + saved)
		if (err == nil) != c.keptAside || c.keptAside && string(aside) != c.unit {
			t.Errorf("%s: saved %q, %v", name, aside, err)
		}
	}
}

func checkRemoval(t *testing.T, name string, l Layout, path string, want Action, there bool, text string) {
	t.Helper()
	files, err := l.Files()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := removals(files, Removal{})
	if err != nil || actionOn(plan, path) != want {
		t.Errorf("%s: removal %q, %v, want %q", name, actionOn(plan, path), err, want)
	}
	plan, err = removals(files, Removal{Purge: true})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, plan)
	if have, err := os.ReadFile(path); (err == nil) != there || there && string(have) != text {
		t.Errorf("%s: after a purge: %q, %v", name, have, err)
	}
}

func actionOn(p Plan, what string) Action {
	for _, s := range p {
		if s.What == what {
			return s.Action
		}
	}
	return ""
}

func TestTheOperatorsConfigurationIsKept(t *testing.T) {
	l := scratch(t)
	file := l.Paths.ConfigFile()
	for _, text := range []string{"version: 1\n", string(marked(defaultConfig, "Advice.")) + "placement: uid\n"} {
		write(t, file, text)
		for _, force := range []bool{false, true} {
			plan, err := l.plan(force)
			if err != nil {
				t.Fatal(err)
			}
			apply(t, plan)
			if have, _ := os.ReadFile(file); string(have) != text {
				t.Errorf("force %v: the configuration became %q", force, have)
			}
		}
	}
	files, _ := l.Files()
	plan, err := removals(files, Removal{})
	if err != nil || actionOn(plan, file) != Keeps {
		t.Errorf("uninstall: %q, %v", actionOn(plan, file), err)
	}
}

func TestALinkInTheWayIsRefused(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		l := scratch(t)
		path := filepath.Join(l.Units, Target)
		if err := os.MkdirAll(l.Units, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := place(path); err != nil {
			t.Fatal(err)
		}
		plan, err := l.plan(true)
		if err != nil || actionOn(plan, path) != Refuses {
			t.Errorf("%s: %q, %v", name, actionOn(plan, path), err)
		}
		files, _ := l.Files()
		if plan, err := removals(files, Removal{Purge: true}); err != nil || actionOn(plan, path) != Keeps {
			t.Errorf("%s at removal: %q, %v", name, actionOn(plan, path), err)
		}
	}
}

func TestAgentsAccountsAreKnownByTheirLine(t *testing.T) {
	const good = "bawn-dev:x:1900000001:1900000001:Bawn agent dev:/home/dev:/usr/sbin/nologin"
	if account, agent, ok := agentAccount(good); !ok || account != "bawn-dev" || agent != "dev" {
		t.Errorf("%q, %q, %v", account, agent, ok)
	}
	for _, change := range [][2]string{
		{"bawn-dev:", "dev:"}, {"1900000001", "1001"}, {":1900000001:B", ":100:B"}, {"agent dev", "agent x"}, {"/home/dev", "/root"}, {":/usr", ":x:/usr"},
	} {
		if line := strings.Replace(good, change[0], change[1], 1); line != good {
			if _, _, ok := agentAccount(line); ok {
				t.Errorf("taken for an agent's: %s", line)
			}
		}
	}
}

// TestThePlanSaysWhatSystemdIsToldAndWhatItCannotSee.
func TestThePlanSaysWhatSystemdIsToldAndWhatItCannotSee(t *testing.T) {
	for _, c := range []struct {
		root   string
		booted bool
		action Action
		why    string
	}{{"/", true, Makes, ""}, {"/", false, Keeps, "systemd does not run here"}, {"/srv/x", true, Keeps, "systemctl link"}} {
		steps := systemdSteps(t.Context(), c.root, c.booted)
		for i, call := range []string{"systemctl daemon-reload", "systemctl enable bawn.target"} {
			if s := steps[i]; s.Action != c.action || !strings.Contains(s.What, call) || !strings.Contains(s.Why, c.why) {
				t.Errorf("%+v: %+v", c, s)
			}
		}
	}
	roottest.Require(t)
	p := config.Paths{Root: t.TempDir()}
	if err := os.MkdirAll(p.Journal("proxy"), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir := p.Lib(); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread() // and its thread ends with the test
	syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
	plan := accountSteps(t.Context(), p)
	syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0)
	for _, s := range plan {
		if s.What == "directory "+p.Journal("proxy") && s.Action != Unseen {
			t.Errorf("%s %s: %s", s.Action, s.What, s.Why)
		}
	}
}
