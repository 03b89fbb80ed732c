// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world/operator"
)

// faultSeed replays rounds: each depends on the seed and its number alone.
var (
	faultSeed  = flag.Uint64("faults.seed", 1, "seed of the fault rounds")
	faultFirst = flag.Int("faults.first", 0, "number of the first fault round")
	faultCount = flag.Int("faults.count", 0, "how many fault rounds; 0: as the run asks")
)

// A faulty is a host under traffic to which one thing after the other happens.
type faulty struct {
	*host
	shells  map[string]*shell // a session of each agent, by agent
	allowed map[string]int    // requests that records allow, not yet seen at a server
	read    map[string]int64  // octets of each journal file that were looked at
	damaged bool              // a round has changed what was written
}

// A fault does something to f, by chance where that is said, and returns what
// undoes it.
type fault struct {
	name string
	do   func(t *testing.T, f *faulty, r *rand.Rand) (undo func())
}

// TestFaultRounds does to a running Bawn what can happen to a host: processes
// that die and hang, disks that are full or cannot be written, files that are
// damaged, resolvers that are silent or lie, descriptors that run out, clocks
// that jump. All the while agents ask for what they may have and for what they
// may not. After each round nothing has got out, every request that a server
// got is on record, and service is back without a hand (I2, I7, I13).
func TestFaultRounds(t *testing.T) {
	t.Parallel() // most of it is waiting
	f := startFaulty(t)
	count := *faultCount
	if count == 0 {
		count = roottest.Count(30, 1000)
	}
	for i := range count {
		n := *faultFirst + i
		name := ""
		ok := t.Run(fmt.Sprintf("round %d", n), func(t *testing.T) { name = f.round(t, n) })
		if !ok {
			t.Fatalf("round %d (%s) failed; -faults.seed=%d -faults.first=%d -faults.count=1 does it again", n, name, *faultSeed, n)
		}
		if i%100 == 99 || i == count-1 {
			f.indexed(t)
		}
	}
}

// indexed compares the audit index with the journal: what was let through is in
// it, and once.
func (f *faulty) indexed(t *testing.T) {
	t.Helper()
	f.read = map[string]int64{}
	journal := map[string]int{}
	for _, r := range f.records(t) {
		if r.Kind == "decision" && r.Verdict == "allow" {
			journal[r.Request]++
		}
	}
	index := map[string]int{}
	for line := range strings.Lines(f.bawn(t, "log", "--json", "--verdict", "allow")) {
		var e struct{ Decision *operator.Record }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("bawn log --json: %v: %q", err, line)
		}
		if e.Decision != nil {
			index[e.Decision.Request]++
		}
	}
	for request, n := range journal {
		if index[request] != n {
			t.Errorf("request %s is %d times in the journal and %d times in the index", request, n, index[request])
		}
	}
	t.Logf("%d requests let through in the journal, %d in the index", len(journal), len(index))
}

func startFaulty(t *testing.T) *faulty {
	t.Helper()
	h := bootWith(t, operator.Options{Binary: built.failing(t), Env: []string{"BAWN_CLOCK=" + clockFile}})
	h.agents(t)
	h.apply(t, usual)
	f := &faulty{host: h, shells: map[string]*shell{}, allowed: map[string]int{}, read: map[string]int64{}}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	// Disks of their own, which can be full and read-only.
	for _, dir := range stateDirs {
		if r := h.root(t, onDisk(dir)); r.status != 0 {
			t.Fatalf("a disk for %s: %+v", dir, r)
		}
	}
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// stateDirs are what a round may fill, damage or make read-only.
var stateDirs = []string{"/var/lib/bawn/proxy", "/var/lib/bawn/admin"}

// onDisk moves a directory onto a disk of 160 MB.
func onDisk(dir string) string {
	return fmt.Sprintf(`set -e
		o=$(stat -c %%u:%%g %[1]s) m=$(stat -c %%a %[1]s)
		cp -a %[1]s /tmp/moved
		mount -t tmpfs -o size=160m,mode=$m state %[1]s
		chown $o %[1]s
		cp -a /tmp/moved/. %[1]s/
		rm -rf /tmp/moved`, dir)
}

// round does one round and returns what happened in it.
func (f *faulty) round(t *testing.T, n int) string {
	r := rand.New(rand.NewPCG(*faultSeed, uint64(n)))
	picked := []fault{faults[n%len(faults)]} // each of them comes, whatever the seed
	if r.IntN(3) == 0 {
		picked = append(picked, faults[r.IntN(len(faults)-1)])
	}
	var names []string
	began := time.Now()
	lap := func(what string) { t.Logf("%6d ms %s", time.Since(began).Milliseconds(), what) }
	f.sessions(t)
	stop := f.traffic(t, r)
	lap("traffic")
	time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
	for _, p := range picked {
		names = append(names, p.name)
		undo := p.do(t, f, r)
		defer func() {
			if undo != nil {
				undo()
			}
		}()
		lap(p.name)
		time.Sleep(time.Duration(50+r.IntN(400)) * time.Millisecond)
		undo()
		undo = nil
		lap("undone")
	}
	stop()
	lap("traffic has ended")
	f.back(t)
	lap("service is back")
	f.check(t)
	f.proven(t)
	lap("checked")
	return strings.Join(names, ", then ")
}

// sessions opens those that have ended.
func (f *faulty) sessions(t *testing.T) {
	t.Helper()
	for _, agent := range placements() {
		if s := f.shells[agent]; s != nil {
			if _, ok := s.try("true"); ok {
				continue
			}
			s.end()
		}
		f.shells[agent] = f.shell(t, agent)
	}
}

// traffic has every agent ask again and again, until the function that it
// returns is called. Sessions may end meanwhile.
func (f *faulty) traffic(t *testing.T, r *rand.Rand) (stop func()) {
	t.Helper()
	flagFile := "/tmp/" + token()
	for _, s := range f.shells {
		s.try("rm -f /tmp/stop; (" + mixed(f.w.Names.API, f.w.Names.Evil, flagFile, r) + ") >/dev/null 2>&1 &") //nolint:errcheck // a session may be gone
	}
	return func() {
		for _, s := range f.shells {
			s.try("touch " + flagFile + "; wait")
		}
	}
}

// mixed is a loop of requests: whole ones, ones whose server stalls, resets,
// drips and never ends, ones that are refused, and attempts past Bawn. Paths
// come once each, so that records and requests can be matched.
func mixed(api, evil, flagFile string, r *rand.Rand) string {
	asks := []string{
		"curl -s -m 2 https://" + api + "/$w",
		"curl -s -m 2 --http1.1 https://" + api + "/$w",
		"curl -s -m 2 -d @/etc/services https://" + api + "/$w",
		"curl -s -m 1 https://" + evil + "/$w",
		"curl -s -m 0.5 https://" + api + "/gate?gate=$w",   // stalls
		"curl -s -m 0.5 https://" + api + "/sse/endless?$w", // never ends
		"curl -s -m 0.5 https://" + api + "/break?$w",       // resets
		"curl -s -m 0.5 https://" + api + "/sse?gate=$w",    // drips
	}
	r.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	var b strings.Builder
	fmt.Fprintf(&b, "(%s) & i=0; while [ ! -e %s ]; do i=$((i+1));\n", trouble(api), flagFile)
	for k, ask := range asks {
		fmt.Fprintf(&b, "[ -e %s ] && break; w=%s-$i-%d; %s &\n", flagFile, token(), k, ask)
		if k%3 == 2 {
			b.WriteString("sleep 0.05; wait\n")
		}
	}
	b.WriteString("done; wait")
	return b.String()
}

// back waits until every agent is served again, in a session of its own.
func (f *faulty) back(t *testing.T) {
	t.Helper()
	for placement, agent := range placements() {
		last := ""
		eventually(t, placement+": service is back", func() bool {
			status, code := f.curl(t, agent, "https://"+f.w.Names.API+"/"+token(), "-m", "3")
			if last != status+code {
				last = status + code
				t.Logf("%s: %s %s", placement, status, code)
			}
			return status == "200"
		})
	}
}

// check looks at what servers got and at what is on record since the last time.
func (f *faulty) check(t *testing.T) {
	t.Helper()
	if found := f.evil(t); len(found) > 0 {
		t.Errorf("I1: got out:\n%s", strings.Join(found, "\n"))
	}
	// Servers first: what they have must be on record already.
	got, err := f.w.Upstream.Requests("")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.w.Upstream.Forget(); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.records(t) {
		if r.Kind == "decision" && r.Verdict == "allow" {
			f.allowed[r.Method+" "+r.Path]++
		}
	}
	for _, q := range got {
		line, _, _ := strings.Cut(string(q.Head), " HTTP/1.1\r\n")
		line, _, _ = strings.Cut(line, "?")
		if f.allowed[line]--; f.allowed[line] < 0 {
			t.Errorf("I7: went up without a record: %s", line)
		}
	}
}

// proven runs the offline check of the record: no fault that a host can have may
// look like somebody's hand, and what is somebody's hand is found.
func (f *faulty) proven(t *testing.T) {
	t.Helper()
	r := f.root(t, operator.Binary+" audit verify")
	if want := map[bool]int{false: 0, true: 3}[f.damaged]; r.status != want {
		t.Errorf("bawn audit verify: status %d, want %d (damaged: %v): %s%s", r.status, want, f.damaged, r.out, r.err)
	}
}

// records are those that were written since the last call. The journal is on a
// disk that only the host sees.
func (f *faulty) records(t *testing.T) (list []operator.Record) {
	t.Helper()
	for _, name := range strings.Fields(f.root(t, "cd "+journalDir+" && ls *.jsonl").out) {
		text := f.root(t, fmt.Sprintf("tail -c +%d %s/%s", f.read[name]+1, journalDir, name)).out
		text = text[:strings.LastIndexByte(text, '\n')+1]
		f.read[name] += int64(len(text))
		for line := range strings.Lines(text) {
			var r operator.Record
			if json.Unmarshal([]byte(line), &r) == nil {
				list = append(list, r)
			}
		}
	}
	return list
}
