// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"bawn/internal/casetest/talk"
	"bawn/internal/httpwire"
)

// A parsed message is compared by what it says: how a body is cut into chunks
// says nothing.
type parsed struct {
	h2        bool // in the notation of HTTP/2
	line      string
	scheme    string // "" where the notation has none
	authority string // of HTTP/2
	fields    httpwire.Fields
	body      string
}

// parse reads one whole request; ok is false when raw is none.
func parse(raw []byte) (p parsed, ok bool) {
	if bytes.HasPrefix(raw, []byte(":")) {
		return parseH2(raw)
	}
	r := bufio.NewReader(bytes.NewReader(raw))
	q, err := httpwire.ReadRequest(r, httpwire.Limits{})
	if err != nil {
		return parsed{}, false
	}
	p = parsed{line: q.Method + " " + q.Target, fields: q.Fields}
	rest, err := io.ReadAll(r)
	if err != nil {
		return parsed{}, false
	}
	var body httpwire.Body
	body.Reset(bufio.NewReader(bytes.NewReader(rest)), q.Framing, httpwire.Limits{})
	if decoded, err := io.ReadAll(&body); err == nil && body.Done() {
		rest = decoded // else the notation has the body itself, without chunks
	}
	p.body = string(rest)
	return p, true
}

// parseH2 reads the notation of HTTP/2. The order of pseudo-header fields says
// nothing.
func parseH2(raw []byte) (p parsed, ok bool) {
	head, body, ok := strings.Cut(string(raw), "\r\n\r\n")
	p = parsed{h2: true, body: body}
	var method, path string
	for line := range strings.SplitSeq(head, "\r\n") {
		at := 1 + strings.Index(line[min(1, len(line)):], ":")
		if at < 1 {
			return parsed{}, false
		}
		name, value := line[:at], strings.TrimSpace(line[at+1:])
		switch name {
		case ":method":
			method = value
		case ":path":
			path = value
		case ":scheme":
			p.scheme = value
		case ":authority":
			p.authority = value
		default:
			p.fields = append(p.fields, httpwire.Field{Name: name, Value: value})
		}
	}
	p.line = method + " " + path
	return p, ok
}

// asH2 is p in the notation of HTTP/2, in which names are in lower case and what
// only HTTP/1.1 needs is not said.
func (p parsed) asH2() parsed {
	if p.h2 {
		return p
	}
	p.h2 = true
	all := p.fields
	p.fields = nil
	for _, f := range all {
		f.Name = strings.ToLower(f.Name)
		switch f.Name {
		case "host":
			p.authority = f.Value
		case "transfer-encoding", "connection":
		default:
			p.fields = append(p.fields, f)
		}
	}
	return p
}

// differ says how what was forwarded differs from what was wanted, or "". A
// section behind those of the requests is the messages of a WebSocket; text is the
// last section as it stands.
func differ(want, got [][]byte, text string, messages []talk.Message) string {
	want = dropEmpty(want)
	if len(want) == len(got)+1 && len(messages) > 0 {
		last := len(want) - 1
		if why := differMessages(text, messages); why != "" {
			return why
		}
		want = want[:last]
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d requests were to be forwarded, %d were", len(want), len(got))
	}
	for i := range want {
		if why := differOne(want[i], got[i]); why != "" {
			return fmt.Sprintf("forwarded request %d: %s", i+1, why)
		}
	}
	return ""
}

func differMessages(want string, got []talk.Message) string {
	lines := strings.Split(strings.TrimRight(want, "\n"), "\n")
	if len(lines) != len(got) {
		return fmt.Sprintf("%d messages were to be forwarded, %d were", len(lines), len(got))
	}
	for i, m := range got {
		if lines[i] != m.Notation() {
			return fmt.Sprintf("forwarded message %d: wanted %.200q, got %.200q", i+1, lines[i], m.Notation())
		}
	}
	return ""
}

// dropEmpty removes empty sections: one of them says that nothing is forwarded.
func dropEmpty(list [][]byte) [][]byte {
	var kept [][]byte
	for _, b := range list {
		if len(b) > 0 {
			kept = append(kept, b)
		}
	}
	return kept
}

func differOne(want, got []byte) string {
	w, isRequest := parse(want)
	g, isAlso := parse(got)
	if !isRequest || !isAlso {
		if !bytes.Equal(want, got) {
			return fmt.Sprintf("wanted %.200q, got %.200q", want, got)
		}
		return ""
	}
	if w.h2 != g.h2 {
		w, g = w.asH2(), g.asH2()
	}
	switch {
	case w.line != g.line:
		return fmt.Sprintf("wanted %q, got %q", w.line, g.line)
	case w.authority != g.authority:
		return fmt.Sprintf("wanted authority %q, got %q", w.authority, g.authority)
	case w.scheme != g.scheme && w.scheme != "" && g.scheme != "":
		return fmt.Sprintf("wanted scheme %q, got %q", w.scheme, g.scheme)
	}
	for i := range max(len(w.fields), len(g.fields)) {
		switch {
		case i >= len(w.fields):
			return fmt.Sprintf("field %s was not wanted", show(g.fields[i]))
		case i >= len(g.fields):
			return fmt.Sprintf("field %s is missing", show(w.fields[i]))
		case strings.EqualFold(w.fields[i].Name, "Sec-WebSocket-Key") && w.fields[i].Name == g.fields[i].Name:
			// The proxy makes one for each connection.
		case w.fields[i] != g.fields[i]:
			return fmt.Sprintf("field %d: wanted %s, got %s", i+1, show(w.fields[i]), show(g.fields[i]))
		}
	}
	if w.body != g.body {
		return fmt.Sprintf("body: wanted %.100q, got %.100q", w.body, g.body)
	}
	return ""
}

func show(f httpwire.Field) string { return fmt.Sprintf("%q", f.Name+": "+f.Value) }
