// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"bawn/internal/policy"
)

func TestAnswersAreTakenWholeOnly(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + strings.Repeat("x", bodySize) + "\r\n0\r\n\r\n"
	for name, text := range map[string]string{"length": string(answer), "chunked": chunked} {
		for n := range len(text) {
			if whole, err := isWhole([]byte(text[:n])); whole || err != nil {
				t.Fatalf("%s: %d of %d octets: %v, %v", name, n, len(text), whole, err)
			}
		}
		if whole, err := isWhole([]byte(text)); !whole || err != nil {
			t.Errorf("%s: %v, %v", name, whole, err)
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

func TestPolicyOfTheBenchIsOne(t *testing.T) {
	if _, err := policy.Load([]byte(benchPolicy()), policy.Known{Agents: map[string]bool{benchAgent: true}}); err != nil {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	s := settings{peers: []string{"floor", "bawn"}, runs: 2, conns: 32, measure: time.Second}
	text := table(s, []sample{
		{"floor", 1000, 10 * time.Millisecond, time.Second}, {"bawn", 1000, 20 * time.Millisecond, time.Second},
		{"floor", 1000, 12 * time.Millisecond, time.Second}, {"bawn", 1000, 24 * time.Millisecond, time.Second},
	})
	for _, want := range []string{"10.0-12.0", "20.0-24.0", "2.00 (2.00-2.00)", "0.50 (0.50-0.50)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
