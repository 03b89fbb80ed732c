// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package h2suite has tests judged by h2spec, which nobody here wrote.
//
// The suite and its counterpart for clients, h2specd, are pinned in
// tools/go.mod and built by the go command where a test asks for them. What may
// fail is a list with a reason for each case, and a case of the list that does
// not fail is a failure too, so that the list stays true.
package h2suite

import (
	"encoding/xml"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"bawn/internal/roottest"
)

// Deviations are cases that may fail, and why.
type Deviations map[string]string

// judge compares what failed with what may.
func (d Deviations) judge(t *testing.T, failed map[string]bool) {
	t.Helper()
	for name, bad := range failed {
		switch why, listed := d[name]; {
		case bad && !listed:
			t.Errorf("fails: %s", name)
		case !bad && listed:
			t.Errorf("listed (%s), and does not fail: %s", why, name)
		}
	}
	for name := range d {
		if _, ran := failed[name]; !ran {
			t.Errorf("listed, and not a case: %s", name)
		}
	}
}

// The cases of the pinned version: fewer mean that something did not run.
const (
	serverCases = 146
	clientCases = 57
)

// Server has h2spec try the server at a name and port of this machine, strict
// cases included.
func Server(t *testing.T, host, port string, secure bool, may Deviations) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.xml")
	args := []string{"-h", host, "-p", port, "-o", "5", "-S", "-j", report}
	if secure {
		args = append(args, "-t", "-k")
	}
	out := run(t, "h2spec", nil, args...)
	cases := readReport(t, report)
	if len(cases) != serverCases {
		t.Errorf("%d cases ran, want %d", len(cases), serverCases)
	}
	if may.judge(t, cases); t.Failed() {
		t.Logf("%.20000s", out)
	}
}

// readReport reads which cases a report in JUnit's form has, and whether they
// failed.
func readReport(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Suites []struct {
			Package string `xml:"package,attr"`
			Cases   []struct {
				Name    string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{}
	for _, s := range report.Suites {
		for i, c := range s.Cases {
			cases[fmt.Sprintf("%s/%d: %s", s.Package, i+1, c.Name)] = c.Failure != nil || c.Error != nil
		}
	}
	return cases
}

// Clients describes clients to be tried: Exec is started with the address of a
// server as its last argument, asks it once, and ends when the server has said
// what it had to.
type Clients struct {
	Exec      string
	Env       []string
	First     int    // of the ports, of which there are ClientPorts
	Cert, Key string // files; with them the servers speak TLS
	May       Deviations
}

// ClientPorts is how many ports the servers for clients take.
const ClientPorts = clientCases

var verdictLine = regexp.MustCompile(`(?m)(✔|×).*?(\d+: .*)$`)

// Run has h2specd try the clients.
func (c Clients) Run(t *testing.T) {
	t.Helper()
	args := []string{"-f", strconv.Itoa(c.First), "-o", "5", "-e", c.Exec}
	if c.Cert != "" {
		args = append(args, "-t", "-c", c.Cert, "-k", c.Key)
	}
	out := run(t, "h2specd", c.Env, args...)
	cases, section := map[string]bool{}, ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if m := verdictLine.FindStringSubmatch(line); m != nil {
			cases[section+"/"+m[2]] = cases[section+"/"+m[2]] || m[1] == "×"
		} else if number, _, ok := strings.Cut(line, ". "); ok && strings.Trim(number, "0123456789.") == "" {
			section = number
		}
	}
	if len(cases) != clientCases {
		t.Errorf("%d cases ran, want %d", len(cases), clientCases)
	}
	if c.May.judge(t, cases); t.Failed() {
		t.Logf("%.20000s", out)
	}
}

// FreePorts finds ports in a row that nobody listens on, for [Clients].
func FreePorts(t *testing.T) int {
	t.Helper()
	for first := 20_000 + os.Getpid()%100*ClientPorts; first < 32_000; first += ClientPorts {
		if free(first) {
			return first
		}
	}
	t.Fatal("no ports are free")
	return 0
}

func free(first int) bool {
	for p := first; p < first+ClientPorts; p++ {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err != nil {
			return false
		}
		ln.Close()
	}
	return true
}

// run runs one of the suite's tools and returns what it says.
func run(t *testing.T, name string, env []string, args ...string) string {
	t.Helper()
	tool := []string{"tool", "-modfile=" + filepath.Join("..", "..", "tools", "go.mod"), name}
	if out, err := exec.CommandContext(t.Context(), "go", append(tool, "--version")...).CombinedOutput(); err != nil {
		roottest.Skip(t, fmt.Sprintf("%s cannot be built: %v: %s", name, err, out))
	}
	cmd := exec.CommandContext(t.Context(), "go", append(tool, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%s: %v", name, err) // as it ends when a case fails
	}
	return string(out)
}
