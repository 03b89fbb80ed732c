// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package agentenv_test

import (
	"slices"
	"strings"
	"testing"

	"bawn/internal/agentenv"
)

var spec = agentenv.Spec{
	Agent: "dev", Session: "s-1", Home: "/home/dev", Work: "/work", Temp: "/tmp",
	Proxy: "198.18.0.1:3128", CA: "/run/bawn/public/ca.crt", Bundle: "/run/bawn/public/bundle.crt",
	Lends: []string{"/home/op/.nvm/versions/node/v24"},
	Given: []string{"TERM=xterm-256color", "EDITOR=vi", "HTTPS_PROXY=http://evil.example:1", "9BAD=x"},
}

func TestEveryToolFindsProxyAndRoots(t *testing.T) {
	env := agentenv.Env(spec)
	for _, want := range []string{
		"https_proxy=http://198.18.0.1:3128", "HTTPS_PROXY=http://198.18.0.1:3128", "http_proxy=http://198.18.0.1:3128",
		"NO_PROXY=localhost,127.0.0.1,::1", "NODE_USE_ENV_PROXY=1",
		"NODE_EXTRA_CA_CERTS=/run/bawn/public/ca.crt",
		"SSL_CERT_FILE=/run/bawn/public/bundle.crt", "GIT_SSL_CAINFO=/run/bawn/public/bundle.crt",
		"REQUESTS_CA_BUNDLE=/run/bawn/public/bundle.crt", "PIP_CERT=/run/bawn/public/bundle.crt",
		"CURL_CA_BUNDLE=/run/bawn/public/bundle.crt", "CARGO_HTTP_CAINFO=/run/bawn/public/bundle.crt",
		"NPM_CONFIG_CAFILE=/run/bawn/public/bundle.crt", "AWS_CA_BUNDLE=/run/bawn/public/bundle.crt",
		"BUNDLE_SSL_CA_CERT=/run/bawn/public/bundle.crt", "DENO_CERT=/run/bawn/public/ca.crt", "UV_NATIVE_TLS=true",
		"TERM=xterm-256color", "EDITOR=vi", "HOME=/home/dev",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("missing %s", want)
		}
	}
	seen := map[string]bool{}
	for _, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		if seen[k] {
			t.Errorf("%s twice", k)
		}
		seen[k] = true
	}
	if seen["9BAD"] {
		t.Error("a name that is none came in")
	}
}

func TestLentProgramsComeFirst(t *testing.T) {
	for _, kv := range agentenv.Env(spec) {
		if p, ok := strings.CutPrefix(kv, "PATH="); ok {
			if !strings.HasPrefix(p, "/home/op/.nvm/versions/node/v24/bin:") || strings.Index(p, "/usr/bin") > strings.Index(p, "/home/dev/") {
				t.Errorf("PATH is %s", p)
			}
		}
	}
}

func TestWhatLeadsToTheProxyIsNotTheOperators(t *testing.T) {
	for _, bad := range []string{"HTTPS_PROXY=x", "https_proxy=", "SSL_CERT_FILE=/x", "NODE_EXTRA_CA_CERTS=/x", "=x", "A", "A B=x", "A=\x00"} {
		if agentenv.CheckGiven(bad) == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	for _, ok := range []string{"A=", "TERM=xterm", "_x1=y=z"} {
		if err := agentenv.CheckGiven(ok); err != nil {
			t.Errorf("%q refused: %v", ok, err)
		}
	}
}
