// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"bawn/internal/h2suite"
)

var update = flag.Bool("update", false, "write docs/http2.md")

// TestDocSaysBounds keeps docs/http2.md in step with the constants.
func TestDocSaysBounds(t *testing.T) {
	agent, server := Limits{}.orDefault(true), Limits{}.orDefault(false)
	var b strings.Builder
	row := func(what, bound string) { fmt.Fprintf(&b, "| %s | %s |\n", what, bound) }
	b.WriteString("\n| what | bound |\n|---|---|\n")
	row("streams of an agent's connection; more are refused (`REFUSED_STREAM`)", fmt.Sprint(agent.Streams))
	row("handlers of a connection, whose streams may be gone already", fmt.Sprint(2*agent.Streams))
	row("octets of one body that wait: an agent's, a server's", kib(agent.StreamWindow)+", "+kib(server.StreamWindow))
	row("octets of all bodies of a connection that wait: an agent's, a server's", kib(agent.ConnWindow)+", "+kib(server.ConnWindow))
	row("header list, as HTTP/2 counts it; more is answered 431", kib(agent.Wire.Head))
	row("fields of a header list, pseudo-fields included", fmt.Sprint(agent.Wire.Fields))
	row("header block as sent; more ends the connection", kib(blockSlack*agent.Wire.Head))
	row("frames that continue a header block", fmt.Sprint(maxContinuations))
	row("trailers", kib(agent.Wire.Extra))
	row("frame", kib(maxFrame))
	row("frames without use", fmt.Sprintf("%d, and %d more each second; each frame with data and each request gives back %d; settings take %d", noiseSize, noisePerSecond, noisePerUse, settingsNoise))
	row("streams given up, refused or malformed", fmt.Sprintf("%d, and %d more each second; each stream that ends well gives back one", resetSize, resetPerSecond))
	row("answers that wait for a peer which does not read", kib(maxRude))
	row("the end of a connection, for the peer to read it", patience.Round(time.Second).String())
	b.WriteString("\n")
	h2suite.Section(t, "bounds", b.String(), *update)
}

func kib(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// TestChunks holds the body's buffer to its arithmetic.
func TestChunks(t *testing.T) {
	for n := range maxFrame + 1 {
		k := newChunk(n)
		if len(k.b) < n || n > smallestChunk && len(k.b) >= 2*n {
			t.Fatalf("a chunk for %d octets has %d", n, len(k.b))
		}
		k.free()
	}
	var q chunks
	for range 100 {
		q.append(make([]byte, 700))
	}
	k := newChunk(5000)
	k.w = 5000
	q.push(k)
	if got := make([]byte, 1000); q.read(got) != 1000 || q.size != 74_000 {
		t.Fatalf("%d octets are left", q.size)
	}
	if q.drop() != 74_000 || q.first != nil || q.last != nil || q.size != 0 {
		t.Error("something is left")
	}
}

// TestBudget refills by use and by time, and never over its size.
func TestBudget(t *testing.T) {
	now := time.Now()
	b := budget{left: 10, size: 10, perSecond: 5, since: now}
	for range 10 {
		if !b.take(1) {
			t.Fatal("taken too early")
		}
	}
	b.refill(now.Add(900 * time.Millisecond))
	if b.left != 4 {
		t.Errorf("%d are left after most of a second", b.left)
	}
	b.refill(now.Add(time.Hour))
	if b.give(3); b.left != 10 {
		t.Errorf("%d are left of 10", b.left)
	}
	b.since = time.Now()
	if b.take(11) {
		t.Error("more than there is was taken")
	}
}
