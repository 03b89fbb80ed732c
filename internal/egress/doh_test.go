// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"testing"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

func TestNoDNS(t *testing.T) {
	for _, c := range []struct {
		name, value string
		refused     bool
	}{
		{"Content-Type", "application/dns-message", true},
		{"content_type", "Application/DNS-Message; charset=x", true},
		{"Accept", "text/html, application/dns-json;q=0.9", true},
		{"accept", "application/dns+json", true},
		{"Content-Type", "application/oblivious-dns-message", true},
		{"Content-Type", "application/dns", true},
		{"Content-Type", "application/json", false},
		{"Content-Type", "application/dnsx", false},
		{"Content-Type", "text/plain; note=dns-message", false},
		{"Accept", "*/*", false},
		{"Accept", "", false},
		{"Accept", "application/", false},
		{"X-Type", "application/dns-message", false},
	} {
		v := noDNS(httpwire.Fields{{Name: "Host", Value: "ok.example"}, {Name: c.name, Value: c.value}})
		if v.Allowed() == c.refused || (c.refused && v.Code != codes.ContentTypeDenied) {
			t.Errorf("%s: %s: %+v", c.name, c.value, v)
		}
	}
}
