// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/policydiff"
)

// TestPolicyDiffByItsExitStatus: what a pipeline goes by. No Bawn runs.
func TestPolicyDiffByItsExitStatus(t *testing.T) {
	dir := t.TempDir()
	file := func(name, rules string) string {
		path := filepath.Join(dir, name)
		write(t, path, "version: 1\nprofiles: {coder: {rules: ["+rules+"]}}\nagents: {dev: {profile: coder}}\n")
		return path
	}
	get := file("get", "{host: a.example, methods: [GET]}")
	all := file("all", "{host: a.example}")
	other := file("other", "{host: b.example}")
	broken := file("broken", "{hots: a.example}")
	for _, c := range []struct {
		a, b   string
		failOn string
		status int
		want   string
	}{
		{get, get, "", 0, "no change for dev\nboth let the same through\n"},
		{get, all, "", 4, "widened     a.example port 443: methods other than GET: allowed now, by rule coder.1\nin all: wider\n"},
		{all, get, "", 3, "narrowed    a.example"},
		{all, get, "widened", 0, "in all: narrower\n"},
		{get, all, "widened", 4, "in all: wider\n"},
		{get, other, "", 4, "narrowed    a.example"},
		{get, broken, "", 1, ""},
		{get, filepath.Join(dir, "none"), "", 1, ""},
		{get, all, "nothing", 2, ""},
	} {
		args := []string{"--root", dir, "policy", "diff", c.a, c.b}
		if c.failOn != "" {
			args = append(args, "--fail-on", c.failOn)
		}
		status, stdout, stderr := call(t, args...)
		if status != c.status || !strings.Contains(stdout, c.want) {
			t.Errorf("%v: exit status %d, want %d; printed\n%s%s", args[3:], status, c.status, stdout, stderr)
		}
	}
	_, stdout, _ := call(t, "policy", "diff", get, all, "--json")
	var r struct {
		Reach policydiff.Kind
		policydiff.Report
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Reach != policydiff.Widened || len(r.Groups) != 1 || !r.Groups[0].Changes[0].OtherMethods {
		t.Errorf("JSON: %v\n%s", err, stdout)
	}
}

// TestPolicyDiffOfAProfileThatNobodyHas: whoever gets it is affected.
func TestPolicyDiffOfAProfileThatNobodyHas(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "version: 1\nprofiles: {coder: {rules: []}}\n")
	write(t, b, "version: 1\nprofiles: {coder: {rules: [{host: a.example}]}}\n")
	status, stdout, _ := call(t, "policy", "diff", a, b)
	if status != 4 || !strings.HasPrefix(stdout, "whoever has profile coder:\n  widened") {
		t.Errorf("exit status %d, printed\n%s", status, stdout)
	}
}

// TestI14PolicyDiffShowsNothingThatActs: a policy holds no character that acts
// on a terminal, so that what is left is a file that is none.
func TestI14PolicyDiffShowsNothingThatActs(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "version: 1\n")
	write(t, b, "version: 1\nprofiles: {coder: {rules: [{host: \"a\x1b]52;c;eA==\x07.example\", reason: \"\u202ex\"}]}}\n")
	status, stdout, stderr := call(t, "policy", "diff", a, b)
	if status != 1 || stdout != "" || strings.ContainsAny(stderr, "\x1b\x07\u202e") {
		t.Errorf("exit status %d, printed %q %q", status, stdout, stderr)
	}
}

func TestPolicyCheckOffline(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	write(t, file, "version: 1\nprofiles: {coder: {rules: [{host: a.example, paths: []}]}}\n")
	status, stdout, stderr := call(t, "policy", "check", "--offline", file)
	if status != 0 || stdout != "the policy is fine\n" || !strings.Contains(stderr, "warning: ") {
		t.Errorf("exit status %d, printed %q, %q", status, stdout, stderr)
	}
	write(t, file, "version: 1\nprofiles: {coder: {rules: [{host: \"*.com\"}]}}\n")
	if status, _, stderr = call(t, "policy", "check", "--offline", file); status != 1 || !strings.Contains(stderr, "too wide") {
		t.Errorf("exit status %d, printed %q", status, stderr)
	}
}
