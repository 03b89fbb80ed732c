// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package agentfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bawn/internal/agentfile"
)

const one, two = "a-0000000000000001", "a-0000000000000002"

// notes is the least that a folder can keep.
type notes struct {
	*agentfile.Lines
	first []string
}

func read(path string) (*notes, error) {
	l, text, err := agentfile.ReadLines(path)
	return &notes{l, text}, err
}

func open(t *testing.T, dir string, agents map[string]string) *agentfile.Folder[*notes] {
	t.Helper()
	f, err := agentfile.Open(dir, "notes", read)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if agents != nil {
		keep(t, f, agents)
	}
	return f
}

func keep(t *testing.T, f *agentfile.Folder[*notes], agents map[string]string) {
	t.Helper()
	if err := f.Keep(agents); err != nil {
		t.Fatal(err)
	}
}

func of(t *testing.T, f *agentfile.Folder[*notes], agent string) *notes {
	t.Helper()
	n, err := f.Of(agent)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ls(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestFilesBelongToTheRegistration: an agent that is made again under its old
// name has nothing of the one before, whether or not anybody looked in between.
func TestFilesBelongToTheRegistration(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, map[string]string{"dev": one, "other": two})
	old := of(t, f, "dev")
	for _, n := range []*notes{old, of(t, f, "other")} {
		if err := n.Append("x\n", true); err != nil {
			t.Fatal(err)
		}
	}
	keep(t, f, map[string]string{"dev": "a-0000000000000003", "other": two})
	if n := of(t, f, "dev"); len(n.first) != 0 || n == old {
		t.Errorf("it has %v", n.first)
	}
	if of(t, f, "other").Count() != 1 {
		t.Error("and so has the other agent's")
	}
	// Whoever is still at work with the old one's cannot bring it back.
	if err := old.Append("y\n", true); err == nil {
		t.Error("a line was added for an agent that is gone")
	}
	if err := old.Replace("y\n"); err == nil {
		t.Error("the lines of an agent that is gone were replaced")
	}
	if got := ls(t, dir); !slices.Equal(got, []string{"lock", "other." + two + ".notes"}) {
		t.Errorf("files: %v", got)
	}
	f.Close()
	if n := of(t, open(t, dir, map[string]string{"dev": one, "other": two}), "other"); !slices.Equal(n.first, []string{"x"}) {
		t.Errorf("after another start the other has %v", n.first)
	}
}

// TestNobodyIsKnownAtFirst: before anybody has said which agents there are, none
// has a file, and none is removed.
func TestNobodyIsKnownAtFirst(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "dev."+one+".notes")
	if err := os.WriteFile(name, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir, nil)
	if n, err := f.Of("dev"); err == nil {
		t.Errorf("%v", n)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
	for name, id := range map[string]string{"../x": one, "A": one, "dev": "../../a", "dev2": "", "dev3": "a-00000000000000001"} {
		if err := f.Keep(map[string]string{name: id}); err == nil {
			t.Errorf("agent %q with id %q is kept", name, id)
		}
		if n, err := f.Of(name); err == nil {
			t.Errorf("agent %q with id %q has %v", name, id, n)
		}
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, nil)
	if again, err := agentfile.Open(dir, "notes", read); err == nil {
		again.Close()
		t.Error("opened twice")
	}
	f.Close()
	open(t, dir, nil)
	if f, err := agentfile.Open(filepath.Join(dir, "missing"), "notes", read); err == nil {
		f.Close()
		t.Error("opened a directory that is not there")
	}
}

// TestI13TornLine: whole lines are kept wherever a crash came, and what it tore
// is written over.
func TestI13TornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	const whole = "one\ntwo\nthree\n"
	for size := range len(whole) + 1 {
		if err := os.WriteFile(path, []byte(whole[:size]), 0o600); err != nil {
			t.Fatal(err)
		}
		l, got, err := agentfile.ReadLines(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Append("next\n", size%2 == 0); err != nil {
			t.Fatal(err)
		}
		want := append(slices.Clone(got), "next")
		_, again, err := agentfile.ReadLines(path)
		if err != nil || !slices.Equal(again, want) || len(got) != strings.Count(whole[:size], "\n") || l.Count() != len(want) {
			t.Errorf("cut at %d: %v, then %v (%v)", size, got, again, err)
		}
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	l, _, err := agentfile.ReadLines(path)
	if err := errors.Join(err, l.Append("a\nb\n", true), l.Replace("c\n"), l.Append("d\n", true)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "c\nd\n" || l.Count() != 2 {
		t.Errorf("%q, %d lines, %v", got, l.Count(), err)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

// TestLinesThatCannotBeWritten: nothing is added, and once the disk works again
// the lines go on where they were.
func TestLinesThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path, aside := filepath.Join(dir, "x"), filepath.Join(dir, "aside")
	l, _, err := agentfile.ReadLines(path)
	if err := errors.Join(err, l.Append("a\n", true), os.Rename(path, aside), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if l.Append("b\n", true) == nil || l.Replace("c\n") == nil || l.Count() != 1 {
		t.Errorf("%d lines on no disk", l.Count())
	}
	if err := errors.Join(os.Remove(path), os.Rename(aside, path), l.Append("b\n", true)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "a\nb\n" {
		t.Errorf("%q, %v", got, err)
	}
}
