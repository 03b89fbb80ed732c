// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secret keeps secrets out of logs, errors and encodings.
//
// Whatever prints, logs or marshals a [Text] gets a placeholder, also from
// within other values; only [Text.Reveal] gives what is in it, so that its
// uses can be found.
package secret

import (
	"fmt"
	"log/slog"
)

// placeholder is what everybody sees.
const placeholder = "[secret]"

// A Text is a secret. The zero Text is none.
type Text struct{ text *string } // a pointer: fmt would print a string of an unexported field

// New returns the secret s.
func New(s string) Text { return Text{&s} }

// IsZero reports whether there is no secret.
func (t Text) IsZero() bool { return t.text == nil }

// Reveal returns the secret itself.
func (t Text) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// Format writes the placeholder, whatever the verb.
func (t Text) Format(f fmt.State, _ rune) { fmt.Fprint(f, placeholder) }

// String gives the placeholder.
func (t Text) String() string { return placeholder }

// LogValue gives the placeholder to slog.
func (t Text) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalText gives the placeholder to every encoding.
func (t Text) MarshalText() ([]byte, error) { return []byte(placeholder), nil }
