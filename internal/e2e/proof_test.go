// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"strings"
	"testing"

	"bawn/internal/world/operator"
)

// TestTheRecordIsProven works a host, kills what signs, and has the record
// checked by root on the spot and by an operator from a copy; then somebody with
// the proxy's rights changes it under the running host.
func TestTheRecordIsProven(t *testing.T) {
	h := boot(t)
	use := func() {
		for _, agent := range placements() {
			if status, _ := h.curl(t, agent, "https://"+h.w.Names.API+"/"+token()); status != "200" {
				t.Fatalf("%s: status %s", agent, status)
			}
			h.curl(t, agent, "https://"+h.w.Names.API+"/"+token(), "-X", "DELETE")
		}
	}
	use()
	h.signal(t, "admin", "KILL")
	eventually(t, "admin is back", func() bool {
		status, _ := h.curl(t, "dev", "https://"+h.w.Names.API+"/"+token())
		return status == "200"
	})
	use()
	acts := h.bawn(t, "audit", "acts")
	for _, act := range []string{"admin.start", "key.make", "ca.make", "agent.create", "policy.apply", "placement.open", "session.start", "session.end", "intermediate.sign"} {
		if !strings.Contains(acts, act) {
			t.Errorf("act %s is not on record:\n%s", act, acts)
		}
	}
	anchors := h.bawn(t, "audit", "anchors")
	if err := os.WriteFile(h.w.Host.File("/var/lib/bawn/anchors"), []byte(anchors), 0o644); err != nil {
		t.Fatal(err)
	}
	verify := operator.Binary + " audit verify --anchor /var/lib/bawn/anchors "
	if r := h.root(t, verify); r.status != 0 || !strings.Contains(r.out, "everything is as it was written") {
		t.Fatalf("a running host: %+v", r)
	}
	home := "/home/" + operator.Account
	h.bawn(t, "audit", "export", "--out", home+"/whole")
	h.bawn(t, "audit", "export", "--out", home+"/dev.jsonl", "--agent", "dev")
	for _, what := range []string{"/whole", "/dev.jsonl"} {
		r := h.root(t, verify+home+what+" --key /var/lib/bawn/public/audit.pub")
		if r.status != 0 {
			t.Errorf("an export: %+v", r)
		}
	}
	// One byte of the newest record, as the proxy's account could.
	r := h.root(t, "f=$(ls "+journalDir+"/proxy-*.jsonl | tail -1); printf x | dd of=$f bs=1 seek=$(($(stat -c %s $f) - 150)) conv=notrunc")
	if r.status != 0 {
		t.Fatalf("%+v", r)
	}
	eventually(t, "the alarm is raised", func() bool {
		return strings.Contains(h.bawn(t, "status"), "NOT WHAT WAS WRITTEN")
	})
	use()
	if r := h.root(t, verify); r.status != 3 || !strings.Contains(r.out, "FAULT ") {
		t.Errorf("a changed record: %+v", r)
	}
	if acts := h.bawn(t, "audit", "acts"); !strings.Contains(acts, "audit.break") {
		t.Errorf("the break is not on record:\n%s", acts)
	}
}
