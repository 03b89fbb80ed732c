// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/config"
)

// TestThePageShowsEveryKeyWithItsDefault reads the example of
// docs/configuration.md.
func TestThePageShowsEveryKeyWithItsDefault(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```yaml\n")
	text, _, ok := strings.Cut(after, "```")
	if !ok {
		t.Fatal("no example")
	}
	got, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Resolvers = []string{}
	want.Credentials = map[string]config.Credential{}
	want.ParentProxy.Addresses, want.ParentProxy.Bypass = []string{}, []string{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-default +page\n%s", diff)
	}
	for _, section := range []reflect.Type{reflect.TypeFor[config.Config](), reflect.TypeFor[config.Limits](), reflect.TypeFor[config.Wildcards](), reflect.TypeFor[config.Grants](), reflect.TypeFor[config.Doctor](), reflect.TypeFor[config.Audit](), reflect.TypeFor[config.ParentProxy]()} {
		for i := range section.NumField() {
			if key := section.Field(i).Tag.Get("yaml"); !strings.Contains(text, key+":") {
				t.Errorf("key %s is not shown", key)
			}
		}
	}
}

// TestThePageOnUpstreamsHasAConfigurationThatIsRead and names every key of its
// sections.
func TestThePageOnUpstreamsHasAConfigurationThatIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/upstream-tls.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ := strings.Cut(after, "```")
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := c.Parent()
	if !ok || !p.TLS || p.Name() != "proxy.corp.example" || p.Port != 3129 || len(p.Addresses) != 1 || len(p.Bypass) != 1 || len(c.Credentials["partner-cert"].HostNames()) != 1 {
		t.Errorf("read %+v, %+v", p, c.Credentials)
	}
	for _, section := range []reflect.Type{reflect.TypeFor[config.Credential](), reflect.TypeFor[config.ParentProxy]()} {
		for i := range section.NumField() {
			if key := section.Field(i).Tag.Get("yaml"); !strings.Contains(text, key+":") {
				t.Errorf("key %s is not shown", key)
			}
		}
	}
}
