// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"bytes"
	"slices"
	"strings"
)

// Interim reports whether a head is that of an interim response, behind which
// another follows.
func Interim(head string) bool {
	_, status, _ := strings.Cut(head, " ")
	return strings.HasPrefix(head, "HTTP/") && strings.HasPrefix(status, "1") && !strings.HasPrefix(status, "101")
}

// SplitAnswer divides an answer into its interim responses and the final one.
func SplitAnswer(answer []byte) (interim, final []byte) {
	final = answer
	for Interim(string(final)) {
		_, final, _ = bytes.Cut(final, []byte("\r\n\r\n"))
	}
	return answer[:len(answer)-len(final)], final
}

// AsHTTP1 gives the answer of a server that speaks HTTP/2 in HTTP/1.1, for a
// client that speaks nothing else.
func AsHTTP1(answer []byte) []byte {
	rest, isTwo := bytes.CutPrefix(answer, []byte("HTTP/2 "))
	if !isTwo {
		return answer
	}
	status, after, _ := bytes.Cut(rest, []byte("\r\n"))
	if len(bytes.Fields(status)) == 1 {
		status = append(bytes.Clone(bytes.TrimSpace(status)), ' ') // a reason may be empty, the blank before it not left out
	}
	answer = slices.Concat([]byte("HTTP/1.1 "), status, []byte("\r\n"), after)
	if Interim(string(answer)) {
		head, next, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
		answer = slices.Concat(head, []byte("\r\n\r\n"), AsHTTP1(next))
	}
	return answer
}

// DefaultSwitch is what a server answers to the handshake of a WebSocket when
// the case does not say.
const DefaultSwitch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
