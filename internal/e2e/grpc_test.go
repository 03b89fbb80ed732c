// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bawn/internal/world/operator"
	"bawn/internal/world/services"
)

// TestGRPCMethodsAreJudged: a method of gRPC is a path, each call is judged by
// it, and the client is told in its own words. Where the server has no HTTP/2,
// a call goes nowhere.
func TestGRPCMethodsAreJudged(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	h.apply(t, `version: 1
profiles:
  coder:
    rules:
      - host: grpc.example.com
        methods: [POST]
        paths: [/grpc.testing.TestService/EmptyCall]
      - host: api.example.com
agents:
  dev: {profile: coder}
  guest: {profile: coder}
`)
	h.clients(t)
	h.grpcClient(t)
	if err := services.GRPC(h.w, filepath.Join(built.grpc(t), "server")); err != nil {
		t.Fatal(err)
	}
	n := h.w.Names
	for _, a := range everyWay() {
		for name, c := range map[string]struct{ host, method, says, code string }{
			"an allowed method":       {n.GRPC, "/grpc.testing.TestService/EmptyCall", "OK: ", ""},
			"another":                 {n.GRPC, "/grpc.testing.TestService/UnaryCall", "PermissionDenied: ", "path_not_allowed"},
			"a server without HTTP/2": {n.API, "/grpc.testing.TestService/EmptyCall", "PermissionDenied: ", "alpn_denied"},
		} {
			t.Run(a.name+" "+name, func(t *testing.T) {
				seen := len(h.decisions(t, all))
				r := h.in(t, a.agent, append(slices.Clone(a.before), "/opt/clients/grpcclient.bin", c.host+":443", c.method)...)
				if !strings.HasPrefix(r.out, c.says+c.code) {
					t.Errorf("the client says %q%s, want %q", r.out, r.err, c.says+c.code)
				}
				eventually(t, "the call is on record with code "+c.code, func() bool { return h.codeOf(t, seen) == c.code })
			})
		}
	}
	t.Run("grpc-js is told", func(t *testing.T) {
		r := h.in(t, "dev", "node", "/opt/clients/grpc.cjs", n.GRPC+":443", "UnaryCall")
		if !strings.HasPrefix(r.out, "7 path_not_allowed: The host is allowed, but not this path.") {
			t.Errorf("the client says %q%s", r.out, r.err)
		}
	})
	got, err := h.w.Upstream.Requests(n.API)
	if err != nil || len(got) > 0 {
		t.Errorf("went up to the server without HTTP/2: %v (%v)", got, err)
	}
}

// codeOf is the code of the only request that is on record since, of its
// decision or its outcome. Names that a client looks up do not count.
func (h *host) codeOf(t *testing.T, seen int) string {
	t.Helper()
	records, err := h.Records()
	if err != nil {
		t.Fatal(err)
	}
	code := ""
	for _, d := range h.decisions(t, all)[seen:] {
		if d.Proto == "dns" {
			continue
		}
		code += d.Code
		for _, o := range records {
			if o.Kind == "outcome" && o.Request == d.Request {
				code += o.Code
			}
		}
	}
	return code
}

// TestHTTP2IsAgreedOnOrNothing: who speaks HTTP/2 without having agreed on it
// gets nowhere, in TLS or without.
func TestHTTP2IsAgreedOnOrNothing(t *testing.T) {
	h := boot(t)
	h.clients(t)
	n := h.w.Names
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	session := h.rawSession(t, "dev")
	for name, j := range map[string]job{
		"in TLS that agreed on HTTP/1.1": tunnelled(n.API, preface),
		"in a tunnel without TLS":        {Connect: connectHead(n.API + ":80"), Send: []byte(preface)},
		"redirected, without TLS":        {To: n.API + ":80", Send: []byte(preface)},
		"to the proxy itself":            {Connect: nil, Send: []byte(preface)},
	} {
		t.Run(name, func(t *testing.T) {
			a := session.do(t, j)
			if strings.Contains(string(a.Got), "\x00\x00\x00\x04") || a.status() == "200" || a.code() == "" {
				t.Errorf("got %s", a)
			}
		})
	}
	r := h.in(t, "dev", "sh", "-c", without, "sh", "curl", "-sS", "--http2-prior-knowledge", "http://"+n.API+"/prior")
	if r.status == 0 {
		t.Errorf("curl: %s%s", r.out, r.err)
	}
	r = h.in(t, "dev", "sh", "-c", without, "sh", "curl", "-sS", "--http2", "http://"+n.API+"/upgrade")
	if r.status != 0 || !strings.Contains(r.out, `"proto":"HTTP/1.1"`) || strings.Contains(r.out, "Upgrade") {
		t.Errorf("curl, with the upgrade that is not passed on: %s%s", r.out, r.err)
	}
	if got, err := h.w.Upstream.Requests(n.API); err != nil || len(got) != 1 {
		t.Errorf("went up: %v (%v)", got, err)
	}
}
