// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"encoding/json"
	"io"

	"bawn/internal/wirejson"
)

// An inertEncoder writes JSON lines in ASCII without control characters: what
// agents wrote, or somebody put into a journal, does nothing where the file is
// shown.
type inertEncoder struct{ out io.Writer }

// Encode writes one line.
func (e inertEncoder) Encode(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := e.out.Write(wirejson.ASCII(b.Bytes()))
	return err
}
