// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/resolver"
)

func open(t testing.TB, dir string, most int) *resolver.Table {
	t.Helper()
	table, err := resolver.OpenTable(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

func synthetic(t *testing.T, table *resolver.Table, agent, name string) netip.Addr {
	t.Helper()
	a, err := table.Synthetic(agent, names.MustParse(name))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestTableAddressMeansItsNameForEver: an address leads back to its name, the
// name keeps its address, and both outlive the process.
func TestTableAddressMeansItsNameForEver(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, 0)
	given := map[string]netip.Addr{}
	for i := range 600 { // beyond two blocks of addresses
		name := fmt.Sprintf("n%d.example", i)
		given[name] = synthetic(t, table, "dev", name)
	}
	check := func(table *resolver.Table) {
		t.Helper()
		for name, a := range given {
			if h, ok := table.Name("dev", a); !ok || h.String() != name {
				t.Fatalf("%s stands for %q, want %s", a, h, name)
			}
			if again := synthetic(t, table, "dev", name); again != a {
				t.Fatalf("%s has %s, then %s", name, a, again)
			}
		}
	}
	check(table)
	table.Close()
	reopened := open(t, dir, 0)
	check(reopened)
	if a := synthetic(t, reopened, "dev", "new.example"); len(given) != 600 || a == given["n599.example"] {
		t.Errorf("a new name has %s", a)
	}
}

func TestTableAddresses(t *testing.T) {
	table := open(t, t.TempDir(), 0)
	own, pool := netip.MustParsePrefix("198.18.0.0/24"), netip.MustParsePrefix("198.18.0.0/15")
	seen := map[netip.Addr]bool{}
	for i := range 300 {
		a := synthetic(t, table, "dev", fmt.Sprintf("n%d.example", i))
		if last := a.As4()[3]; seen[a] || !pool.Contains(a) || own.Contains(a) || last == 0 || last == 255 {
			t.Fatalf("name %d has %s", i, a)
		}
		seen[a] = true
	}
	if a := synthetic(t, table, "dev", "n0.example"); a.String() != "198.18.1.1" {
		t.Errorf("the first address is %s", a)
	}
}

func TestTableOfOneAgentIsItsOwn(t *testing.T) {
	table := open(t, t.TempDir(), 0)
	a := synthetic(t, table, "dev", "ok.example")
	if h, ok := table.Name("other", a); ok {
		t.Errorf("another agent sees %q", h)
	}
	if b := synthetic(t, table, "other", "elsewhere.example"); b != a {
		t.Errorf("tables are not apart: %s, %s", a, b)
	}
	if h, ok := table.Name("dev", a); !ok || h.String() != "ok.example" {
		t.Errorf("%s stands for %q", a, h)
	}
}

func TestTableKnowsNoOtherAddress(t *testing.T) {
	table := open(t, t.TempDir(), 0)
	synthetic(t, table, "dev", "ok.example")
	for _, s := range []string{
		"198.18.0.1", "198.18.0.2", "198.18.0.53", "198.18.1.0", "198.18.1.2", "198.18.1.255", "198.19.255.254", "198.19.255.255",
		"198.17.1.1", "198.20.1.1", "199.18.1.1", "1.1.1.1", "0.0.0.0", "::", "::ffff:198.18.1.1", "2001:db8::1",
	} {
		if h, ok := table.Name("dev", netip.MustParseAddr(s)); ok {
			t.Errorf("%s stands for %q", s, h)
		}
	}
	if _, ok := table.Name("dev", netip.Addr{}); ok {
		t.Error("no address stands for a name")
	}
}

func TestTableIsBounded(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, 3)
	for i := range 3 {
		synthetic(t, table, "dev", fmt.Sprintf("n%d.example", i))
	}
	for range 2 {
		a, err := table.Synthetic("dev", names.MustParse("n3.example"))
		if e, ok := errors.AsType[*resolver.Error](err); !ok || e.Code != codes.BudgetExceeded {
			t.Fatalf("%s, %v: want budget_exceeded", a, err)
		}
		synthetic(t, table, "dev", "n0.example")   // names that are there go on
		synthetic(t, table, "other", "n3.example") // and so do other agents
		table.Close()
		table = open(t, dir, 3)
	}
	for _, most := range []int{-1, 129795} {
		if table, err := resolver.OpenTable(t.TempDir(), most); err == nil {
			table.Close()
			t.Errorf("a table of %d names", most)
		}
	}
}

// TestI13TornLine: a line that a crash tore was never answered. It is dropped,
// wherever the crash came, and every whole line is kept.
func TestI13TornLine(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, 0)
	for i := range 3 {
		synthetic(t, table, "dev", fmt.Sprintf("n%d.example", i))
	}
	table.Close()
	path := filepath.Join(dir, "dev.names")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		kept := bytes.Count(whole[:size], []byte("\n"))
		table := open(t, dir, 0)
		for i := range kept {
			if h, ok := table.Name("dev", netip.MustParseAddr(fmt.Sprintf("198.18.1.%d", i+1))); !ok || h.String() != fmt.Sprintf("n%d.example", i) {
				t.Fatalf("cut at %d: place %d is %q", size, i, h)
			}
		}
		if a, want := synthetic(t, table, "dev", "new.example"), fmt.Sprintf("198.18.1.%d", kept+1); a.String() != want {
			t.Fatalf("cut at %d: the next name has %s, want %s", size, a, want)
		}
		table.Close()
		again := open(t, dir, 0)
		if h, ok := again.Name("dev", netip.MustParseAddr(fmt.Sprintf("198.18.1.%d", kept+1))); !ok || h.String() != "new.example" {
			t.Fatalf("cut at %d: read back as %q", size, h)
		}
		again.Close()
	}
}

// TestTableRefusesBrokenFile: a file that is wrong in the middle has lost names.
// The agent gets no address until somebody has looked at it.
func TestTableRefusesBrokenFile(t *testing.T) {
	for name, text := range map[string]string{
		"an address is missing": "198.18.1.1 a.example\n198.18.1.3 c.example\n",
		"other order":           "198.18.1.2 a.example\n198.18.1.1 b.example\n",
		"a name twice":          "198.18.1.1 a.example\n198.18.1.2 a.example\n",
		"not canonical":         "198.18.1.1 A.example\n",
		"no host name":          "198.18.1.1 a_b.example\n",
		"no name":               "198.18.1.1\n",
		"empty line":            "198.18.1.1 a.example\n\n",
		"zeros":                 "\x00\x00\x00\x00\n",
		"carriage return":       "198.18.1.1 a.example\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "dev.names")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			table := open(t, dir, 0)
			if a, err := table.Synthetic("dev", names.MustParse("new.example")); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, %v", a, err)
			}
			if h, ok := table.Name("dev", netip.MustParseAddr("198.18.1.1")); ok {
				t.Errorf("198.18.1.1 stands for %q", h)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != text {
				t.Errorf("the file was changed to %q (%v)", got, err)
			}
		})
	}
}

// TestTableThatCannotBeWritten: a name that is not on disk has no address, and
// once the disk works again the names go on where they were.
func TestTableThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, 0)
	synthetic(t, table, "dev", "a.example")
	path, aside := filepath.Join(dir, "dev.names"), filepath.Join(dir, "aside")
	if err := errors.Join(os.Rename(path, aside), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if a, err := table.Synthetic("dev", names.MustParse("b.example")); err == nil {
		t.Errorf("b.example has %s, which is on no disk", a)
	}
	if h, ok := table.Name("dev", netip.MustParseAddr("198.18.1.2")); ok {
		t.Errorf("198.18.1.2 stands for %q", h)
	}
	if err := errors.Join(os.Remove(path), os.Rename(aside, path)); err != nil {
		t.Fatal(err)
	}
	if a := synthetic(t, table, "dev", "b.example"); a.String() != "198.18.1.2" {
		t.Errorf("b.example has %s", a)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "198.18.1.1 a.example\n198.18.1.2 b.example\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTableTakesAgentNamesOnly(t *testing.T) {
	table := open(t, t.TempDir(), 0)
	for _, agent := range []string{"", "../x", "a/b", "lock ", ".", "A", "a.names"} {
		if a, err := table.Synthetic(agent, names.MustParse("ok.example")); err == nil {
			t.Errorf("agent %q has %s", agent, a)
		}
		if _, ok := table.Name(agent, netip.MustParseAddr("198.18.1.1")); ok {
			t.Errorf("agent %q has a name", agent)
		}
	}
	if a, err := table.Synthetic("dev", names.Host{}); err == nil {
		t.Errorf("no name has %s", a)
	}
}

func TestTableIsHeldByOneProcess(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, 0)
	if second, err := resolver.OpenTable(dir, 0); err == nil {
		second.Close()
		t.Fatal("opened twice")
	}
	first.Close()
	open(t, dir, 0)
	if table, err := resolver.OpenTable(filepath.Join(dir, "missing"), 0); err == nil {
		table.Close()
		t.Error("opened a folder that is not there")
	}
}

func TestTableConcurrently(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, 0)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				h := names.MustParse(fmt.Sprintf("n%d.example", (i+g)%20))
				a, err := table.Synthetic("dev", h)
				if err != nil {
					t.Error(err)
					return
				}
				if back, ok := table.Name("dev", a); !ok || back != h {
					t.Errorf("%s stands for %q, want %s", a, back, h)
				}
			}
		})
	}
	wg.Wait()
	if data, err := os.ReadFile(filepath.Join(dir, "dev.names")); err != nil || bytes.Count(data, []byte("\n")) != 20 {
		t.Errorf("%q, %v", data, err)
	}
}

// FuzzTableFile: whatever the file holds, the table is either refused or is
// exactly the whole lines of the file.
func FuzzTableFile(f *testing.F) {
	f.Add([]byte("198.18.1.1 a.example\n198.18.1.2 b.example\n198.18"))
	f.Add([]byte("198.18.1.1 a.example\n198.18.1.2 a.example\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "dev.names")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		table := open(t, dir, 0)
		a, err := table.Synthetic("dev", names.MustParse("fuzz.example"))
		if err != nil {
			return
		}
		var b strings.Builder
		for i := range 10000 {
			addr := netip.AddrFrom4([4]byte{198, 18, byte(1 + i/254), byte(1 + i%254)})
			h, ok := table.Name("dev", addr)
			if !ok {
				break
			}
			fmt.Fprintf(&b, "%s %s\n", addr, h)
		}
		whole := string(data[:bytes.LastIndexByte(data, '\n')+1])
		if added := fmt.Sprintf("%s fuzz.example\n", a); b.String() != whole && b.String() != whole+added {
			t.Fatalf("file %q reads as %q", data, b.String())
		}
	})
}
