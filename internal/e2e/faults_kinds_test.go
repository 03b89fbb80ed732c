// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"bawn/internal/world"
)

// faults is all that can happen.
var faults = []fault{
	{"proxy killed", killed("proxy")},
	{"admin killed", killed("admin")},
	{"netd killed", killed("netd")},
	{"everything killed", everythingKilled},
	{"proxy stopped", stopped("proxy")},
	{"admin stopped", stopped("admin")},
	{"netd stopped", stopped("netd")},
	{"the proxy's disk full", diskFull("/var/lib/bawn/proxy")},
	{"admin's disk full", diskFull("/var/lib/bawn/admin")},
	{"the proxy's disk read-only", readOnly("proxy")},
	{"admin's disk read-only", readOnly("admin")},
	{"the journal's end torn", journalTorn},
	{"the index damaged", indexDamaged},
	{"the index gone", indexGone},
	{"admin's database damaged", databaseDamaged},
	{"the resolver silent", resolverSilent},
	{"the resolver lies", resolverLies},
	{"no descriptors left for the proxy", noDescriptors("proxy")},
	{"no descriptors left for admin", noDescriptors("admin")},
	{"no descriptors left for netd", noDescriptors("netd")},
	{"the clock jumps on", clockJumps(1)},
	{"the clock jumps back", clockJumps(-1)},
	{"the journal damaged", journalDamaged}, // the last, and for good: what is proven before is proven without it
}

func nothing() {}

func killed(process string) func(*testing.T, *faulty, *rand.Rand) func() {
	return func(t *testing.T, f *faulty, _ *rand.Rand) func() {
		f.strike(t, process, "KILL")
		return nothing
	}
}

// strike signals a process, which a fault before may have ended just now.
func (f *faulty) strike(t *testing.T, process, signal string) {
	t.Helper()
	eventually(t, process+" is there", func() bool {
		pid, err := f.Process(t.Context(), process)
		return err == nil && f.root(t, fmt.Sprintf("kill -%s %d", signal, pid)).status == 0
	})
}

// everythingKilled is a host that lost its power, as far as Bawn can tell: the
// one start that Bawn does not do by itself.
func everythingKilled(t *testing.T, f *faulty, _ *rand.Rand) func() {
	if err := f.Kill(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := f.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func stopped(process string) func(*testing.T, *faulty, *rand.Rand) func() {
	return func(t *testing.T, f *faulty, _ *rand.Rand) func() {
		f.strike(t, process, "STOP")
		return func() { f.strike(t, process, "CONT") }
	}
}

func diskFull(dir string) func(*testing.T, *faulty, *rand.Rand) func() {
	return func(t *testing.T, f *faulty, _ *rand.Rand) func() {
		f.root(t, "dd if=/dev/zero of="+dir+"/filler bs=64k 2>/dev/null; dd if=/dev/zero of="+dir+"/filler2 bs=1 count=100000 2>/dev/null; true")
		return func() { f.root(t, "rm -f "+dir+"/filler "+dir+"/filler2") }
	}
}

// readOnly makes the disk of a process read-only, which the kernel does only
// when no file on it is open for writing: while the process is between death and
// its next start.
func readOnly(process string) func(*testing.T, *faulty, *rand.Rand) func() {
	dir := "/var/lib/bawn/" + process
	return func(t *testing.T, f *faulty, _ *rand.Rand) func() {
		f.between(t, process, "mount -o remount,ro "+dir)
		return func() { f.root(t, "mount -o remount,rw "+dir) }
	}
}

// between runs a line as root while a process is between death and its next
// start.
func (f *faulty) between(t *testing.T, process, line string) {
	t.Helper()
	if err := f.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Resume(); err != nil {
			t.Error(err)
		}
	}()
	kill := "true" // it may be between them already
	if pid, err := f.Process(t.Context(), process); err == nil {
		kill = fmt.Sprintf("kill -KILL %d", pid)
	}
	// Its files are closed a moment after that, when its last thread has ended.
	r := f.root(t, fmt.Sprintf("%s; for i in $(seq 200); do said=$({ %s; } 2>&1) && exit 0; sleep 0.01; done; echo $said; exit 1", kill, line))
	if r.status != 0 {
		t.Fatalf("%s: %s%s", line, r.out, r.err)
	}
}

// journalDamaged changes an octet of what is written already, and was looked at,
// to one that no record has.
func journalDamaged(t *testing.T, f *faulty, r *rand.Rand) func() {
	f.damaged = true
	for name, size := range f.read {
		if size == 0 {
			continue
		}
		at := r.Int64N(size)
		f.root(t, fmt.Sprintf("printf '\\%03o' | dd of=%s/%s bs=1 seek=%d conv=notrunc 2>/dev/null", 1+r.IntN(8), journalDir, name, at))
	}
	if r.IntN(2) == 0 {
		f.strike(t, "proxy", "KILL")
	}
	return nothing
}

// journalTorn leaves behind what a crash in the midst of a write does.
func journalTorn(t *testing.T, f *faulty, r *rand.Rand) func() {
	record := `{"v":1,"kind":"decision","time":"2026-01-01T00:00:00.000000Z","request":"r-torn","slot":1,"gen":"1.1"`
	f.between(t, "proxy", fmt.Sprintf("n=$(ls %[1]s/*.jsonl | tail -n 1); printf '%%s' '%[2]s' >>$n", journalDir, record[:1+r.IntN(len(record)-1)]))
	return nothing
}

// indexDamaged writes over some of the audit index, which is made anew from the
// journals.
func indexDamaged(t *testing.T, f *faulty, r *rand.Rand) func() {
	f.between(t, "admin", fmt.Sprintf("dd if=/dev/urandom of=%s bs=512 seek=%d count=%d conv=notrunc 2>/dev/null", indexFile, r.IntN(64), 1+r.IntN(16)))
	return nothing
}

const indexFile = "/var/lib/bawn/admin/index.db"

func indexGone(t *testing.T, f *faulty, _ *rand.Rand) func() {
	f.between(t, "admin", "rm -f "+indexFile+"*")
	return nothing
}

// databaseDamaged writes over some of admin's database, which no program can make
// anew: it is the one thing that a hand has to bring back, here with the copy from
// before. Till then nothing may go wrong but that nothing goes.
func databaseDamaged(t *testing.T, f *faulty, r *rand.Rand) func() {
	const db = "/var/lib/bawn/admin/bawn.db"
	f.between(t, "admin", fmt.Sprintf("cp -a %[1]s %[1]s-wal %[1]s-shm /tmp/ 2>/dev/null; dd if=/dev/urandom of=%[1]s bs=512 seek=%[2]d count=%[3]d conv=notrunc 2>/dev/null", db, r.IntN(16), 1+r.IntN(32)))
	return func() {
		f.between(t, "admin", fmt.Sprintf("rm -f %[1]s*; cp -a /tmp/bawn.db* /var/lib/bawn/admin/ && rm -f /tmp/bawn.db*", db))
	}
}

func resolverSilent(t *testing.T, f *faulty, _ *rand.Rand) func() {
	f.root(t, "nft add table inet silence && nft 'add chain inet silence out { type filter hook output priority -300; }' && nft add rule inet silence out meta l4proto { udp, tcp } th dport 53 drop")
	return func() { f.root(t, "nft delete table inet silence") }
}

// resolverLies has the name that agents may use lead into the private network,
// to the host itself, to metadata, or nowhere.
func resolverLies(t *testing.T, f *faulty, r *rand.Rand) func() {
	lie := [][]world.Answer{
		{{Addrs: []string{"10.0.0.5"}}}, {{Addrs: []string{world.MetadataAddr}}}, {{Addrs: []string{"127.0.0.1"}}},
		{{Addrs: []string{world.HostAddr}}}, {{Addrs: []string{"::ffff:10.0.0.5"}}}, nil,
	}
	set := func(answers []world.Answer) {
		t.Helper()
		if err := f.w.DNS.Set(f.w.Names.API, answers...); err != nil {
			t.Fatal(err)
		}
	}
	set(lie[r.IntN(len(lie))])
	return func() { set([]world.Answer{{Addrs: []string{world.APIAddr, world.APIAddr6}}}) }
}

// noDescriptors lets a process have fewer descriptors than it has, so that each
// further one fails.
func noDescriptors(process string) func(*testing.T, *faulty, *rand.Rand) func() {
	return func(t *testing.T, f *faulty, r *rand.Rand) func() {
		limit := func(n string) string {
			pid, err := f.Process(t.Context(), process)
			if err != nil {
				return "" // it died of something before
			}
			return strings.TrimSpace(f.root(t, fmt.Sprintf("prlimit --pid %d --nofile -o SOFT --noheadings; prlimit --pid %d --nofile=%s:", pid, pid, n)).out)
		}
		before := limit(fmt.Sprint(3 + r.IntN(20)))
		return func() {
			if before != "" {
				limit(before)
			}
		}
	}
}

// clockFile holds by how much the clock of Bawn's processes is off, as a
// duration of Go; see the build tag failpoint.
const clockFile = "/run/bawn-clock"

// clockJumps moves the wall clock, for good: later rounds go on from there.
func clockJumps(sign int) func(*testing.T, *faulty, *rand.Rand) func() {
	return func(t *testing.T, f *faulty, r *rand.Rand) func() {
		f.root(t, fmt.Sprintf("echo %ds >%s.new && mv %s.new %s", sign*(1+r.IntN(7200)), clockFile, clockFile, clockFile))
		return nothing
	}
}
