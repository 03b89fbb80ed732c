// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"bawn/internal/names"
	"bawn/internal/roottest"
)

// A child of this test binary gives addresses until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("RESOLVER_TEST_DIR"); dir != "" {
		day, _ := strconv.ParseInt(os.Getenv("RESOLVER_TEST_DAY"), 10, 64)
		fmt.Println("child:", giveForever(dir, day))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Days pass with each name, and files are written anew often, so that kills
// fall into that too.
func openForKills(dir string, day *int64) (*Table, error) {
	spareLines = 8
	t, err := OpenTable(dir, TableOptions{Names: 40, Now: func() time.Time { return time.Unix(*day*24*60*60, 0) }})
	if err == nil {
		err = t.Keep(map[string]string{"dev": "a-00000000000000de"})
	}
	return t, err
}

// giveForever says on stdout what each address means, once it is told: "address
// name", in one short write. Names in use keep theirs; others rest and go.
func giveForever(dir string, day int64) error {
	t, err := openForKills(dir, &day)
	if err != nil {
		return err
	}
	for ; ; day += 3 {
		for _, name := range []string{fmt.Sprintf("n%d.example", day), fmt.Sprintf("stays%d.example", rand.IntN(8))} {
			a, err := t.Synthetic("dev", names.MustParse(name))
			if err != nil {
				return err
			}
			os.Stdout.WriteString(a.String() + " " + name + "\n")
		}
	}
}

// words collects what a child says, and tells when it has begun to.
type words struct {
	buf   bytes.Buffer
	once  sync.Once
	begun chan struct{}
}

// Write takes more in.
func (w *words) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	return w.buf.Write(p)
}

// TestI13KilledAtAnyInstantNoAddressMeansAnotherName: what an agent was told
// holds, or means nothing, wherever a kill came.
func TestI13KilledAtAnyInstantNoAddressMeansAnotherName(t *testing.T) {
	rounds := roottest.Count(12, 500)
	dir := t.TempDir()
	told := map[netip.Addr]string{}
	for round := range rounds {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "RESOLVER_TEST_DIR="+dir, fmt.Sprintf("RESOLVER_TEST_DAY=%d", 1_000_000*(round+1)))
		out := &words{begun: make(chan struct{})}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if round%3 > 0 { // the others may be killed before they have begun
			<-out.begun
		}
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		cmd.Process.Kill()
		err := cmd.Wait()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%v\n%s", err, out.buf.String())
		}
		last := map[string]netip.Addr{}
		for lines := bufio.NewScanner(&out.buf); lines.Scan(); {
			var addr, name string
			if _, err := fmt.Sscan(lines.Text(), &addr, &name); err != nil {
				t.Fatalf("told %q", lines.Text())
			}
			a := netip.MustParseAddr(addr)
			if was := told[a]; was != "" && was != name {
				t.Fatalf("%s was told for %s, then for %s", a, was, name)
			}
			told[a], last[name] = name, a
		}
		holds(t, dir, told, last)
	}
	t.Logf("%d kills, %d addresses told", rounds, len(told))
	if len(told) < rounds {
		t.Error("next to nothing was told")
	}
}

// holds reads the table as the next process would.
func holds(t *testing.T, dir string, told map[netip.Addr]string, last map[string]netip.Addr) {
	t.Helper()
	day := int64(0)
	table, err := openForKills(dir, &day)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if _, err := table.files.Of("dev"); err != nil {
		t.Fatal(err)
	}
	for a, name := range told {
		if h, ok := table.Name("dev", a); ok && h.String() != name {
			t.Fatalf("%s was told for %s and stands for %s", a, name, h)
		}
	}
	missing := 0
	for name, a := range last {
		if h, ok := table.Name("dev", a); !ok || h.String() != name {
			missing++
		}
	}
	// Of the newest names none rested; only as many as the table holds are there.
	if kept := len(last) - missing; missing > 0 && kept < 39 {
		t.Fatalf("%d of the last %d names are kept", kept, len(last))
	}
}
