// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package talk_test

import (
	"testing"

	"bawn/internal/casetest/talk"
)

func TestAnswers(t *testing.T) {
	for in, want := range map[string][3]string{ // as HTTP/1.1, interim, final
		"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody":            {"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", "", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody"},
		"HTTP/2 204\r\n\r\n":                             {"HTTP/1.1 204 \r\n\r\n", "", "HTTP/1.1 204 \r\n\r\n"},
		"HTTP/2 103\r\nA: b\r\n\r\nHTTP/2 200 \r\n\r\nx": {"HTTP/1.1 103 \r\nA: b\r\n\r\nHTTP/1.1 200 \r\n\r\nx", "HTTP/1.1 103 \r\nA: b\r\n\r\n", "HTTP/1.1 200 \r\n\r\nx"},
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":       {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "", "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
	} {
		one := talk.AsHTTP1([]byte(in))
		interim, final := talk.SplitAnswer(one)
		if string(one) != want[0] || string(interim) != want[1] || string(final) != want[2] {
			t.Errorf("%q: %q, %q, %q", in, one, interim, final)
		}
	}
}
