// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"bawn/internal/secret"
)

func TestNothingPrintsASecret(t *testing.T) {
	type outer struct {
		Name  string
		inner struct{ s secret.Text }
		S     secret.Text
		P     *secret.Text
		M     map[string]secret.Text
	}
	s := secret.New("hunter2")
	o := outer{Name: "x", S: s, P: &s, M: map[string]secret.Text{"k": s}}
	o.inner.s = s
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, verb+verb+verb+"\n", s, o, &o)
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "s", s, "o", o)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "s", s, "o", o)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(text)
	if strings.Contains(b.String(), "hunter2") || strings.Contains(b.String(), "68756e74657232") {
		t.Errorf("printed:\n%s", b.String())
	}
	if s.Reveal() != "hunter2" || s.IsZero() || !(secret.Text{}).IsZero() || (secret.Text{}).Reveal() != "" {
		t.Error("the secret is not what was put in")
	}
}
