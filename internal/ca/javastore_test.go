// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ca_test

import (
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/ca"
	"bawn/internal/roottest"
)

func TestJavaReadsTheStore(t *testing.T) {
	_, bundle, err := ca.SystemRoots("/")
	if err != nil {
		roottest.Skip(t, err.Error())
	}
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		roottest.Skip(t, "needs Java's keytool")
	}
	store, err := ca.JavaStore(bundle)
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(t.TempDir(), "cacerts.jks")
	if err := os.WriteFile(p, store, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(keytool, "-J-Duser.language=en", "-list", "-keystore", p, "-storetype", "JKS", "-storepass", ca.JavaPassword).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	if got := strings.Count(string(out), "trustedCertEntry"); got != n || n == 0 {
		t.Errorf("Java sees %d roots, the bundle has %d", got, n)
	}
}

func TestAJavaStoreOfNothingIsRefused(t *testing.T) {
	if _, err := ca.JavaStore([]byte("no certificate")); err == nil {
		t.Error("made")
	}
}
