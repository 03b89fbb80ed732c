// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/resolver"
)

// registered are the agents of these tests.
var registered = map[string]string{"dev": "a-00000000000000de", "other": "a-0000000000000002"}

// fileOf is the file of agent dev in a folder.
func fileOf(dir string) string { return filepath.Join(dir, "dev."+registered["dev"]+".names") }

// today is the day on which these tests run, unless they say another.
const today = 20513

func onDay(n int64) func() time.Time {
	return func() time.Time { return time.Unix(n*24*60*60, 0) }
}

func open(t testing.TB, dir string, most int) *resolver.Table {
	t.Helper()
	return openOn(t, dir, most, onDay(today))
}

func openOn(t testing.TB, dir string, most int, now func() time.Time) *resolver.Table {
	t.Helper()
	table, err := resolver.OpenTable(dir, resolver.TableOptions{Names: most, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	if err := table.Keep(registered); err != nil {
		t.Fatal(err)
	}
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
		if table, err := resolver.OpenTable(t.TempDir(), resolver.TableOptions{Names: most}); err == nil {
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
	path := fileOf(dir)
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
		"an address is missing":  "198.18.1.1 a.example 1\n198.18.1.3 c.example 1\n",
		"other order":            "198.18.1.2 a.example 1\n198.18.1.1 b.example 1\n",
		"a name twice":           "198.18.1.1 a.example 1\n198.18.1.2 a.example 1\n",
		"an address twice":       "198.18.1.1 a.example 1\n198.18.1.1 b.example 1\n",
		"not canonical":          "198.18.1.1 A.example 1\n",
		"no host name":           "198.18.1.1 a_b.example 1\n",
		"no name":                "198.18.1.1 1\n",
		"no day":                 "198.18.1.1 a.example\n",
		"not a day":              "198.18.1.1 a.example -1\n",
		"another spelling":       "198.18.1.1 a.example 01\n",
		"address out of range":   "198.18.0.1 a.example 1\n",
		"empty line":             "198.18.1.1 a.example 1\n\n",
		"zeros":                  "\x00\x00\x00\x00\n",
		"carriage return":        "198.18.1.1 a.example 1\r\n",
		"forgotten before given": "198.18.1.1 - 1\n",
		"forgotten twice":        "198.18.1.1 a.example 1\n198.18.1.1 - 1\n198.18.1.1 - 1\n",
		"out of turn":            "198.18.1.1 a.example 1\n198.18.1.1 - 1\n198.18.1.1 b.example 1\n",
		"kept, cut short":        "kept 2 after 198.18.1.2\n198.18.1.1 a.example 1\n",
		"kept, twice":            "kept 2 after 198.18.1.2\n198.18.1.1 a.example 1\n198.18.1.2 a.example 1\n",
		"kept, and forgotten":    "kept 2 after 198.18.1.2\n198.18.1.1 a.example 1\n198.18.1.1 - 1\n",
		"kept, not first":        "198.18.1.1 a.example 1\nkept 1 after 198.18.1.1\n",
		"kept, no number":        "kept x after 198.18.1.1\n",
		"kept, no address":       "kept 1 after 198.18.0.1\n198.18.1.1 a.example 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := fileOf(dir)
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
	path, aside := fileOf(dir), filepath.Join(dir, "aside")
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
	if got, err := os.ReadFile(path); err != nil || string(got) != "198.18.1.1 a.example 20513\n198.18.1.2 b.example 20513\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTableTakesAgentNamesOnly(t *testing.T) {
	table := open(t, t.TempDir(), 0)
	for _, agent := range []string{"", "../x", "a/b", "lock ", ".", "A", "a.names", "nobody"} {
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
	if second, err := resolver.OpenTable(dir, resolver.TableOptions{}); err == nil {
		second.Close()
		t.Fatal("opened twice")
	}
	first.Close()
	open(t, dir, 0)
	if table, err := resolver.OpenTable(filepath.Join(dir, "missing"), resolver.TableOptions{}); err == nil {
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
	if data, err := os.ReadFile(fileOf(dir)); err != nil || bytes.Count(data, []byte("\n")) != 20 {
		t.Errorf("%q, %v", data, err)
	}
}

// TestTableOfAnAgentThatIsMadeAgain: an agent that is removed and made again
// under its name begins with nothing, and whatever still uses the old one's
// table gets nothing from it.
func TestTableOfAnAgentThatIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, 0)
	old := synthetic(t, table, "dev", "secret.example")
	kept := synthetic(t, table, "other", "other.example")
	if err := table.Keep(map[string]string{"dev": "a-00000000000000ff", "other": registered["other"]}); err != nil {
		t.Fatal(err)
	}
	if h, ok := table.Name("dev", old); ok {
		t.Errorf("the new agent's %s stands for %q", old, h)
	}
	if _, err := os.Stat(fileOf(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old table: %v", err)
	}
	if h, ok := table.Name("other", kept); !ok || h.String() != "other.example" {
		t.Errorf("another agent's %s stands for %q", kept, h)
	}
	if err := table.Keep(map[string]string{"other": registered["other"]}); err != nil {
		t.Fatal(err)
	}
	if a, err := table.Synthetic("dev", names.MustParse("x.example")); err == nil {
		t.Errorf("an agent that is gone has %s", a)
	}
}

// TestTableIsNobodysBeforeKeep: who is registered is not guessed.
func TestTableIsNobodysBeforeKeep(t *testing.T) {
	table, err := resolver.OpenTable(t.TempDir(), resolver.TableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if a, err := table.Synthetic("dev", names.MustParse("x.example")); err == nil {
		t.Errorf("%s", a)
	}
}

// A clock can be set.
type clock struct{ day int64 }

func (c *clock) now() time.Time { return time.Unix(c.day*24*60*60+3600, 0) }

// TestTableForgetsWhatRested: a full table forgets the name that has rested for
// longest, after sixty days and not before; its address then means nothing until
// its turn comes round.
func TestTableForgetsWhatRested(t *testing.T) {
	dir, c := t.TempDir(), &clock{100}
	table := openOn(t, dir, 3, c.now)
	reopen := func() {
		table.Close()
		table = openOn(t, dir, 3, c.now)
	}
	a := synthetic(t, table, "dev", "a.example")
	b := synthetic(t, table, "dev", "b.example")
	synthetic(t, table, "dev", "c.example")
	c.day = 120
	synthetic(t, table, "dev", "a.example") // asked for again
	c.day = 130
	table.Name("dev", b) // and connected to
	reopen()

	c.day = 159 // c.example rests since 100
	if got, err := table.Synthetic("dev", names.MustParse("d.example")); err == nil {
		t.Fatalf("%s was given after 59 days", got)
	} else if e, ok := errors.AsType[*resolver.Error](err); !ok || e.Code != codes.BudgetExceeded {
		t.Fatal(err)
	}
	c.day = 160
	if d := synthetic(t, table, "dev", "d.example"); d.String() != "198.18.1.4" {
		t.Errorf("d.example has %s", d)
	}
	for range 2 {
		if h, ok := table.Name("dev", netip.MustParseAddr("198.18.1.3")); ok {
			t.Errorf("the forgotten address stands for %q", h)
		}
		if a2, b2 := synthetic(t, table, "dev", "a.example"), synthetic(t, table, "dev", "b.example"); a2 != a || b2 != b {
			t.Errorf("a.example has %s, b.example %s", a2, b2)
		}
		if got, err := table.Synthetic("dev", names.MustParse("c.example")); err == nil {
			t.Errorf("c.example has %s in a full table", got)
		}
		reopen()
	}
	c.day = 1000
	if got := synthetic(t, table, "dev", "c.example"); got.String() != "198.18.1.5" {
		t.Errorf("c.example came back with %s", got)
	}
}

// TestTableAddressesGoRound: an address comes back last of all.
func TestTableAddressesGoRound(t *testing.T) {
	dir, c := t.TempDir(), &clock{100}
	text := "kept 2 after 198.19.255.253\n198.18.1.1 first.example 100\n198.19.255.253 a.example 100\n"
	if err := os.WriteFile(fileOf(dir), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := openOn(t, dir, 3, c.now)
	for i, want := range []string{"198.19.255.254", "198.18.1.2"} {
		if got := synthetic(t, table, "dev", fmt.Sprintf("n%d.example", i)); got.String() != want {
			t.Errorf("n%d.example has %s, want %s", i, got, want)
		}
		c.day += 61
		table.Name("dev", netip.MustParseAddr("198.18.1.1")) // in use, and so passed over
	}
	table.Close()
	table = openOn(t, dir, 3, c.now)
	if h, ok := table.Name("dev", netip.MustParseAddr("198.18.1.1")); !ok || h.String() != "first.example" {
		t.Errorf("198.18.1.1 stands for %q", h)
	}
}

// TestTableFileIsWrittenAnew: what was overtaken goes out of the file, and
// nothing else does.
func TestTableFileIsWrittenAnew(t *testing.T) {
	dir, c := t.TempDir(), &clock{1}
	table := openOn(t, dir, 0, c.now)
	a, b := synthetic(t, table, "dev", "a.example"), synthetic(t, table, "dev", "b.example")
	most := 0
	for c.day = range 10000 {
		table.Name("dev", a)
		if text, err := os.ReadFile(fileOf(dir)); err != nil {
			t.Fatal(err)
		} else if n := bytes.Count(text, []byte("\n")); n >= most {
			most = n
		} else if !bytes.HasPrefix(text, []byte("kept 2 after 198.18.1.2\n")) {
			t.Fatalf("%.100q", text)
		} else {
			break
		}
	}
	if c.day > 9000 {
		t.Errorf("%d lines for two names", most)
	}
	next := synthetic(t, table, "dev", "c.example")
	table.Close()
	table = openOn(t, dir, 0, c.now)
	for name, want := range map[string]netip.Addr{"a.example": a, "b.example": b, "c.example": next} {
		if got := synthetic(t, table, "dev", name); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
}

// FuzzTableFile: whatever the file holds, the table is either refused or reads
// back as what it was, with one name for an address and one address for a name.
func FuzzTableFile(f *testing.F) {
	f.Add([]byte("198.18.1.1 a.example 1\n198.18.1.2 b.example 1\n198.18"))
	f.Add([]byte("198.18.1.1 a.example 1\n198.18.1.2 a.example 1\n"))
	f.Add([]byte("198.18.1.1 a.example 1\n198.18.1.1 - 2\n198.18.1.2 b.example 2\n198.18.1.2 b.example 3\n"))
	f.Add([]byte("kept 1 after 198.18.1.9\n198.18.1.3 a.example 1\n198.18.1.10 b.example 2\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := fileOf(dir)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		table := open(t, dir, 0)
		a, err := table.Synthetic("dev", names.MustParse("fuzz.example"))
		if err != nil {
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("refused, and changed to %q (%v)", got, err)
			}
			return
		}
		before := allNames(t, table, data)
		if before["fuzz.example"] != a {
			t.Fatalf("fuzz.example has %s, then %s", a, before["fuzz.example"])
		}
		table.Close()
		if after := allNames(t, open(t, dir, 0), data); !maps.Equal(before, after) {
			t.Fatalf("file %q: %v, and read again %v", data, before, after)
		}
	})
}

// allNames lists what the addresses stand for that occur in the text of a file,
// and the first few beside.
func allNames(t *testing.T, table *resolver.Table, text []byte) map[string]netip.Addr {
	t.Helper()
	found := map[string]netip.Addr{}
	look := func(a netip.Addr) {
		h, ok := table.Name("dev", a)
		if !ok {
			return
		}
		if b, twice := found[h.String()]; twice && a != b {
			t.Fatalf("%s has %s and %s", h, a, b)
		}
		found[h.String()] = a
	}
	for word := range strings.FieldsSeq(string(text)) {
		a, err := netip.ParseAddr(word)
		for range 8 { // and what may have been given after it
			if err == nil && a.Is4() {
				look(a)
				a = a.Next()
			}
		}
	}
	for i := range 600 {
		look(netip.AddrFrom4([4]byte{198, 18, byte(1 + i/254), byte(1 + i%254)}))
	}
	if a, err := table.Synthetic("dev", names.MustParse("fuzz.example")); err == nil {
		look(a)
	}
	return found
}
