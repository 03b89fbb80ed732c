// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wirejson

import (
	"encoding/json"
	"testing"
)

func TestI14ASCIIHasNothingElse(t *testing.T) {
	for _, s := range []string{"", "plain", "\u202etxt", "\u009b31m", "\u007f", "\U000e0041\U0001f600", "\u2028", "ä"} {
		text, err := json.Marshal(map[string]string{"v": s})
		if err != nil {
			t.Fatal(err)
		}
		out := ASCII(text)
		for _, c := range out {
			if c < ' ' || c >= 0x7f {
				t.Errorf("%q: %q holds %#x", s, out, c)
			}
		}
		var back struct{ V string }
		if err := json.Unmarshal(out, &back); err != nil || back.V != s {
			t.Errorf("%q came back as %q (%v)", s, back.V, err)
		}
	}
	if got := string(ASCII([]byte("\xff"))); got != `\ufffd` {
		t.Errorf("what is no UTF-8: %q", got)
	}
}
