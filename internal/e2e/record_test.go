// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"bawn/internal/world/operator"
)

// unrecorded lists what servers got and no allowing record announces. The
// paths of these tests are words that come once.
func (h *host) unrecorded(t *testing.T) (missing []string) {
	t.Helper()
	got, err := h.w.Upstream.Requests("")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{}
	for _, r := range h.decisions(t, func(r operator.Record) bool { return r.Verdict == "allow" }) {
		allowed[r.Method+" "+r.Path]++
	}
	for _, q := range got {
		line, _, _ := strings.Cut(string(q.Head), " HTTP/1.1\r\n")
		line, _, _ = strings.Cut(line, "?")
		if allowed[line]--; allowed[line] < 0 {
			missing = append(missing, line)
		}
	}
	return missing
}

func TestI7OnRecordFirst(t *testing.T) {
	h := boot(t)
	s := h.shell(t, "dev")
	gate := token()
	s.run(t, "curl -sS https://"+h.w.Names.API+"/gate?gate="+gate+" >/tmp/out 2>&1 &")
	eventually(t, "the request is at the server", func() bool {
		got, err := h.w.Upstream.Requests(h.w.Names.API)
		return err == nil && len(got) == 1
	})
	// The answer is still held back: the decision must be there, its outcome
	// cannot.
	d := h.decisions(t, func(r operator.Record) bool { return r.Path == "/gate" && r.Verdict == "allow" })
	if len(d) != 1 {
		t.Fatalf("%d records of the request that is under way", len(d))
	}
	if err := h.w.Upstream.Release(gate); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the outcome follows", func() bool {
		records, err := h.Records()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Kind == "outcome" && r.Request == d[0].Request {
				return r.Status == 200 && strings.HasSuffix(r.Upstream, ":443")
			}
		}
		return false
	})
}

// journalDir is where the proxy keeps its journal.
const journalDir = "/var/lib/bawn/proxy/journal"

func TestI7AFullDiskStopsTraffic(t *testing.T) {
	h := boot(t)
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	r := h.root(t, "cd "+journalDir+" && o=$(stat -c %u:%g .) && m=$(stat -c %a .) && mount -t tmpfs -o size=1m,mode=$m journal "+journalDir+" && chown $o "+journalDir)
	if r.status != 0 {
		t.Fatalf("%+v", r)
	}
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := h.shell(t, "dev")
	get := func() (path, status, code string) {
		path = "/" + token()
		status, code = s.curl(t, "https://"+h.w.Names.API+path)
		return path, status, code
	}
	if _, status, code := get(); status != "200" {
		t.Fatalf("with room: %s %s", status, code)
	}
	h.root(t, "dd if=/dev/zero of="+journalDir+"/filler bs=4k 2>/dev/null")
	refused := ""
	eventually(t, "requests are refused once the disk is full", func() bool {
		path, status, code := get()
		refused = path
		return status != "200" && code == "journal_unavailable"
	})
	if got, err := h.w.Upstream.Requests(h.w.Names.API); err != nil {
		t.Fatal(err)
	} else {
		for _, q := range got {
			if strings.Contains(string(q.Head), refused) {
				t.Errorf("went up without a record: %q", q.Head)
			}
		}
	}
	h.root(t, "rm "+journalDir+"/filler")
	eventually(t, "requests succeed once there is room", func() bool {
		_, status, _ := get()
		return status == "200"
	})
	// The files are inside a mount of the host: read them there.
	if out := h.root(t, "cat "+journalDir+"/*.jsonl").out; !strings.Contains(out, `"kind":"gap"`) || strings.Contains(out, refused) && strings.Contains(out, `"allow"`) && allowedIn(out, refused) {
		t.Errorf("the journal does not tell of the gap, or allows %s:\n%s", refused, out)
	}
	if found := h.evil(t); len(found) > 0 {
		t.Errorf("got out: %v", found)
	}
}

// allowedIn reports whether a journal allows the path.
func allowedIn(journal, path string) bool {
	for line := range strings.Lines(journal) {
		if strings.Contains(line, path) && strings.Contains(line, `"verdict":"allow"`) {
			return true
		}
	}
	return false
}

// TestI10TighteningBitesAtOnce takes a rule away under a request whose answer
// the server still holds back.
func TestI10TighteningBitesAtOnce(t *testing.T) {
	h := boot(t)
	for placement, agent := range placements() {
		h.apply(t, usual)
		s, gate := h.shell(t, agent), token()
		s.run(t, "(curl -sS https://"+h.w.Names.API+"/gate?gate="+gate+" >/tmp/out 2>&1; echo over >/tmp/over) &")
		eventually(t, "the request is at the server", func() bool {
			got, err := h.w.Upstream.Requests(h.w.Names.API)
			return err == nil && len(got) > 0 && strings.Contains(string(got[len(got)-1].Head), gate)
		})
		h.apply(t, strings.Replace(usual, "      - host: api.example.com\n", "", 1))
		if status, code := s.curl(t, "https://"+h.w.Names.API+"/"+token()); status != "403" || code == "" {
			t.Errorf("%s: the first request after the new policy: %s %s", placement, status, code)
		}
		eventually(t, "the request under way is cut", func() bool { return s.run(t, "cat /tmp/over") == "over\n" })
		if out := s.run(t, "cat /tmp/out"); strings.Contains(out, "body_bytes") {
			t.Errorf("%s: the server's answer came through: %s", placement, out)
		}
		if err := h.w.Upstream.Release(gate); err != nil {
			t.Fatal(err)
		}
	}
}

func TestI8EveryRecordIsAttributable(t *testing.T) {
	h := bootTwoOfEach(t)
	users := map[string]string{"dev": "alice", "guest": "alice", "dev2": "bob", "guest2": "bob"}
	leases := map[string]string{} // slot and generation, to the session that had it
	for range 2 {                 // so that slots are used again
		for agent := range users {
			h.curl(t, agent, "https://"+h.w.Names.API+"/"+agent)
			h.curl(t, agent, "https://"+h.w.Names.Evil+"/"+agent)
		}
	}
	sessions := map[string]int{}
	for _, r := range h.decisions(t, all) {
		if r.Agent == "" || users[r.Agent] != r.User || r.Session == "" || r.Gen == "" || r.Revision == 0 || r.Request == "" {
			t.Errorf("incomplete: %+v", r)
		}
		lease := fmt.Sprintf("%d/%s", r.Slot, r.Gen)
		if s := leases[lease]; s != "" && s != r.Session {
			t.Errorf("slot and generation %s belong to %s and to %s", lease, s, r.Session)
		}
		leases[lease] = r.Session
		sessions[r.Session]++
		if r.Path != "" && r.Path != "/"+r.Agent {
			t.Errorf("%s is on record for %s", r.Path, r.Agent)
		}
	}
	if len(sessions) != 16 || len(leases) != 16 {
		t.Errorf("%d sessions and %d leases on record, want 16", len(sessions), len(leases))
	}
	// The operator's own view names them too.
	out := h.bawn(t, "log", "--json", "--agent", "dev2")
	if !strings.Contains(out, `"user":"bob"`) || strings.Contains(out, `"agent":"dev"`) {
		t.Errorf("bawn log --agent dev2: %s", out)
	}
	out = h.bawn(t, "log", "--verdict", "deny", "--code", "host_not_allowed", "--user", "alice")
	if !strings.Contains(out, h.w.Names.Evil) || strings.Contains(out, "dev2") {
		t.Errorf("bawn log of alice's denials: %s", out)
	}
}
