// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/apitype"
	"bawn/internal/config"
)

// call runs a command line as main does.
func call(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

func TestWrongUseNamesTheThingAndTheFix(t *testing.T) {
	for _, c := range []struct {
		args    string
		status  int
		message string // of the error, whole
		hint    string // within the hint
	}{
		{"frobnicate", 2, `there is no command "bawn frobnicate"`, `run "bawn --help"`},
		{"statsu", 2, `there is no command "bawn statsu", did you mean status?`, `"bawn --help"`},
		{"help agent foo", 2, `help: there is no command "bawn agent foo"`, `"bawn --help"`},
		{"agent foo", 2, `there is no command "bawn agent foo"`, `"bawn agent --help"`},
		{"policy aply", 2, `there is no command "bawn policy aply", did you mean apply?`, `"bawn policy --help"`},
		{"--bogus", 2, `unknown flag: --bogus`, `"bawn --help"`},
		{"status --bogus", 2, `status: unknown flag: --bogus`, `"bawn status --help"`},
		{"status now", 2, `status: "now" is one argument too many`, `bawn status`},
		{"agent create", 2, `agent create: NAME is missing`, `bawn agent create NAME --user USER`},
		{"agent create dev", 2, `agent create: --user is missing: the person or tenant for whom the agent works`, `bawn agent create NAME --user USER`},
		{"agent create a b --user u", 2, `agent create: "b" is one argument too many`, `NAME --user USER`},
		{"agent remove", 2, `agent remove: NAME is missing`, `bawn agent remove NAME`},
		{"policy apply", 2, `policy apply: FILE is missing`, `bawn policy apply FILE`},
		{"policy apply x --base y", 2, `policy apply: --base: "y" is not a number from 0`, `bawn policy apply FILE`},
		{"policy explain dev GET", 2, `policy explain: URL is missing`, `AGENT METHOD URL`},
		{"policy rollback x", 2, `policy rollback: revision "x" is not a number from 1`, `policy revisions`},
		{"policy show --effective --revision 3", 2, `policy show: --effective is about the revision in force, so --revision does not go with it`, `bawn policy show`},
		{"policy test", 2, `policy test: FILE or DIR is missing`, `bawn policy test DIR|FILE...`},
		{"policy diff a", 2, `policy diff: B is missing`, `bawn policy diff A B`},
		{"policy diff a b --fail-on x", 2, `policy diff: --fail-on "x": not any or widened`, `bawn policy diff A B`},
		{"policy check", 2, `policy check: FILE is missing`, `bawn policy check FILE`},
		{"allow dev", 2, `allow: RULE is missing`, `bawn allow AGENT RULE --for DURATION`},
		{"allow dev a.example", 2, `allow: --for is missing or less than a second: how long, such as 10m or 2h`, `bawn allow AGENT RULE --for DURATION`},
		{"allow dev a.example --for x", 2, `allow: --for: "x" is not a duration`, `bawn allow AGENT RULE --for DURATION`},
		{"allow dev GET https://a.example/ x --for 1m", 2, `allow: "x" is one argument too many: put RULE in quotes`, `bawn allow AGENT RULE --for DURATION`},
		{"revoke", 2, `revoke: ID is missing`, `bawn revoke ID`},
		{"log x", 2, `log: "x" is one argument too many`, `bawn log`},
		{"log --limit x", 2, `log: --limit: "x" is not a number`, `bawn log`},
		{"log --limit -1", 2, `log: --limit -1: not a number from 1`, `bawn log`},
		{"log -f --limit 1", 2, `log: --follow goes on for ever, so --limit and --until do not go with it: say --since`, `bawn log`},
		{"log -f --until 1h", 2, `log: --follow goes on for ever, so --limit and --until do not go with it: say --since`, `bawn log`},
		{"log --agent=", 2, `log: --agent is empty`, `bawn log`},
		{"log --since=-5m", 2, `log: --since "-5m": neither a time nor a duration such as 30m, 2h, 7d, 2026-01-31, "2026-01-31 08:00:00" or 2026-01-31T08:00:00Z`, `bawn log`},
		{"--root= status", 2, `--root is empty`, `name a directory`},
		{"run", 125, `run: COMMAND is missing`, `bawn run [flags] -- COMMAND [ARG...]`},
		{"run --bogus -- ls", 125, `run: unknown flag: --bogus`, `"bawn run --help"`},
		{"run --agent", 125, `run: flag needs an argument: --agent`, `"bawn run --help"`},
		{"run --work a --repo b -- ls", 125, `run: --work and --repo do not go together: the workspace is a directory of yours or a clone`, `bawn run`},
		{"run --env FOO -- ls", 125, `run: --env "FOO": not KEY=VALUE`, `passes a variable of yours on`},
		{"run --env =x -- ls", 125, `run: --env "=x": not KEY=VALUE`, `passes a variable of yours on`},
	} {
		t.Run(c.args, func(t *testing.T) {
			status, stdout, stderr := call(t, strings.Fields(c.args)...)
			if status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			message, hint, ok := strings.Cut(stderr, "\nhint: ")
			if !ok || message != "bawn: "+c.message || !strings.Contains(hint, c.hint) || strings.Count(stderr, "\n") != 2 {
				t.Errorf("standard error:\n%s\nwant:\nbawn: %s\nhint: ...%s...", stderr, c.message, c.hint)
			}
			if stdout != "" {
				t.Errorf("standard output: %q", stdout)
			}
		})
	}
}

func TestGroupsAndHelpShowTheirVerbs(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "bawn [command]"}, {"agent", "bawn agent [command]"}, {"policy", "bawn policy [command]"}, {"help agent create", "NAME --user USER"}, {"run --help", "127 when"}, {"--version", "bawn version "},
	} {
		status, stdout, stderr := call(t, strings.Fields(c.args)...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, c.want) {
			t.Errorf("bawn %s: status %d, error %q, output without %q:\n%s", c.args, status, stderr, c.want, stdout)
		}
		if strings.Contains(stdout, "netd") {
			t.Errorf("bawn %s shows a process of Bawn's own:\n%s", c.args, stdout)
		}
	}
}

// TestWithoutBawnEveryVerbSaysHowToStartIt uses a root under which nothing runs.
func TestWithoutBawnEveryVerbSaysHowToStartIt(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "p.yaml")
	write(t, file, "version: 1\n")
	for _, args := range [][]string{
		{"status"}, {"doctor"}, {"agent", "list"}, {"agent", "remove", "x"}, {"log"}, {"run", "--", "true"}, {"policy", "show"}, {"policy", "apply", file},
	} {
		status, _, stderr := call(t, append([]string{"--root", root}, args...)...)
		want := 1
		if args[0] == "run" {
			want = 125
		}
		if status != want {
			t.Errorf("%s: exit status %d, want %d", args, status, want)
		}
		lines := "bawn: Bawn does not run: nothing listens on " + filepath.Join(root, "run/bawn/admin.sock") + "\n" +
			`hint: start it with "bawn up" or "systemctl start bawn.target", as root; where it was started with --root, this needs the same --root` + "\n"
		if stderr != lines {
			t.Errorf("%s:\n%swant:\n%s", args, stderr, lines)
		}
	}
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	write(t, big, strings.Repeat("#", maxPolicy+1))
	for name, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "no such file", dir: "is a directory", big: "larger than 1048576 bytes",
	} {
		status, _, stderr := call(t, "--root", dir, "policy", "apply", name)
		if status != 1 || !strings.Contains(stderr, name) || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, error %q without %q", name, status, stderr, want)
		}
	}
}

func TestPolicyTestNeedsNoBawn(t *testing.T) {
	dir := t.TempDir()
	text := "A name that no rule allows.\n-- policy.yaml --\nversion: 1\nagents:\n  dev: {}\n-- connect --\na.example:443\n-- want --\n%s\n"
	pass, fail := filepath.Join(dir, "pass.txtar"), filepath.Join(dir, "fail.txtar")
	write(t, pass, strings.Replace(text, "%s", "deny host_not_allowed", 1))
	write(t, fail, strings.Replace(text, "%s", "allow", 1))
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{pass}, 0, "ok    " + pass},
		{[]string{fail}, 1, "FAIL  " + fail},
		{[]string{dir}, 1, "1 passed, 1 failed"},
		{[]string{"-json", pass}, 0, `"ok":true`},
		{[]string{"--json", pass}, 0, `"ok":true`},
		{[]string{filepath.Join(dir, "none")}, 2, "none"},
	} {
		status, stdout, stderr := call(t, append([]string{"policy", "test"}, c.args...)...)
		if status != c.status || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("policy test %s: status %d, want %d, and %q in:\n%s%s", c.args, status, c.status, c.want, stdout, stderr)
		}
	}
}

// fakeAdmin answers under root as admin would, without deciding anything.
func fakeAdmin(t *testing.T, root string, answers map[string]http.HandlerFunc) {
	t.Helper()
	sock := config.Paths{Root: root}.AdminSock()
	if err := os.MkdirAll(filepath.Dir(sock), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, h := range answers {
		mux.HandleFunc(pattern, h)
	}
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
}

// answer gives an answer of admin.
func answer(status int, v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
}

// shortDir is a directory whose sockets have names that Linux takes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bawn-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestI14WhatAdminQuotesIsMadeSafe(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{
		"GET /v1/agents": answer(500, apitype.Error{Message: "one\ntwo \x1b[31m", Hint: "do \x07this"}),
		"GET /v1/status": answer(200, apitype.Status{Version: "v", Why: "x\x1b]0;t\x07", Sessions: []apitype.Session{{Argv: []string{"sh", "\x1b[2J"}}}}),
	})
	status, _, stderr := call(t, "--root", root, "agent", "list")
	if want := "bawn: one\n      two \\x1b[31m\nhint: do \\x07this\n"; status != 1 || stderr != want {
		t.Errorf("status %d:\n%q\nwant\n%q", status, stderr, want)
	}
	status, stdout, _ := call(t, "--root", root, "status")
	if status != 1 || strings.ContainsAny(stdout, "\x1b\x07") {
		t.Errorf("status %d:\n%q", status, stdout)
	}
}

func TestRunTellsARefusalFromAFault(t *testing.T) {
	for code, want := range map[int]int{403: statusRefused, 404: statusFault, 400: statusFault, 503: statusFault, 500: statusFault} {
		root := shortDir(t)
		fakeAdmin(t, root, map[string]http.HandlerFunc{"POST /v1/sessions": answer(code, apitype.Error{Message: "no", Hint: "so"})})
		status, _, stderr := call(t, "--root", root, "run", "--", "true")
		if status != want || stderr != "bawn: no\nhint: so\n" {
			t.Errorf("answer %d: status %d, want %d; %q", code, status, want, stderr)
		}
	}
}

// failingWriter is a full disk.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestOutputThatCannotBeWrittenIsAFault(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{
		"GET /v1/status":           answer(200, apitype.Status{Ready: true}),
		"GET /v1/agents":           answer(200, []apitype.Agent{{Name: "dev"}}),
		"GET /v1/policy":           answer(200, apitype.Revision{YAML: "version: 1\n"}),
		"GET /v1/policy/effective": answer(200, apitype.Text{Text: "version: 1\n"}),
		"GET /v1/policy/revisions": answer(200, []apitype.Revision{{Number: 1}}),
		"POST /v1/policy/explain":  answer(200, apitype.Explained{Effect: "allow", Text: "x"}),
		"GET /v1/log":              func(http.ResponseWriter, *http.Request) {},
	})
	for _, args := range []string{"status", "status --json", "agent list", "agent list --json", "policy show", "policy show --effective", "policy revisions", "policy revisions --json", "log", "policy explain a GET https://b/", "policy explain a GET https://b/ --json"} {
		var stderr bytes.Buffer
		if status := run(context.Background(), append([]string{"--root", root}, strings.Fields(args)...), nil, failingWriter{}, &stderr); status != 1 || stderr.Len() == 0 {
			t.Errorf("%s: status %d, error %q", args, status, stderr.String())
		}
	}
}

func TestStatusSaysWhatIsMissing(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{"GET /v1/status": answer(200, apitype.Status{
		Version: "v1", Why: "no proxy holds a lease", Agents: 1,
		Parts: []apitype.Part{{Name: "netd", OK: true}, {Name: "database", Detail: "gone"}},
	})})
	status, stdout, _ := call(t, "--root", root, "status")
	want := `bawn v1: closed: no proxy holds a lease
  netd      ok
  database  FAILED  gone
  doctor            has not run yet
  policy            none yet: everything is denied ("bawn policy apply FILE" makes the first)
  agents            1 registered, 0 sessions
`
	if diff := cmp.Diff(want, stdout); diff != "" || status != 1 {
		t.Errorf("status %d (-want +got)\n%s", status, diff)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
