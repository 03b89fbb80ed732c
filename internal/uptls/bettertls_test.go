// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package uptls_test

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/roottest"
	"bawn/internal/uptls"
)

// A suite is what BetterTLS (tools/go.mod) exports of one of its suites.
type suite struct {
	TestCases []betterCase `json:"testCases"`
}

type betterCase struct {
	ID           int      `json:"id"`
	Certificates [][]byte `json:"certificates"` // the server's own first
	Hostname     string   `json:"hostname"`
	Features     []string `json:"requiredFeatures"`
	Expected     string   `json:"expected"`         // ACCEPT or REJECT
	Advice       bool     `json:"failureIsWarning"` // what no standard demands
}

type betterTests struct {
	Root   []byte           `json:"trustRoot"`
	Suites map[string]suite `json:"suites"`
}

// betterTLS has the suites generated, once a month: they take a quarter of a
// minute and 30 MB, and their certificates are good for a year.
func betterTLS(t *testing.T) betterTests {
	t.Helper()
	cache, err := os.UserCacheDir()
	must(t, err)
	path := filepath.Join(cache, "bawn-tests", "bettertls.json")
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > 30*24*time.Hour {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		fresh := path + fmt.Sprint(".", os.Getpid())
		defer os.Remove(fresh)
		cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+filepath.Join("..", "..", "tools", "go.mod"), "bettertls", "export-tests", "-out", fresh)
		if out, err := cmd.CombinedOutput(); err != nil {
			roottest.Skip(t, fmt.Sprintf("BetterTLS cannot be generated: %v: %.500s", err, out))
		}
		must(t, os.Rename(fresh, path))
	}
	text, err := os.ReadFile(path)
	must(t, err)
	var tests betterTests
	must(t, json.Unmarshal(text, &tests))
	return tests
}

// reasons are our codes for chains that are refused for one reason only.
var reasons = map[string]codes.Code{
	"[INVALID_REASON_EXPIRED]":                   codes.UpstreamTLSExpired,
	"[INVALID_REASON_NAME_CONSTRAINTS]":          codes.UpstreamTLSNameConstrained,
	"[INVALID_REASON_BAD_EKU]":                   codes.UpstreamTLSInvalid,
	"[INVALID_REASON_MISSING_BASIC_CONSTRAINTS]": codes.UpstreamTLSUntrusted, // the verifier looks for an issuer that may sign
	"[INVALID_REASON_NOT_A_CA]":                  codes.UpstreamTLSUntrusted,
	"[INVALID_REASON_DEPRECATED_CRYPTO]":         codes.UpstreamTLSWeak,
	"[VALIDATE_DNS]":                             codes.UpstreamTLSWrongHost,
	"[VALIDATE_IP]":                              codes.UpstreamTLSWrongHost,
}

// TestBetterTLS judges by the suites of BetterTLS: name constraints of every
// form, and chains of which some branches are invalid. Our verdict is theirs in
// every case, those that no standard demands among them.
func TestBetterTLS(t *testing.T) {
	tests := betterTLS(t)
	root, err := x509.ParseCertificate(tests.Root)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(root)
	trust := uptls.New(pool, nil)
	if len(tests.Suites["nameconstraints"].TestCases) < 9000 || len(tests.Suites["pathbuilding"].TestCases) < 80 {
		t.Fatal("the suites are not whole")
	}
	for _, name := range slices.Sorted(maps.Keys(tests.Suites)) {
		count := map[codes.Code]int{}
		for i, c := range tests.Suites[name].TestCases {
			if testing.Short() && i%10 != 0 && name == "nameconstraints" {
				continue // the race detector learns nothing more
			}
			code := verdictOf(t, trust, c)
			count[code]++
			if (code == "") != (c.Expected == "ACCEPT") {
				t.Errorf("%s %d: %q, want %s (%v, advice only: %v)", name, c.ID, code, c.Expected, c.Features, c.Advice)
			}
			if want, one := reasons[fmt.Sprint(c.Features)]; one && code != "" && code != want {
				t.Errorf("%s %d: code %s, want %s (%v)", name, c.ID, code, want, c.Features)
			}
		}
		t.Logf("%s: %v", name, count)
	}
}

// verdictOf is our code for a case.
func verdictOf(t *testing.T, trust *uptls.Trust, c betterCase) codes.Code {
	var chain []*x509.Certificate
	for _, der := range c.Certificates {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return codes.UpstreamTLSInvalid // as the TLS library has it
		}
		chain = append(chain, cert)
	}
	_, err := trust.Verify(chain, c.Hostname)
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*uptls.Error](err)
	if !ok {
		t.Fatalf("case %d: no code: %v", c.ID, err)
	}
	return e.Code
}
