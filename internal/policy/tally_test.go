// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	"bawn/internal/codes"
	"bawn/internal/names"
)

// TestI12TwoCredentialsAreDenied when a request is judged, should compiling ever
// overlook that it matches both.
func TestI12TwoCredentialsAreDenied(t *testing.T) {
	host := names.MustParse("a.example.com")
	t0 := tally{request: true, query: Query{Host: host, Port: 443, Method: "GET", Path: "/"}}
	for i, name := range []string{"cert-a", "cert-b"} {
		t0.see(&rule{id: name, line: i + 1, host: names.Exact(host), ports: []Port{{Number: 443}}, credential: name})
	}
	if d := t0.decision(); d.Verdict.Allowed() || d.Verdict.Code != codes.CredentialAmbiguous || d.Credential != "" {
		t.Errorf("decided %+v", d)
	}
}
