// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"slices"
	"strings"
	"testing"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/services"
)

// TestSquidServesWhoHasALogin, in both forms, and nobody else.
func TestSquidServesWhoHasALogin(t *testing.T) {
	roottest.Require(t)
	w := world.New(t)
	proxy, err := services.Squid(w, w.Names.Files)
	if err != nil {
		t.Fatal(err)
	}
	curl := "curl -sS -o /dev/null -w '%{http_connect} %{http_code}\n' "
	login := services.SquidUser + ":" + services.SquidPassword + "@"
	for line, want := range map[string]string{
		curl + "-x http://" + login + w.Names.Parent + ":3128 https://" + w.Names.API + "/":                          "200 200\n",
		curl + "-x https://" + login + w.Names.Parent + ":3129 https://" + w.Names.API + "/":                         "200 200\n",
		curl + "-p -x http://" + login + w.Names.Parent + ":3128 http://" + w.Names.API + "/":                        "200 200\n",
		curl + "-x http://" + w.Names.Parent + ":3128 https://" + w.Names.API + "/ 2>/dev/null || true":              "407 000\n",
		curl + "-x http://" + login + w.Names.Parent + ":3128 https://" + w.Names.Files + "/ 2>/dev/null || true":    "403 000\n",
		curl + "-x http://" + login + w.Names.Parent + ":3128 https://" + w.Names.API + ":8443/ 2>/dev/null || true": "403 000\n",
	} {
		if out := run(t, w, line); out != want {
			t.Errorf("%s: printed %q, want %q", line, out, want)
		}
	}
	lines, err := proxy.Log()
	if err != nil || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "CONNECT "+w.Names.API+":443") }) {
		t.Errorf("logged %q, %v", lines, err)
	}
}
