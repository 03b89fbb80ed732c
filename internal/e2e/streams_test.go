// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// streamsPolicy allows the servers that begin, end and break off at odd times.
const streamsPolicy = `version: 1
profiles:
  coder:
    rules:
      - host: api.example.com
      - host: h2.example.com
      - host: h2only.example.com
      - host: db.example.com
        ports: [5432/tcp]
        inspect: none
agents:
  dev: {profile: coder}
  guest: {profile: coder}
`

// bootStreams starts Bawn with that policy.
func bootStreams(t *testing.T) *host {
	t.Helper()
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	h.apply(t, streamsPolicy)
	h.clients(t)
	return h
}

// legs are what the agent and the server speak.
func (h *host) legs() []struct{ name, curl, version, host string } {
	return []struct{ name, curl, version, host string }{
		{"h1", "curl -sS --http1.1", "1.1", h.w.Names.API},
		{"h2", "curl -sS --http2", "2", h.w.Names.H2},
		{"h2 to h1", "curl -sS --http2", "2", h.w.Names.API},
		{"h1 to h2", "curl -sS --http1.1", "1.1", h.w.Names.H2Only},
	}
}

// TestStreams: what is unusual in the order of requests and answers comes
// through as it is, in both versions and by every way.
func TestStreams(t *testing.T) {
	h := bootStreams(t)
	for _, a := range everyWay() {
		for _, leg := range h.legs() {
			t.Run(a.name+" "+leg.name, func(t *testing.T) {
				sh := func(line string) result {
					return h.in(t, a.agent, append(slices.Clone(a.before), "sh", "-c", strings.NewReplacer("CURL", leg.curl, "HOST", "https://"+leg.host).Replace(line))...)
				}
				h.interim(t, sh, leg.host, leg.version)
				h.earlyAnswer(t, sh)
				h.brokenOff(t, sh)
				h.noAltSvc(t, sh, leg.host)
				h.agentGoes(t, a, leg.curl, leg.host)
			})
		}
	}
}

// everyWay is by what ways the two agents of most tests come.
func everyWay() []arrival {
	return []arrival{
		{"explicit", "dev", "explicit", nil},
		{"transparent", "dev", "transparent", []string{"sh", "-c", without, "sh"}},
		{"uid", "guest", "explicit", nil},
	}
}

// interim: answers before the answer come through, and so does the wish to be
// told before a body is sent.
func (h *host) interim(t *testing.T, sh func(string) result, host, version string) {
	t.Helper()
	r := sh("CURL -i HOST/early")
	if n := strings.Count(r.out, "HTTP/"+version+" 103"); n != 2 || !strings.Contains(strings.ToLower(r.out), "link: </style>; rel=preload") {
		t.Errorf("early hints: %d of 2 came: %s%s", n, r.out, r.err)
	}
	r = sh("head -c 100000 /dev/zero | CURL -i -H 'Expect: 100-continue' --expect100-timeout 20 --data-binary @- HOST/upload")
	if !strings.Contains(r.out, "HTTP/"+version+" 100") || !strings.Contains(r.out, `"body_bytes":100000`) {
		t.Errorf("Expect: 100-continue: %s%s", r.out, r.err)
	}
	if err := h.w.Upstream.Forget(); err != nil {
		t.Fatal(err)
	}
	r = sh("head -c 100000 /dev/zero | CURL -i -H 'Expect: 100-continue' --expect100-timeout 20 --data-binary @- HOST/refuse")
	got, err := h.w.Upstream.Requests(host)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d requests went up (%v)", len(got), err)
	}
	if !strings.Contains(r.out, "HTTP/"+version+" 413") || strings.Contains(r.out, " 100") || got[0].Body != 0 {
		t.Errorf("Expect, refused: %s%s; %d bytes of the body went up", r.out, r.err, got[0].Body)
	}
}

// earlyAnswer: an answer that comes before the body has been sent reaches the
// agent, however much it has still to send.
func (h *host) earlyAnswer(t *testing.T, sh func(string) result) {
	t.Helper()
	r := sh("head -c 50000000 /dev/zero | CURL -o /dev/null -w '%{http_code}\\n' -T - -H Expect: HOST/refuse")
	if r.out != "413\n" {
		t.Errorf("50 MB to a server that refuses them at once: %s%s", r.out, r.err)
	}
}

// brokenOff: an answer that breaks off is not made whole.
func (h *host) brokenOff(t *testing.T, sh func(string) result) {
	t.Helper()
	r := sh("CURL -o /dev/null HOST/break; echo status $?")
	if !strings.HasPrefix(r.out, "status ") || r.out == "status 0\n" {
		t.Errorf("an answer that breaks off: %s%s", r.out, r.err)
	}
}

// noAltSvc: nothing invites the agent to QUIC.
func (h *host) noAltSvc(t *testing.T, sh func(string) result, host string) {
	t.Helper()
	if r := h.root(t, "curl -sSi https://"+host+"/altsvc"); !strings.Contains(strings.ToLower(r.out), "\nalt-svc: h3=") {
		t.Fatalf("the control: %s%s", r.out, r.err)
	}
	r := sh("CURL -i HOST/altsvc")
	if strings.Contains(strings.ToLower(r.out), "\nalt-svc:") || !strings.Contains(r.out, `"target":"/altsvc"`) {
		t.Errorf("Alt-Svc: %s%s", r.out, r.err)
	}
}

// agentGoes: when a client ends in the middle of an answer, or of its request,
// the server learns of it.
func (h *host) agentGoes(t *testing.T, a arrival, curl, host string) {
	t.Helper()
	for name, line := range map[string]string{
		"in an answer":  curl + " -N 'https://" + host + "/sse/endless?told=TOLD'",
		"in a request":  "(echo begun >&2; cat /dev/zero) | " + curl + " -T - 'https://" + host + "/swallow?told=TOLD'",
		"before either": "(echo begun >&2; sleep 100) | " + curl + " -T - 'https://" + host + "/swallow?told=TOLD'",
	} {
		told := token()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := h.session(ctx, a.agent, append(slices.Clone(a.before), "sh", "-c", strings.ReplaceAll(line, "TOLD", told))...)
		out, w := io.Pipe()
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		first, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Errorf("%s: %q, %v", name, first, err)
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
		if strings.Contains(line, "swallow") {
			eventually(t, "the request is at the server", func() bool { return h.arrived(t, host, told) })
		}
		cancel() // ends "bawn run" and with it the program
		if err := h.w.Upstream.Told(told); err != nil {
			t.Errorf("%s: the server was not told: %v", name, err)
		}
		_ = cmd.Wait()
	}
}

// arrived reports whether a request with the token is at a server.
func (h *host) arrived(t *testing.T, host, token string) bool {
	t.Helper()
	got, err := h.w.Upstream.Requests(host)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got {
		if strings.Contains(string(r.Head), token) {
			return true
		}
	}
	return false
}

// TestTCPEndsAsItEnds: in a connection that is not looked into, the end of one
// direction leaves the other open, and a reset is one on the other side.
func TestTCPEndsAsItEnds(t *testing.T) {
	h := bootStreams(t)
	for _, a := range everyWay() {
		for way, c := range map[string]struct{ said, gate string }{
			"half":        {"b'bye\\n'", ""},
			"other half":  {"closed", ""},
			"reset":       {"reset", "-reset"},
			"other reset": {"was reset", "none"},
		} {
			t.Run(a.name+" "+way, func(t *testing.T) {
				told := token()
				line := fmt.Sprintf("/usr/bin/python3 /opt/clients/halves.py %s '%s' %s", h.w.Names.Database, way, told)
				r := h.in(t, a.agent, append(slices.Clone(a.before), "sh", "-c", line)...)
				if r.out != c.said+"\n" {
					t.Errorf("printed %q, want %q: %s", r.out, c.said, r.err)
				}
				if c.gate == "none" {
					return
				}
				if err := h.w.Upstream.Told(told + c.gate); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestNoQUIC: UDP goes nowhere, is refused at once rather than lost, and
// counted.
func TestNoQUIC(t *testing.T) {
	h := bootStreams(t)
	const sender = `
import socket, sys
for to in sys.argv[1:]:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    try:
        s.connect((to, 443))
        for _ in range(2):
            s.send(b"\xc0\x00\x00\x00\x01" + bytes(1195))
            s.recv(1)
    except OSError as e:
        print(type(e).__name__)
`
	for placement, agent := range placements() {
		names := h.w.Names.API
		if placement == "uid" {
			names = "" // names do not resolve there
		}
		if err := h.w.ForgetWire(); err != nil {
			t.Fatal(err)
		}
		r := h.sh(t, agent, "/usr/bin/python3 -c '"+sender+"' "+names+" "+world.APIAddr)
		if got := strings.Fields(r.out); len(got) == 0 || slices.ContainsFunc(got, func(e string) bool { return e != "ConnectionRefusedError" && e != "PermissionError" }) {
			t.Errorf("%s: %s%s", placement, r.out, r.err)
		}
		flows, err := h.w.Wire()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			if f.Proto == "udp" && f.DstPort == 443 {
				t.Errorf("%s: left the host: %s", placement, f)
			}
		}
	}
}
