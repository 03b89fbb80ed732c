// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bawn/internal/world/attempts"
	"bawn/internal/world/operator"
)

// signal sends a signal to one of Bawn's processes.
func (h *host) signal(t *testing.T, process, signal string) {
	t.Helper()
	pid, err := h.Process(t.Context(), process)
	if err != nil {
		t.Fatal(err)
	}
	if r := h.root(t, fmt.Sprintf("kill -%s %d", signal, pid)); r.status != 0 {
		t.Fatalf("signalling %s: %s", process, r.err)
	}
}

// trouble is what goes on in a session while a process is dead or stopped:
// attempts to get out and requests that would be allowed.
func trouble(api string) string {
	argv := attempts.Argv(attempts.Direct()...)
	for i, a := range argv {
		argv[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return "ATTEMPT_SECONDS=0.3 " + strings.Join(argv, " ") + " >/dev/null 2>&1; curl -s -m 2 https://" + api + "/" + token() + " >/dev/null"
}

// TestI2FailClosed kills and stops each process under running agents.
func TestI2FailClosed(t *testing.T) {
	t.Parallel() // most of it is waiting
	for _, process := range []string{"proxy", "admin", "netd"} {
		for _, signal := range []string{"KILL", "STOP"} {
			t.Run(process+" "+signal, func(t *testing.T) {
				h := boot(t)
				shells := map[string]*shell{}
				for placement, agent := range placements() {
					shells[placement] = h.shell(t, agent)
				}
				h.signal(t, process, signal)
				for placement, s := range shells {
					// A session may end with its keeper; then nothing gets out of it.
					if out, ok := s.try(trouble(h.w.Names.API)); !ok {
						t.Logf("%s: the session ended: %s", placement, out)
					}
				}
				if process == "admin" && signal == "STOP" {
					h.lapses(t, shells)
				}
				if signal == "STOP" {
					h.signal(t, process, "CONT")
				}
				for _, agent := range placements() {
					eventually(t, "a new session of "+agent+" works again", func() bool {
						status, _ := h.curl(t, agent, "https://"+h.w.Names.API+"/"+token())
						return status == "200"
					})
				}
				if found := h.evil(t); len(found) > 0 {
					t.Errorf("got out:\n%s", strings.Join(found, "\n"))
				}
				if missing := h.unrecorded(t); len(missing) > 0 {
					t.Errorf("I7: went up without a record: %v", missing)
				}
			})
		}
	}
}

// lapses checks that the proxy stops by itself once admin has been silent for
// longer than a lease.
func (h *host) lapses(t *testing.T, shells map[string]*shell) {
	t.Helper()
	for placement, s := range shells {
		eventually(t, placement+": the lease lapses", func() bool {
			status, code := s.curl(t, "https://"+h.w.Names.API+"/"+token())
			return status != "200" && (code == "lease_lapsed" || code == "policy_unavailable")
		})
		path := "/" + token()
		s.curl(t, "https://"+h.w.Names.API+path)
		got, err := h.w.Upstream.Requests("")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range got {
			if strings.Contains(string(q.Head), path) {
				t.Errorf("%s: went up after the lease had lapsed: %q", placement, q.Head)
			}
		}
	}
}

// stages are the points of a request at which the proxy can be made to die or
// stop; see the build tag failpoint.
func stages() []string {
	return []string{"accepted", "judged", "journaled", "resolved", "dialled", "first_byte", "outcome"}
}

// TestI7DeathAtEachStageLosesNoRecord lets the proxy die, and stop, at each
// stage of a request, and kills and stops the other processes while it is
// stopped there.
func TestI7DeathAtEachStageLosesNoRecord(t *testing.T) {
	t.Parallel() // most of it is waiting
	h := bootWith(t, operator.Options{Binary: built.failing(t)})
	h.agents(t)
	h.apply(t, usual)
	for _, stage := range stages() {
		for _, what := range []string{"proxy killed", "proxy stopped", "admin killed", "admin stopped", "netd killed", "netd stopped"} {
			t.Run(stage+" "+what, func(t *testing.T) { h.atStage(t, stage, what) })
		}
	}
}

func (h *host) atStage(t *testing.T, stage, what string) {
	t.Helper()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	action := "stop"
	if what == "proxy killed" {
		action = "kill"
	}
	marker := "/tmp/" + token()
	if err := h.Up(t.Context(), fmt.Sprintf("BAWN_FAILPOINT=%s:%s:%s", stage, action, marker)); err != nil {
		t.Fatal(err)
	}
	s := h.shell(t, "dev")
	h.root(t, "touch "+marker+".arm")
	s.run(t, "curl -s -m 5 https://"+h.w.Names.API+"/"+token()+" >/dev/null 2>&1 &")
	eventually(t, "the proxy comes to "+stage, func() bool { return h.root(t, "test -e "+marker).status == 0 })
	process, how, _ := strings.Cut(what, " ")
	if process != "proxy" {
		h.signal(t, process, map[string]string{"killed": "KILL", "stopped": "STOP"}[how])
	}
	if _, ok := s.try(trouble(h.w.Names.API)); !ok {
		t.Log("the session ended")
	}
	if action == "stop" {
		h.signal(t, "proxy", "CONT")
	}
	if process != "proxy" && how == "stopped" {
		h.signal(t, process, "CONT")
	}
	eventually(t, "a new session works again", func() bool {
		status, _ := h.curl(t, "dev", "https://"+h.w.Names.API+"/"+token())
		return status == "200"
	})
	if missing := h.unrecorded(t); len(missing) > 0 {
		t.Errorf("went up without a record: %v", missing)
	}
	if found := h.evil(t); len(found) > 0 {
		t.Errorf("got out:\n%s", strings.Join(found, "\n"))
	}
}

// TestI13CrashOnly kills everything at once, again and again, and starts anew.
func TestI13CrashOnly(t *testing.T) {
	h := boot(t)
	// Things of others, with names that a careless sweep could take for ours.
	h.root(t, `nft add table inet bawnish; nft add table inet theirs; ip netns add theirs
		for d in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts); do mkdir -p $d/theirs; done; useradd bawnish; true`)
	for round := range 3 {
		for _, agent := range placements() {
			s := h.shell(t, agent)
			s.run(t, "sleep 1000 &")
		}
		if err := h.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "no process of an agent is left", func() bool { return h.root(t, agentProcesses).out == "" })
		if err := h.Up(t.Context()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, agent := range placements() {
			if status, code := h.curl(t, agent, "https://"+h.w.Names.API+"/"+token()); status != "200" {
				t.Errorf("round %d: %s: %s %s", round, agent, status, code)
			}
		}
	}
	if r := h.root(t, "nft list table inet bawnish && nft list table inet theirs && ip netns list | grep theirs && id bawnish && ls -d /sys/fs/cgroup/*/theirs /sys/fs/cgroup/theirs 2>/dev/null | grep theirs"); r.status != 0 {
		t.Errorf("something of others is gone: %s%s", r.out, r.err)
	}
	// Everything that was recorded before is still there, and in order.
	var last uint64
	records, err := h.Records()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Seq != last+1 {
			t.Errorf("record %d follows record %d", r.Seq, last)
		}
		last = r.Seq
	}
	if missing := h.unrecorded(t); len(missing) > 0 {
		t.Errorf("went up without a record: %v", missing)
	}
	if found := h.evil(t); len(found) > 0 {
		t.Errorf("got out:\n%s", strings.Join(found, "\n"))
	}
	h.leavesNothing(t)
}

// agentProcesses prints the processes with a uid of Bawn's range for agents.
const agentProcesses = `for p in /proc/[0-9]*; do
	u=$(sed -n 's/^Uid:\t\([0-9]*\).*/\1/p' $p/status 2>/dev/null)
	test -n "$u" && test "$u" -ge 1900000000 && test "$u" -le 1900009999 && echo $p $u
done; true`

// leavesNothing stops Bawn and looks at what is left in the kernel.
func (h *host) leavesNothing(t *testing.T) {
	t.Helper()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if out := h.root(t, agentProcesses).out; out != "" {
		t.Errorf("processes of agents are left: %s", out)
	}
	if out := h.root(t, `find /sys/fs/cgroup -type d -name '*bawn*'; ls /var/run/netns 2>/dev/null | grep -i bawn; true`).out; out != "" {
		t.Errorf("left in the kernel: %s", out)
	}
	if out := h.root(t, `ls -1 /proc/[0-9]*/exe 2>/dev/null | xargs -n1 readlink 2>/dev/null | grep /opt/bawn; true`).out; out != "" {
		t.Errorf("processes of Bawn are left: %s", out)
	}
}

// TestUpIsReadySoonAndStopsCleanly also shows that a second start finds all
// that the first one made.
func TestUpIsReadySoonAndStopsCleanly(t *testing.T) {
	h := boot(t)
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	if out := h.bawn(t, "status"); !strings.Contains(out, "ready") {
		t.Errorf("bawn status: %s", out)
	}
	if out := h.bawn(t, "agent", "list"); !strings.Contains(out, "dev") || !strings.Contains(out, "guest") {
		t.Errorf("bawn agent list: %s", out)
	}
	h.leavesNothing(t)
}
