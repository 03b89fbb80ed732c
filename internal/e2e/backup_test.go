// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"regexp"
	"strings"
	"testing"

	"bawn/internal/ids"
	"bawn/internal/world/operator"
)

// generations are those of all decisions, oldest first.
func (h *host) generations(t *testing.T) (list []ids.Generation) {
	t.Helper()
	for _, d := range h.decisions(t, func(operator.Record) bool { return true }) {
		var g ids.Generation
		if err := g.UnmarshalText([]byte(d.Gen)); err != nil {
			t.Fatal(err)
		}
		list = append(list, g)
	}
	return list
}

// ok runs a line as root and wants it to succeed.
func (h *host) ok(t *testing.T, line string) string {
	t.Helper()
	r := h.root(t, line)
	if r.status != 0 {
		t.Fatalf("%s: status %d: %s%s", line, r.status, r.out, r.err)
	}
	return r.out + r.err
}

// TestI8BackupAndRestore goes back to a backup on the host that it was made on,
// which has gone on since, and on one that has nothing.
func TestI8BackupAndRestore(t *testing.T) {
	h := boot(t)
	const archive, later = "/var/backup.tar.gz", "/var/later.tar.gz"
	h.sh(t, "dev", "echo kept >file; ln -s file link")
	if status, code := h.curl(t, "dev", "https://api.example.com/"); status != "200" {
		t.Fatalf("before: %s %s", status, code)
	}
	h.ok(t, operator.Binary+" backup --journals --homes "+archive)
	if out := h.ok(t, "stat -c '%a %U' "+archive); strings.TrimSpace(out) != "600 root" {
		t.Errorf("the archive is %s", out)
	}
	if out, err := h.Bawn(t.Context(), "backup", "/tmp/mine"); err == nil || !strings.Contains(out, "this needs root") {
		t.Errorf("an operator made a backup: %v: %s", err, out)
	}
	if r := h.root(t, operator.Binary+" restore --yes "+archive); r.status == 0 || !strings.Contains(r.err, "runs already") {
		t.Errorf("restored beneath a running one: %s%s", r.out, r.err)
	}
	for _, args := range [][]string{{"run", "--agent", "d"}, {"agent", "remove", "d"}} {
		if out := h.bawn(t, append([]string{"__complete"}, args...)...); !strings.Contains(out, "dev\n") || strings.Contains(out, "guest") {
			t.Errorf("completing %v: %s", args, out)
		}
	}
	// The host goes on.
	h.bawn(t, "agent", "create", "late", "--user", "bob")
	h.apply(t, strings.Replace(usual, "      - host: files.example.com\n", "", 1)+"  late: {profile: coder}\n")
	h.sh(t, "dev", "echo changed >file")
	h.curl(t, "late", "https://api.example.com/")
	went := h.generations(t)
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if r := h.root(t, operator.Binary+" backup "+archive); r.status == 0 || !strings.Contains(r.err, "name a new one") {
		t.Errorf("over another backup: %s%s", r.out, r.err)
	}
	h.ok(t, operator.Binary+" backup "+later) // stopped: root does admin's part
	h.ok(t, operator.Binary+" restore --check "+later)

	out := h.ok(t, operator.Binary+" restore --yes "+archive)
	if !strings.Contains(out, "restored, with 2 agents;") { // dev and guest
		t.Errorf("the self-test's agent is counted: %s", out)
	}
	if !strings.Contains(out, "agent late is not in the backup") {
		t.Errorf("said: %s", out)
	}
	h.comesBack(t, "kept\n")
	if acts := h.bawn(t, "audit", "acts"); !regexp.MustCompile(`root.*backup\.restore|backup\.restore.*root`).MatchString(acts) {
		t.Errorf("who restored: %s", acts)
	}
	if agents := h.bawn(t, "agent", "list"); strings.Contains(agents, "late") || !strings.Contains(agents, "dev") {
		t.Errorf("agents: %s", agents)
	}
	h.apply(t, usual)
	if out := h.bawn(t, "policy", "revisions"); !strings.Contains(out, "\n3 ") || strings.Contains(out, "\n2 ") {
		t.Errorf("the next revision repeats one, or skips: %s", out)
	}
	now := h.generations(t)[len(went):]
	for _, g := range now {
		for _, old := range went {
			if g.Epoch <= old.Epoch {
				t.Errorf("generation %v after the restore, %v before", g, old)
			}
		}
	}
	h.ok(t, operator.Binary+" audit verify")

	// A host that has nothing: the same place, emptied.
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	const empty = "rm -rf /var/lib/bawn; for a in dev guest late; do userdel bawn-$a; groupdel bawn-$a; done 2>/dev/null; userdel bawn-proxy; userdel bawn-admin; true"
	h.ok(t, empty)
	h.ok(t, operator.Binary+" restore --yes "+archive)
	h.comesBack(t, "kept\n")
	h.ok(t, operator.Binary+" audit verify")
	all := h.generations(t)
	if len(now) == 0 || all[len(all)-1].Epoch <= now[len(now)-1].Epoch {
		t.Errorf("generations %v on the new host, %v on the old", all, now)
	}

	// Once more, from an archive without the record and without agents' files: a
	// record begins anew.
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	h.ok(t, empty)
	if out := h.ok(t, operator.Binary+" restore --yes "+later); !strings.Contains(out, "restored, with 3 agents;") {
		t.Errorf("said: %s", out)
	}
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, code := h.curl(t, "dev", "https://api.example.com/"); status != "200" {
		t.Errorf("without the record: %s %s", status, code)
	}
	h.ok(t, operator.Binary+" audit verify")
	bare := h.generations(t)
	if len(bare) != 1 || bare[0].Epoch <= went[len(went)-1].Epoch {
		t.Errorf("generations %v on the bare host, %v at the backup", bare, went)
	}
}

// comesBack starts Bawn again and uses what was restored.
func (h *host) comesBack(t *testing.T, file string) {
	t.Helper()
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := h.sh(t, "dev", "cat link"); r.out != file {
		t.Errorf("the agent's file: %q", r.out)
	}
	if status, code := h.curl(t, "dev", "https://api.example.com/"); status != "200" {
		t.Errorf("after the restore: %s %s", status, code)
	}
	if out := h.ok(t, "cat /var/lib/bawn/admin/journal/*.jsonl"); !strings.Contains(out, `"backup.restore"`) {
		t.Error("the restore is not on record")
	}
}
