// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"
)

// TestWhatSurvivesARestart: docs/install.md says which sessions go on when a
// process is replaced, as an upgrade does.
func TestWhatSurvivesARestart(t *testing.T) {
	h := boot(t)
	for _, c := range []struct {
		process string
		goesOn  bool
	}{{"proxy", true}, {"admin", false}, {"netd", false}} {
		s := h.shell(t, "dev")
		h.signal(t, c.process, "TERM")
		out, ok := s.try("curl -sS -m 20 --retry 5 --retry-all-errors -o /dev/null -w 'status=%{http_code}\n' https://" + h.w.Names.API + "/" + token())
		if ok != c.goesOn || ok && !strings.Contains(out, "status=200") {
			t.Errorf("%s: the session goes on: %v, want %v: %s", c.process, ok, c.goesOn, out)
		}
		eventually(t, "a new session works after "+c.process, func() bool {
			status, _ := h.curl(t, "dev", "https://"+h.w.Names.API+"/"+token())
			return status == "200"
		})
	}
}
