// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/policy"
)

func TestAnswersAreTakenWholeOnly(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + strings.Repeat("x", bodySize) + "\r\n0\r\n\r\n"
	for name, text := range map[string]string{"length": string(answer1KB), "chunked": chunked} {
		for n := range len(text) {
			if whole, err := isWhole([]byte(text[:n])); whole || err != nil {
				t.Fatalf("%s: %d of %d octets: %v, %v", name, n, len(text), whole, err)
			}
			if _, err := newReader(strings.NewReader(text[:n])).answer(io.Discard); err == nil {
				t.Fatalf("%s: %d of %d octets are an answer", name, n, len(text))
			}
		}
		if whole, err := isWhole([]byte(text)); !whole || err != nil {
			t.Errorf("%s: %v, %v", name, whole, err)
		}
		a, err := newReader(strings.NewReader(text)).answer(io.Discard)
		if err != nil || a != (answer{status: 200, length: bodySize}) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	for _, text := range []string{
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 1024\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1023\r\n\r\n",
	} {
		if _, err := isWhole([]byte(text)); err == nil {
			t.Errorf("took %q", text)
		}
	}
}

func TestCPUCountsChildren(t *testing.T) {
	before, err := cpuOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for {
		after, err := cpuOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after-before > 100*time.Millisecond {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestMemoryCountsChildren(t *testing.T) {
	alone, err := memoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo; read -r _")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil { // the program runs
		t.Fatal(err)
	}
	child, err := memoryOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	both, err := memoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if child <= 0 || both < alone || both < child {
		t.Errorf("alone %d, child %d, both %d", alone, child, both)
	}
}

func TestMessagesAreJSON(t *testing.T) {
	if m := wsMessage(); len(m) != bodySize || !json.Valid(m) {
		t.Errorf("%d octets: %s", len(m), m)
	}
}

func TestPolicyOfTheBenchIsOne(t *testing.T) {
	if _, err := policy.Load([]byte(benchPolicy("a", "b")), policy.Known{Agents: map[string]bool{"a": true, "b": true}}); err != nil {
		t.Error(err)
	}
}

func TestConfigurationsOfPeersAreFilled(t *testing.T) {
	b := &bench{pki: pki{peerCA: "/ca.pem", originRoot: "/roots.pem"}}
	for name, text := range map[string]string{"squid": squidConf, "mitmproxy": mitmproxyConf} {
		out, err := b.fill(text, "127.0.0.1:3999", "/dir")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range []string{"3999", "/dir", "/roots.pem", "splice"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %s in\n%s", name, want, out)
			}
		}
	}
}

// A late answer makes later questions late as well, and that counts: latency
// is from when a question was due.
func TestOpenLoadCountsWaiting(t *testing.T) {
	var l latencies
	var w window
	due := time.Now()
	w.mark(due)
	w.mark(due.Add(time.Second))
	for i := range 100 { // one a millisecond, and the answers come after 200 ms at once
		l.add(due.Add(time.Duration(i)*time.Millisecond), due.Add(200*time.Millisecond))
	}
	l.add(due.Add(2*time.Second), due.Add(9*time.Second)) // not within the window
	got := l.summary(&w)
	if got.N != 100 || got.P50 != 151e3 || got.Max != 200e3 {
		t.Errorf("%+v", got)
	}
}

func TestArrivalsKeepTheirRate(t *testing.T) {
	l := &load{rate: 10_000}
	due := make(chan time.Time, 1<<20)
	done := make(chan error)
	go func() { done <- l.arrivals(due) }()
	first := <-due
	var last time.Time
	for range 1000 { // none is left out, however late this reads
		last = <-due
	}
	l.ended.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := last.Sub(first); got != 100*time.Millisecond {
		t.Errorf("1000 arrivals at 10,000/s were due within %s", got)
	}
}

func TestTallyCountsWholeLinesOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "access.log")
	count := countLines(name)
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, step := range []struct {
		text string
		want int64
	}{
		{"", 0}, {"1 GET https://h/v1/new-h1/small?page=3\n", 1}, {"2 GET https://h/v1/new-h1/sm", 1},
		{"all\n3 GET /private/new-h1/x\n4 GET /v1/other/x\n", 3}, {"5 CONNECT " + spliceHost + "\n", 3},
	} {
		fmt.Fprint(f, step.text)
		got, err := count("new-h1")
		if err != nil || got != step.want {
			t.Errorf("step %d: %d, %v, want %d", i, got, err, step.want)
		}
	}
	if got, err := count(spliceHost); err != nil || got != 1 {
		t.Errorf("tunnels: %d, %v", got, err)
	}
}

func TestRecordsOfTheJournalAreCounted(t *testing.T) {
	for line, want := range map[string]struct {
		word string
		n    int64
	}{
		`{"v":1,"kind":"decision","host":"h","path":"/v1/keep-h1/small"}`: {"keep-h1", 1},
		`{"v":1,"kind":"outcome","path":"/v1/keep-h1/small"}`:             {"", 0},
		`{"v":1,"kind":"summary","denials":812}`:                          {summarised, 812},
	} {
		if word, n := countRecord([]byte(line)); word != want.word || n != want.n {
			t.Errorf("%s: %s, %d", line, word, n)
		}
	}
}

func TestTables(t *testing.T) {
	r, open, idle := &rows[0], &row{name: "open", unit: "request", open: true}, &row{name: "idle", fresh: true}
	s := settings{peers: []string{"direct", "floor", "bawn", "squid"}, rows: []*row{r, open, idle}, runs: 2}
	at := func(row *row, peer string, run int, cpu time.Duration) sample {
		return sample{row: row, peer: peer, run: run, units: 1000, cpu: cpu, took: time.Second, latency: summary{P50: us(cpu), P99: us(cpu)}, after: int64(cpu)}
	}
	text := tables(s, []sample{
		{row: r, peer: "direct", skipped: "no peer"},
		at(r, "floor", 0, 10*time.Millisecond), at(r, "bawn", 0, 20*time.Millisecond), {row: r, peer: "squid", failed: "it fell"},
		at(r, "floor", 1, 12*time.Millisecond), at(r, "bawn", 1, 24*time.Millisecond),
		at(open, "direct", 0, time.Millisecond), at(open, "bawn", 0, 3*time.Millisecond), at(open, "squid", 0, 5*time.Millisecond),
		at(idle, "bawn", 0, 1024*1000*50),
	})
	for _, want := range []string{
		"| bawn | 24.0 (20.0-24.0) | 2.00 (2.00-2.00) | | 1000 |", "| squid | FAILED: it fell |",
		"| squid | 1000 | 5000 | 5000 | 4000 | 4000 | 0.50 | 0.50 | 5.0 | 0.60 |", "| bawn | 50.0 | - | | 1000 | 49 |",
	} {
		if !strings.Contains(strings.ReplaceAll(text, "  ", " "), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if err := report(settings{results: t.TempDir(), rows: s.rows}, []sample{{row: r, peer: "squid", failed: "it fell"}}); err == nil {
		t.Error("a sample failed and the bench did not")
	}
}

// A load that an answer is not whole for, or that is refused, fails.
func TestTunnelRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			readHead(c)
			io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
			c.Close()
		}
	}()
	l := &load{proxy: ln.Addr().String(), host: originHost}
	if _, err := l.connect(originHost, "http/1.1"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
}
