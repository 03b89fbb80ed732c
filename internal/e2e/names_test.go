// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

func TestI3NothingIsResolvedBeforeItIsAllowed(t *testing.T) {
	h := boot(t)
	h.apply(t, `version: 1
profiles:
  reader:
    rules:
      - host: api.example.com
        methods: [GET]
        paths: ["/ok/**"]
agents:
  dev: {profile: reader}
  guest: {profile: reader}
`)
	for placement, agent := range placements() {
		for _, c := range []struct{ url, code string }{
			{"https://" + h.w.Names.Evil + "/", "host_not_allowed"},
			{"https://c2VjcmV0." + h.w.Names.Evil + "/", "host_not_allowed"},
			{"http://" + h.w.Names.Evil + "/", "host_not_allowed"},
			{"https://" + h.w.Names.API + ":444/ok/x", "port_not_allowed"},
			{"http://" + h.w.Names.API + "/ok/x", "port_not_allowed"},
		} {
			if _, code := h.curl(t, agent, c.url); code != c.code {
				t.Errorf("%s: %s: code %q, want %s", placement, c.url, code, c.code)
			}
		}
		for _, c := range []struct{ url, method, code string }{
			{"https://" + h.w.Names.API + "/ok/x", "POST", "method_not_allowed"},
			{"https://" + h.w.Names.API + "/no", "GET", "path_not_allowed"},
		} {
			if _, code := h.curl(t, agent, c.url, "-X", c.method); code != c.code {
				t.Errorf("%s: %s %s: code %q, want %s", placement, c.method, c.url, code, c.code)
			}
		}
	}
	if queries := h.queries(t); len(queries) > 0 {
		t.Errorf("the resolver was asked %v, and nothing was allowed", queries)
	}
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.API+"/ok/x"); status != "200" {
		t.Errorf("the control: %s %s", status, code)
	}
}

func TestI4OneName(t *testing.T) {
	h := boot(t)
	h.clients(t)
	session := h.rawSession(t, "dev")
	api, evil := h.w.Names.API, h.w.Names.Evil
	get := func(host string) string {
		return "GET /one HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
	}
	for name, c := range map[string]struct {
		authority, sni, host string
		code                 string // of the refusal; empty: must pass
	}{
		"as it is":             {api + ":443", api, api, ""},
		"upper case":           {"API.Example.COM:443", api, "API.example.com", ""},
		"one final dot":        {api + ".:443", api, api + ".", ""},
		"port in Host":         {api + ":443", api, api + ":443", ""},
		"two final dots":       {api + "..:443", api, api, "host_invalid"},
		"other name in TLS":    {api + ":443", evil, api, "sni_mismatch"},
		"other name in Host":   {api + ":443", api, evil, "host_header_invalid"},
		"other port in Host":   {api + ":443", api, api + ":444", "host_header_invalid"},
		"no name in TLS":       {api + ":443", "", api, ""},
		"user in authority":    {"x@" + api + ":443", api, api, "host_invalid"},
		"percent in authority": {"%61pi.example.com:443", api, api, "host_invalid"},
		"sign in port":         {api + ":+443", api, api, "host_invalid"},
		"longer name":          {"not" + api + ":443", "not" + api, "not" + api, "host_not_allowed"},
		"name before":          {api + ".evil.example.org:443", api, api, "host_not_allowed"},
		"address":              {world.APIAddr + ":443", api, api, "ip_literal_denied"},
		"address in hex":       {"0x5db8d80a:443", api, api, "ip_literal_denied"},
		"address in octal":     {"0177.0.0.1:443", api, api, "ip_literal_denied"},
		"address as a number":  {"2130706433:443", api, api, "ip_literal_denied"},
		"short address":        {"127.1:443", api, api, "ip_literal_denied"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := h.w.Upstream.Forget(); err != nil {
				t.Fatal(err)
			}
			a := session.do(t, job{Connect: connectHead(c.authority), SNI: &c.sni, Send: []byte(get(c.host))})
			got, err := h.w.Upstream.Requests("")
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.code == "" && (a.status() != "200" || len(got) != 1):
				t.Errorf("refused: %s", a)
			case c.code == "" && (got[0].SNI != api || got[0].Host != api):
				t.Errorf("went up as SNI %s, Host %s", got[0].SNI, got[0].Host)
			case c.code != "" && len(got) > 0:
				t.Errorf("went up: %q", got[0].Head)
			case c.code != "" && a.code() != c.code && !(c.code == "sni_mismatch" && h.lastCode(t) == c.code):
				t.Errorf("code %q (record %s), want %s: %s", a.code(), h.lastCode(t), c.code, a)
			}
		})
	}
}

// lastCode is the code of the last decision.
func (h *host) lastCode(t *testing.T) string {
	t.Helper()
	d := h.decisions(t, all)
	if len(d) == 0 {
		return ""
	}
	return d[len(d)-1].Code
}

func TestI6VettedAddressesOnly(t *testing.T) {
	h := boot(t)
	n := h.w.Names
	for name, c := range map[string]struct{ url, code string }{
		"metadata":       {"https://" + n.Meta + "/", "address_not_public"},
		"private":        {"https://" + n.LAN + "/", "address_not_public"},
		"one of two":     {"https://" + n.Mixed + "/", "address_not_public"},
		"no such name":   {"https://" + n.Gone + "/", "address_unresolved"},
		"self-signed":    {"https://" + n.SelfSigned + "/", "upstream_tls_self_signed"},
		"expired":        {"https://" + n.Expired + "/", "upstream_tls_expired"},
		"wrong name":     {"https://" + n.WrongHost + "/", "upstream_tls_wrong_host"},
		"not yet valid":  {"https://" + n.NotYet + "/", "upstream_tls_not_yet_valid"},
		"other names":    {"https://" + n.Confined + "/", "upstream_tls_name_constrained"},
		"a short key":    {"https://" + n.Weak + "/", "upstream_tls_weak"},
		"unknown root":   {"https://" + n.UnknownCA + "/", "upstream_tls_untrusted"},
		"literal":        {"https://" + world.APIAddr + "/", "ip_literal_denied"},
		"IPv6 literal":   {"https://[" + world.APIAddr6 + "]/", "ip_literal_denied"},
		"mapped literal": {"http://[::ffff:169.254.169.254]/", "ip_literal_denied"},
	} {
		for placement, agent := range placements() {
			t.Run(name+" "+placement, func(t *testing.T) {
				if status, code := h.curl(t, agent, c.url); code != c.code {
					t.Errorf("%s: status %s, code %q, want %s", c.url, status, code, c.code)
				}
			})
		}
	}
	if err := h.w.DNS.Set("own.example.com", world.Answer{Addrs: []string{world.HostAddr6}}); err != nil {
		t.Fatal(err)
	}
	if found := h.evil(t); len(found) > 0 {
		t.Errorf("got out:\n%s", strings.Join(found, "\n"))
	}
}

// TestI6TheHostsOwnAddressIsRefused uses an address of the host that counts as
// public: behind it are the host's own services.
func TestI6TheHostsOwnAddressIsRefused(t *testing.T) {
	h := boot(t)
	if err := h.w.DNS.Set(h.w.Names.Files, world.Answer{Addrs: []string{world.HostAddr6}}); err != nil {
		t.Fatal(err)
	}
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.Files+"/"); code != "address_not_public" {
		t.Errorf("status %s, code %q, want address_not_public", status, code)
	}
}

func TestI6ANameThatTurnsPrivateIsRefusedThen(t *testing.T) {
	h := boot(t)
	url := "https://" + h.w.Names.Rebind + "/"
	if status, code := h.curl(t, "dev", url); status != "200" {
		t.Fatalf("at first: %s %s", status, code)
	}
	// Another session: the first one would go on by the address that was vetted
	// for it, as it may.
	if status, code := h.curl(t, "dev", url); code != "address_not_public" {
		t.Errorf("at the second answer: %s %s", status, code)
	}
	if found := h.evil(t); len(found) > 0 {
		t.Errorf("got out:\n%s", strings.Join(found, "\n"))
	}
}

func TestI6PrivateTargetsNeedTheRulesAddresses(t *testing.T) {
	h := boot(t)
	h.apply(t, strings.Replace(usual, "      - host: models.corp.example\n", "      - host: models.corp.example\n        addresses: [10.0.0.0/24]\n", 1))
	path := "/" + token()
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.LAN+path); status != "200" {
		t.Errorf("status %s, code %s", status, code)
	}
	got, err := h.w.LAN.Requests(h.w.Names.LAN)
	if err != nil || len(got) != 1 || !strings.HasPrefix(string(got[0].Head), "GET "+path+" ") {
		t.Errorf("the private service got %v (%v)", got, err)
	}
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.Meta+"/"); code != "address_not_public" {
		t.Errorf("another name: status %s, code %q", status, code)
	}
}

func TestI6FailoverStaysAmongVettedAddresses(t *testing.T) {
	h := boot(t)
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.Multi+"/x", "-m", "60"); status != "200" {
		t.Fatalf("status %s, code %s", status, code)
	}
	got, err := h.w.Upstream.Requests(h.w.Names.Multi)
	if err != nil || len(got) != 1 || got[0].Server != world.APIAddr+":443" {
		t.Errorf("requests %+v (%v)", got, err)
	}
	flows, err := h.w.Wire()
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, f := range flows {
		if f.Proto == "tcp" {
			tried[f.Dst.String()] = true
		}
	}
	if len(tried) != 3 || !tried[world.SilentAddr] || !tried[world.RefusedAddr] {
		t.Errorf("dialled %v, want the three addresses of the answer", tried)
	}
}

func TestI9IdentityIsWhereItCameFrom(t *testing.T) {
	h := bootTwoOfEach(t)
	// What a program says about itself changes nothing.
	path := "/" + token()
	status, code := h.curl(t, "dev", "https://"+h.w.Names.API+path, "-H", "Bawn-Agent: guest", "-H", "X-Agent: guest", "--proxy-header", "Bawn-Agent: guest", "--proxy-user", "guest:x")
	if status != "200" {
		t.Errorf("status %s %s", status, code)
	}
	for _, r := range h.decisions(t, func(r operator.Record) bool { return r.Path == path }) {
		if r.Agent != "dev" || r.User != "alice" {
			t.Errorf("record %+v, want agent dev of alice", r)
		}
	}
	// Another's proxy address does not lend another's rights.
	one, two := h.shell(t, "guest"), h.shell(t, "guest2")
	other := strings.TrimSpace(two.run(t, "echo $HTTPS_PROXY"))
	own := strings.TrimSpace(one.run(t, "echo $HTTPS_PROXY"))
	if other == "" || other == own {
		t.Fatalf("the agents' proxies are %q and %q", own, other)
	}
	path = "/" + token()
	if status, _ := one.curl(t, "https://"+h.w.Names.API+path, "-x", other); status == "200" {
		t.Errorf("guest used the proxy of guest2")
	}
	for _, r := range h.decisions(t, func(r operator.Record) bool { return r.Path == path }) {
		t.Errorf("recorded %+v", r)
	}
	if status, code := one.curl(t, "https://"+h.w.Names.API+path); status != "200" {
		t.Errorf("the control: %s %s", status, code)
	}
	// The operator's other accounts are no agents either.
	r := h.root(t, "setpriv --reuid="+operator.Account+" --regid="+operator.Account+" --clear-groups curl -sS -m 5 -x "+own+" https://"+h.w.Names.API+path+"2")
	if r.status == 0 {
		t.Errorf("an account of the host used an agent's proxy: %s", r.out)
	}
}

func TestI12UndecidedIsDeny(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	for placement, agent := range placements() {
		if status, code := h.curl(t, agent, "https://"+h.w.Names.API+"/"); code != "policy_unavailable" {
			t.Errorf("%s, no policy at all: status %s, code %q", placement, status, code)
		}
	}
	for _, bad := range []string{
		"version: 1\nagents: {dev: {rules: [{host: api.example.com, methdos: [GET]}]}}\n", // unknown key
		"version: 1\nagents: {nobody: {rules: [{host: api.example.com}]}}\n",              // unknown agent
		"version: 2\n",
		"version: 1\nagents: {dev: {rules: [{host: '*'}]}}\n",
		"version: 1\nagents: {dev: {rules: [{host: api.example.com, methods: GET}]}",
	} {
		if err := h.Apply(t.Context(), bad); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.API+"/"); code != "policy_unavailable" {
		t.Errorf("after refused policies: status %s, code %q", status, code)
	}
	h.apply(t, "version: 1\nagents: {dev: {rules: [{host: api.example.com, methods: []}]}}\n")
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.API+"/"); status != "403" {
		t.Errorf("an empty list of methods: status %s, code %s", status, code)
	}
	if status, code := h.curl(t, "guest", "https://"+h.w.Names.API+"/"); status != "403" {
		t.Errorf("an agent that the policy does not name: status %s, code %s", status, code)
	}
	if got, err := h.w.Upstream.Requests(""); err != nil || len(got) > 0 {
		t.Errorf("went up: %v (%v)", got, err)
	}
}
