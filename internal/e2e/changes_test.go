// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// TestThePageAboutChanges follows docs/policy-changes.md: each command line is
// run and must say what the page shows.
func TestThePageAboutChanges(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.bawn(t, "agent", "create", "dev", "--user", "alice@example.com")
	page, err := os.ReadFile("../../docs/policy-changes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range blocks(string(page), "yaml") {
		name := strings.TrimPrefix(strings.SplitN(text, "\n", 2)[0], "# ")
		if err := os.WriteFile(h.w.Host.File("/home/"+operator.Account+"/"+name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	for _, block := range blocks(string(page), "console") {
		for _, c := range typedAsUser(block) {
			cmd := h.w.Host.CommandAs(t.Context(), operator.Account, "/bin/sh", "-c", "cd && "+c.line)
			cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(operator.Binary)+":"+world.Path)
			out, _ := cmd.CombinedOutput() // that something is denied is a status too
			if !same(c.shows, string(out)) {
				t.Errorf("$ %s shows\n%s\nnot\n%s", c.line, out, c.shows)
			}
			ran++
		}
	}
	if ran < 15 {
		t.Errorf("only %d command lines were found", ran)
	}
}

// typedAsUser reads a block in which a line that begins with a number sign is
// part of what is shown.
func typedAsUser(block string) (list []shown) {
	for _, c := range typed(block) {
		if c.root {
			list[len(list)-1].shows += "# " + c.line + "\n" + c.shows
			continue
		}
		list = append(list, c)
	}
	return list
}

// TestI10AGrantsFlowsEndWithIt: a request whose answer is still held back is cut
// when the grant's time is over and when it is revoked, with rule_expired, and
// nothing comes through; also while admin does not run.
func TestI10AGrantsFlowsEndWithIt(t *testing.T) {
	h := boot(t)
	h.apply(t, strings.Replace(usual, "      - host: api.example.com\n", "", 1))
	for _, c := range []struct{ agent, how, long string }{
		{"dev", "over", "3s"}, {"guest", "revoked", "10m"}, {"dev", "over without admin", "3s"},
	} {
		s, gate := h.shell(t, c.agent), token()
		h.bawn(t, "allow", c.agent, "GET https://"+h.w.Names.API+"/gate", "--for", c.long)
		s.run(t, "rm -f /tmp/over; (curl -sS https://"+h.w.Names.API+"/gate?gate="+gate+" >/tmp/out 2>&1; echo over >/tmp/over) &")
		eventually(t, "the request is at the server", func() bool {
			got, err := h.w.Upstream.Requests(h.w.Names.API)
			return err == nil && len(got) > 0 && strings.Contains(string(got[len(got)-1].Head), gate)
		})
		switch c.how {
		case "revoked":
			h.bawn(t, "revoke", regexp.MustCompile(`(?m)^g[0-9]+`).FindString(h.bawn(t, "grants")))
		case "over without admin":
			h.signal(t, "admin", "STOP")
		}
		eventually(t, "the request under way is cut, its grant "+c.how, func() bool { return s.run(t, "cat /tmp/over 2>/dev/null; true") == "over\n" })
		if c.how == "over without admin" {
			h.signal(t, "admin", "CONT")
		}
		if out := s.run(t, "cat /tmp/out"); strings.Contains(out, "body_bytes") {
			t.Errorf("%s: the server's answer came through: %s", c.how, out)
		}
		if err := h.w.Upstream.Release(gate); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the lease is held again", func() bool {
			_, code := s.curl(t, "https://"+h.w.Names.API+"/gate")
			return code == "rule_expired"
		})
		h.cutIs(t, c.agent, c.how)
	}
}

// cutIs looks at the newest outcome of a request that was cut.
func (h *host) cutIs(t *testing.T, agent, how string) {
	t.Helper()
	records, err := h.Records()
	if err != nil {
		t.Fatal(err)
	}
	last := operator.Record{}
	for _, r := range records {
		if r.Kind == "outcome" && r.Agent == agent && r.Cut != "" {
			last = r
		}
	}
	// Whether the grant or the lease ends first without admin is a matter of
	// milliseconds.
	if last.Code != "rule_expired" && (how != "over without admin" || last.Code != "lease_lapsed") {
		t.Errorf("%s, %s: cut with %+v", agent, how, last)
	}
}

// TestGrantsOutliveAdmin: they are in force again after a crash, and end when
// they were to.
func TestGrantsOutliveAdmin(t *testing.T) {
	h := boot(t)
	h.apply(t, strings.Replace(usual, "      - host: files.example.com\n", "", 1))
	h.bawn(t, "allow", "dev", "GET https://"+h.w.Names.Files+"/x", "--for", "1h")
	h.signal(t, "admin", "KILL")
	eventually(t, "the grant is in force again", func() bool {
		status, _ := h.curl(t, "dev", "https://"+h.w.Names.Files+"/x")
		return status == "200"
	})
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.Files+"/y"); status != "403" || code != "path_not_allowed" {
		t.Errorf("another path: %s %s", status, code)
	}
	if status, code := h.curl(t, "guest", "https://"+h.w.Names.Files+"/x"); status != "403" || code != "host_not_allowed" {
		t.Errorf("another agent: %s %s", status, code)
	}
	if out := h.bawn(t, "grants"); !strings.Contains(out, "g1") || !strings.Contains(out, operator.Account) {
		t.Errorf("grants:\n%s", out)
	}
}

// TestExplainSaysWhatTheProxyDoes: the check that an operator runs and what is
// enforced are one: for names in every spelling that might be read in two ways,
// both say the same verdict and code.
func TestExplainSaysWhatTheProxyDoes(t *testing.T) {
	h := boot(t)
	api := h.w.Names.API
	h.apply(t, `version: 1
profiles:
  coder:
    rules:
      - {host: `+api+`, methods: [GET], paths: ["/v1/**"]}
      - {host: "*.`+h.w.Names.Wild+`"}
      - deny: {host: `+api+`, paths: ["/v1/secret"]}
agents:
  dev: {profile: coder}
`)
	for _, url := range []string{
		"https://" + api + "/v1/x", "https://" + strings.ToUpper(api) + "./v1/x", "https://" + api + ":443/v1/x", "https://" + api + ":8443/v1/x",
		"https://" + api + "/v1/secret", "https://" + api + "/v1/%73ecret", "https://" + api + "/v1", "https://" + api + "/v1/", "http://" + api + "/v1/x",
		"https://" + h.w.Names.Wild + "/", "https://a." + h.w.Names.Wild + "/", "https://a.b." + h.w.Names.Wild + "/",
		"https://localhost/", "https://host.docker.internal/", "https://metadata.google.internal/", "https://" + h.w.Names.Evil + "/", "https://" + api + ".example.net/",
	} {
		status, code := h.curl(t, "dev", url, "--path-as-is", "--globoff")
		out, err := h.Bawn(t.Context(), "policy", "explain", "dev", "GET", url)
		said := strings.SplitN(out, "\n", 2)[0]
		allowed := strings.Contains(said, ": allow")
		if allowed != (err == nil) || allowed != (status == "200") {
			t.Errorf("%s: the proxy answers %s %s, and explain says %s", url, status, code, said)
		}
		if !allowed && !strings.Contains(said, ": deny "+code) {
			t.Errorf("%s: the proxy says %q, and explain %s", url, code, said)
		}
	}
}
