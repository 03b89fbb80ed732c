// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package codes_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bawn/internal/codes"
)

// constants reads the codes out of the source, so that one which is not in the
// catalogue cannot hide.
func constants(t *testing.T) []codes.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []codes.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, codes.Code(text))
		return true
	})
	if len(list) < 50 {
		t.Fatalf("found %d constants only", len(list))
	}
	return list
}

func TestEveryCodeIsInTheCatalogueOnce(t *testing.T) {
	want := constants(t)
	var got []codes.Code
	for _, e := range codes.Catalogue() {
		got = append(got, e.Code)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("catalogue has\n%v\nthe constants are\n%v", got, want)
	}
}

func TestEntriesAreComplete(t *testing.T) {
	form := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	for _, e := range codes.Catalogue() {
		if !form.MatchString(string(e.Code)) {
			t.Errorf("%s: not snake_case", e.Code)
		}
		if !slices.Contains(codes.Groups(), e.Group) {
			t.Errorf("%s: group %q", e.Code, e.Group)
		}
		if e.Meaning == "" || e.Agent == "" || e.Operator == "" {
			t.Errorf("%s: an empty text", e.Code)
		}
		if strings.Count(e.Meaning, ". ") > 0 || !strings.HasSuffix(e.Meaning, ".") {
			t.Errorf("%s: meaning is not one sentence: %q", e.Code, e.Meaning)
		}
		if (e.Status < 400 || e.Status > 599) != (e.Group == "DNS" && e.Code != codes.DNSLabelBudget) {
			t.Errorf("%s: status %d", e.Code, e.Status)
		}
	}
}

// A model that reads "try again" does so. Guidance may only say not to.
func TestGuidanceNeverInvitesRetries(t *testing.T) {
	invites := regexp.MustCompile(`(?i)\b(retry|try again|try another|later|wait and)\b`)
	for _, e := range codes.Catalogue() {
		if m := invites.FindString(e.Agent); m != "" {
			t.Errorf("%s: guidance for the agent says %q: %s", e.Code, m, e.Agent)
		}
	}
}

func TestLookup(t *testing.T) {
	if e, ok := codes.Lookup(codes.HeadTooLarge); !ok || e.Status != 431 || e.Code != codes.HeadTooLarge {
		t.Errorf("Lookup(head_too_large) = %+v, %v", e, ok)
	}
	if e, ok := codes.Lookup("no_such_code"); ok || e.Code != codes.InternalError {
		t.Errorf("Lookup(no_such_code) = %+v, %v", e, ok)
	}
	for code, want := range map[codes.Code]int{
		codes.HostNotAllowed: 403, codes.TargetInvalid: 400, codes.BodyTooLarge: 413, codes.RateLimited: 429,
		codes.UpstreamUnreachable: 502, codes.LeaseLapsed: 503, codes.DNSMalformed: 403, codes.DNSLabelBudget: 429, "": 500,
	} {
		if got := codes.StatusOf(code); got != want {
			t.Errorf("StatusOf(%q) = %d, want %d", code, got, want)
		}
	}
}

// TestNoRefusalIsASuccessOfGRPC: whatever the code, a client of gRPC sees an error,
// and what is refused by policy or a budget is no reason to try again at once.
func TestNoRefusalIsASuccessOfGRPC(t *testing.T) {
	for _, e := range codes.Catalogue() {
		s := codes.GRPCStatusOf(e.Code)
		if s < 1 || s > 16 {
			t.Errorf("%s: %d", e.Code, s)
		}
		if (s == 14) != (e.Status == 502 || e.Status == 503) {
			t.Errorf("%s with status %d is %d", e.Code, e.Status, s)
		}
	}
	for code, want := range map[codes.Code]int{
		codes.PathNotAllowed: 7, codes.AddressNotPublic: 7, codes.BudgetExceeded: 8, codes.RateLimited: 8,
		codes.UpstreamUnreachable: 14, codes.LeaseLapsed: 14, codes.HeaderInvalid: 13, "unknown": 13,
	} {
		if got := codes.GRPCStatusOf(code); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}
