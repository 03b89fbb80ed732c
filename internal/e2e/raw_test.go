// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A job is one connection that an agent makes, byte by byte.
type job struct {
	Connect *string `json:"connect,omitempty"` // head of the CONNECT; nil: none
	To      []any   `json:"to,omitempty"`      // host and port instead of the proxy
	SNI     *string `json:"sni,omitempty"`     // name in TLS, "" for none; nil: no TLS
	Send    string  `json:"send"`
	Half    bool    `json:"half,omitempty"` // end our half of the connection after sending
}

// An answer is what came back.
type answer struct {
	Connect string `json:"connect"` // head of the proxy's answer, and its body if it refused
	Got     string `json:"got"`
	Error   string `json:"error"`
}

// status is the first status code that the agent was told after CONNECT, or
// at CONNECT where that was refused; "" for none.
func (a answer) status() string {
	for _, s := range []string{a.Got, a.Connect} {
		if len(s) > 12 && strings.HasPrefix(s, "HTTP/1.1 ") {
			return s[9:12]
		}
	}
	return ""
}

// code is the code of the refusal.
func (a answer) code() string {
	for _, s := range []string{a.Got, a.Connect} {
		for line := range strings.SplitSeq(s, "\r\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "Bawn-Code") {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// tunnelled is a job that sends bytes inside TLS within a tunnel to host.
func tunnelled(host, send string) job {
	connect := "CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + ":443\r\n\r\n"
	return job{Connect: &connect, SNI: &host, Send: send}
}

// raw runs jobs as the agent, one after the other.
func (h *host) raw(t *testing.T, agent string, jobs ...job) []answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var text bytes.Buffer
	for _, j := range jobs {
		if err := json.NewEncoder(&text).Encode(j); err != nil {
			t.Fatal(err)
		}
	}
	cmd := h.session(ctx, agent, "/usr/bin/python3", "/opt/clients/raw_client.py")
	cmd.Stdin = &text
	r := finish(t, cmd)
	var answers []answer
	for line := range strings.Lines(r.out) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("raw client printed %q: %v", line, err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(jobs) {
		t.Fatalf("raw client answered %d of %d jobs (status %d): %s", len(answers), len(jobs), r.status, r.err)
	}
	return answers
}
