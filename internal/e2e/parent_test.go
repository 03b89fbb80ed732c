// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/operator"
	"bawn/internal/world/services"
)

// behind is the policy of agents whose host reaches the internet through a
// parent proxy.
const behind = `version: 1
profiles:
  coder:
    rules:
      - host: api.example.com
        ports: [443, 80]
      - host: h2only.example.com
      - host: files.example.com
      - host: git.example.com
      - host: models.corp.example
        addresses: [10.0.0.0/8]
      - host: gone.example.com
      - host: self-signed.example.com
      - host: ssh.example.com
        ports: [22]
        inspect: none
      - host: db.example.com
        ports: [5432]
        inspect: none
agents:
  dev: {profile: coder}
  guest: {profile: coder}
`

// bootBehind starts Bawn on a host with a parent proxy at address.
func bootBehind(t *testing.T, w *world.World, address string) *host {
	t.Helper()
	op, err := operator.Start(t.Context(), w, operator.Options{
		Binary: built.bawn(t),
		Config: fmt.Sprintf(`version: 1
parent_proxy:
  address: %s
  username: %s
  password_file: /etc/bawn/parent-password
  addresses: [%s/32]
  bypass: [git.example.com]
`, address, services.SquidUser, world.ParentAddr),
		Files: map[string]string{"parent-password": services.SquidPassword + "\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{op, w}
	h.agents(t)
	h.apply(t, behind)
	return h
}

// TestEverythingGoesThroughTheParent of a network that lets nothing else out:
// Squid, with a login, with TLS to itself and without.
func TestEverythingGoesThroughTheParent(t *testing.T) {
	roottest.Require(t)
	for form, address := range map[string]string{"plain": "proxy.corp.example:3128", "TLS": "https://proxy.corp.example:3129"} {
		t.Run(form, func(t *testing.T) {
			w := world.New(t)
			squid, err := services.Squid(w, w.Names.Files)
			if err != nil {
				t.Fatal(err)
			}
			ssh, err := services.SSH(w)
			if err != nil {
				t.Fatal(err)
			}
			h := bootBehind(t, w, address)
			port := address[len(address)-4:]
			if out := h.bawn(t, "doctor", "-v"); !strings.Contains(squeezed(out), "ok the parent proxy answers\n") {
				t.Errorf("doctor:\n%s", out)
			}
			if err := w.ForgetWire(); err != nil {
				t.Fatal(err)
			}
			if err := w.DNS.Forget(); err != nil {
				t.Fatal(err)
			}
			h.passes(t, ssh)
			h.onlyTo(t, port)
			h.refusals(t)
			h.pastTheParent(t)
			lines, err := squid.Log()
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"CONNECT api.example.com:443", "CONNECT api.example.com:80", "CONNECT ssh.example.com:22"} {
				if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, "/200 "+want) }) {
					t.Errorf("squid did not see %s:\n%s", want, strings.Join(lines, "\n"))
				}
			}
			for _, name := range []string{"git.example.com", "models.corp.example"} {
				if strings.Contains(strings.Join(lines, "\n"), name) {
					t.Errorf("squid was asked for %s", name)
				}
			}
		})
	}
}

// passes tries what has to work, in both placements.
func (h *host) passes(t *testing.T, ssh *services.SSHServer) {
	t.Helper()
	for placement, agent := range placements() {
		for _, url := range []string{"https://" + h.w.Names.API + "/", "https://" + h.w.Names.H2Only + "/", "http://" + h.w.Names.API + "/"} {
			if status, code := h.curl(t, agent, url); status != "200" {
				t.Errorf("%s: %s: %s %s", placement, url, status, code)
			}
		}
	}
	key := strings.ReplaceAll(string(ssh.Key), "\n", "\\n")
	r := h.sh(t, "dev", "umask 077; printf -- '"+key+"' >key; printf '%s' '"+ssh.KnownHost+"' >known; "+
		"ssh -i key -o UserKnownHostsFile=known -o BatchMode=yes ada@"+h.w.Names.SSH+" id -un")
	if r.out != "ada\n" {
		t.Errorf("ssh: %+v", r)
	}
	for _, r := range h.decisions(t, func(r operator.Record) bool { return r.Verdict == "allow" && r.Proto != "dns" }) {
		if r.Vetted != "parent" {
			t.Errorf("the record does not say who vetted: %+v", r)
		}
	}
}

// onlyTo fails if anything but the parent was connected to, or any name but its
// own was asked for.
func (h *host) onlyTo(t *testing.T, port string) {
	t.Helper()
	flows, err := h.w.Wire()
	if err != nil {
		t.Fatal(err)
	}
	to := 0
	for _, f := range flows {
		switch where := fmt.Sprintf("%s:%d", f.Dst, f.DstPort); {
		case where == world.ParentAddr+":"+port:
			to++
		case f.DstPort == 53:
		default:
			t.Errorf("past the parent: %s", f)
		}
	}
	if to == 0 {
		t.Error("nothing went to the parent")
	}
	for _, q := range h.queries(t) {
		if strings.HasPrefix(q.From, world.HostAddr) && q.Name != h.w.Names.Parent {
			t.Errorf("the host asked for %s", q)
		}
	}
}

// refusals tries what the parent refuses, and what is wrong behind it.
func (h *host) refusals(t *testing.T) {
	t.Helper()
	for url, want := range map[string]string{
		"https://" + h.w.Names.Files + "/":      "parent_proxy_refused",
		"https://" + h.w.Names.Gone + "/":       "upstream_unreachable",
		"https://" + h.w.Names.SelfSigned + "/": "upstream_tls_self_signed",
		"https://" + h.w.Names.LAN + "/":        "address_not_public",
	} {
		if status, code := h.curl(t, "dev", url); code != want {
			t.Errorf("%s: %s %s, want %s", url, status, code, want)
		}
	}
	h.sh(t, "dev", "printf x | nc -w 10 "+h.w.Names.Database+" 5432")
	eventually(t, "the refusal of the database's port is on record", func() bool {
		records, err := h.Records()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(records, func(r operator.Record) bool {
			return r.Kind == "outcome" && r.Code == "parent_proxy_refused" && strings.Contains(r.Error, "403")
		})
	})
	if packets, err := h.w.LAN.Packets(); err != nil || len(packets) > 0 {
		t.Errorf("the private network got %v, %v", packets, err)
	}
}

// pastTheParent tries a host that the configuration exempts.
func (h *host) pastTheParent(t *testing.T) {
	t.Helper()
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.Git+"/tools/hello.git/info/refs?service=git-upload-pack"); status != "200" {
		t.Errorf("git: %s %s", status, code)
	}
	d := h.decisions(t, func(r operator.Record) bool { return r.Host == h.w.Names.Git && r.Verdict == "allow" && r.Path != "" })
	if len(d) != 1 || d[0].Vetted != "" {
		t.Errorf("records %+v", d)
	}
}

// TestAParentThatIsNotThere keeps everything in and lets Bawn start.
func TestAParentThatIsNotThere(t *testing.T) {
	roottest.Require(t)
	w := world.New(t)
	h := bootBehind(t, w, world.ParentAddr+":3128")
	if status, code := h.curl(t, "dev", "https://"+w.Names.API+"/"); status != "502" || code != "parent_proxy_unreachable" {
		t.Errorf("%s %s", status, code)
	}
	out, err := h.Bawn(t.Context(), "doctor")
	if err == nil || !strings.Contains(squeezed(out), "FAILED the parent proxy answers the parent proxy cannot be reached: ") || !strings.Contains(out, "fix: look at parent_proxy") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	if _, err := services.Squid(w, w.Names.Files); err != nil {
		t.Fatal(err)
	}
	if status, code := h.curl(t, "dev", "https://"+w.Names.API+"/"); status != "200" {
		t.Errorf("once it is there: %s %s", status, code)
	}
}

// squeezed makes one blank of several, within lines.
func squeezed(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}
