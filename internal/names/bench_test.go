// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names_test

import (
	"testing"

	"bawn/internal/names"
)

// BenchmarkParse: a name is parsed several times for each request.
func BenchmarkParse(b *testing.B) {
	for _, s := range []string{"api.openai.com", "API.OpenAI.com", "xn--bcher-kva.example"} {
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := names.Parse(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
