// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"bawn/internal/casetest/talk"
)

// A job is one connection that an agent makes, byte by byte; see
// testdata/clients/rawclient.
type job struct {
	To      string
	Connect []byte
	SNI     *string
	ALPN    []string
	First   []byte // what the server says before anything is sent
	Send    []byte

	H2 []talk.Request // instead of Send

	Responses int          // before Frames: to what was sent, the last of them to a handshake
	Frames    []talk.Frame // after the handshake
	Rest      []byte       // instead, where it opened nothing

	Queries  [][]byte // instead of all that: messages to the resolver, over UDP
	Segments [][]byte // and the bytes of connections to it
}

// An answer is what came back.
type answer struct {
	Connect []byte
	Got     []byte
	Replies [][]byte // of the resolver
	Report  talk.Report
	Bye     talk.Farewell
	Error   string
	Issuer  string
}

// status is the first status code that the agent was told after CONNECT, or
// at CONNECT where that was refused; "" for none.
func (a answer) status() string {
	for _, s := range [][]byte{a.Got, a.Connect} {
		if len(s) > 12 && bytes.HasPrefix(s, []byte("HTTP/1.1 ")) {
			return string(s[9:12])
		}
	}
	return ""
}

// code is the code of the refusal.
func (a answer) code() string {
	for _, s := range [][]byte{a.Got, a.Connect} {
		for line := range strings.SplitSeq(string(s), "\r\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "Bawn-Code") {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// String gives the form that test failures print.
func (a answer) String() string {
	return fmt.Sprintf("CONNECT answered %.300q, then %.300q (%s)", a.Connect, a.Got, a.Error)
}

// connectHead is a CONNECT as clients write it.
func connectHead(authority string) []byte {
	return []byte("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
}

// tunnelled is a job that sends bytes inside TLS within a tunnel to host.
func tunnelled(host, send string) job {
	return job{Connect: connectHead(host + ":443"), SNI: &host, Send: []byte(send)}
}

// A rawSession is a session in which jobs run one after the other.
type rawSession struct {
	in  *json.Encoder
	out *json.Decoder
	end func()
}

// rawSession opens one for the agent.
func (h *host) rawSession(t *testing.T, agent string) *rawSession {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := h.session(ctx, agent, "/opt/clients/rawclient.bin")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &rawSession{in: json.NewEncoder(stdin), out: json.NewDecoder(stdout)}
	s.end = func() {
		_ = stdin.Close()
		late := time.AfterFunc(10*time.Second, cancel)
		defer late.Stop()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
		cancel()
		if stderr.Len() > 0 {
			t.Logf("session of %s: %s", agent, stderr.String())
		}
	}
	t.Cleanup(s.end)
	return s
}

// do runs one job.
func (s *rawSession) do(t *testing.T, j job) answer {
	t.Helper()
	if err := s.in.Encode(j); err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := s.out.Decode(&a); err != nil {
		t.Fatalf("the session ended: %v", err)
	}
	return a
}
