// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"bawn/internal/casetest/talk"
)

// maxRaw bounds what the repetitions of one section may add up to, in bytes.
const maxRaw = 64 << 20

// message turns the notation of a message into its bytes: line feeds of the
// head become CR LF, the empty line after a head without a body is added, and a
// body without framing gets a Content-Length.
func message(s string) []byte {
	head, body, _ := strings.Cut(s, "\n\n")
	head = strings.TrimSuffix(head, "\n")
	if body != "" && !framed(head) {
		head += "\nContent-Length: " + strconv.Itoa(len(body))
	}
	return []byte(strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body)
}

// responses is message for what a server answers: interim responses may come
// before the final one.
func responses(s string) []byte {
	if first, rest, _ := strings.Cut(s, "\n\n"); talk.Interim(first) && strings.HasPrefix(rest, "HTTP/") {
		return append(message(first), responses(rest)...)
	}
	return message(s)
}

// h2Request reads a request of HTTP/2: a head of lines NAME: VALUE, pseudo-header
// fields among them, and a body. A line in double quotes is a Go string, for
// octets that a line cannot show. Nothing is added.
func h2Request(s string) (talk.Request, error) {
	head, body, _ := strings.Cut(s, "\n\n")
	q := talk.Request{Body: []byte(body)}
	for line := range strings.SplitSeq(strings.TrimSuffix(head, "\n"), "\n") {
		if strings.HasPrefix(line, `"`) {
			text, err := strconv.Unquote(line)
			if err != nil {
				return q, fmt.Errorf("line %.40q: %w", line, err)
			}
			line = text
		}
		at := strings.Index(strings.TrimPrefix(line, ":"), ":")
		if at < 0 || len(q.Fields) == 0 && !strings.HasPrefix(line, ":") && strings.HasSuffix(line, " HTTP/1.1") {
			return q, fmt.Errorf("line %.40q: with alpn=h2 a head is lines NAME: VALUE, beginning with :method", line)
		}
		at += len(line) - len(strings.TrimPrefix(line, ":"))
		q.Fields = append(q.Fields, talk.Field{Name: line[:at], Value: strings.TrimPrefix(line[at+1:], " ")})
	}
	return q, nil
}

// framed reports whether a head says where its body ends.
func framed(head string) bool {
	for line := range strings.SplitSeq(head, "\n") {
		name, _, _ := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Transfer-Encoding") {
			return true
		}
	}
	return false
}

// rawBytes joins Go-quoted strings, one a line; "* N" behind one repeats it.
func rawBytes(s string) ([]byte, error) {
	out := []byte{}
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, fmt.Errorf("line %.40q does not begin with a Go-quoted string", line)
		}
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("line %.40q: %w", line, err)
		}
		n, err := repetitions(line[len(quoted):])
		if err != nil {
			return nil, fmt.Errorf("line %.40q: %w", line, err)
		}
		if n*len(text) > maxRaw-len(out) {
			return nil, fmt.Errorf("line %.40q: more than %d bytes", line, maxRaw)
		}
		out = append(out, bytes.Repeat([]byte(text), n)...)
	}
	return out, nil
}

var errRepeat = errors.New("wants nothing or * N behind the string")

func repetitions(s string) (int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 1, nil
	}
	digits, ok := strings.CutPrefix(s, "*")
	n, err := strconv.Atoi(strings.TrimSpace(digits))
	if !ok || err != nil || n < 0 || n > maxRaw {
		return 0, errRepeat
	}
	return n, nil
}
