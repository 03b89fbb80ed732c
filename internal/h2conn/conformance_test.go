// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
	"bawn/internal/roottest"
)

// h2spec runs a tool of the suite of that name, which is pinned in
// tools/go.mod.
func h2spec(t *testing.T, name string, env []string, args ...string) string {
	t.Helper()
	tool := []string{"tool", "-modfile=" + filepath.Join("..", "..", "tools", "go.mod"), name}
	if out, err := exec.CommandContext(t.Context(), "go", append(tool, "--version")...).CombinedOutput(); err != nil {
		roottest.Skip(t, fmt.Sprintf("%s cannot be built: %v: %s", name, err, out))
	}
	cmd := exec.CommandContext(t.Context(), "go", append(tool, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%s: %v", name, err)
	}
	return string(out)
}

// The deviations of the server: none.
var serverDeviates = map[string]string{}

// TestServerConforms has h2spec try a server, strict cases included.
func TestServerConforms(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go h2conn.NewServer(nc, h2conn.Limits{}, answer).Serve() //nolint:errcheck // the suite judges
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	report := filepath.Join(t.TempDir(), "report.xml")
	out := h2spec(t, "h2spec", nil, "-h", "127.0.0.1", "-p", port, "-o", "5", "-S", "-j", report)
	cases := readReport(t, report)
	if len(cases) < 140 {
		t.Fatalf("only %d cases ran:\n%s", len(cases), out)
	}
	for name, failed := range cases {
		if why := serverDeviates[name]; failed && why == "" {
			t.Errorf("fails: %s", name)
		} else if !failed && why != "" {
			t.Errorf("does not fail any more: %s", name)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// answer reads the request to its end and answers what it deserves.
func answer(s *h2conn.ServerStream) {
	_, refused := s.Head()
	if _, err := io.Copy(io.Discard, s.Body()); err != nil && refused == nil {
		refused = err
	}
	code := 200
	if refused != nil {
		code = 400
	}
	s.WriteHead(status(code), false)
	s.Write(make([]byte, 100))
	s.End(nil)
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

// clientFor names the variable that makes this test binary a client.
const clientFor = "BAWN_H2CONN_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(clientFor) != "" {
		os.Exit(beClient(os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// beClient sends one request and reads the response, as h2specd has its clients
// do.
func beClient(target string) int {
	u, err := url.Parse(target)
	if err != nil {
		return 2
	}
	nc, err := net.Dial("tcp", u.Host)
	if err != nil {
		return 2
	}
	k, err := h2conn.NewClient(nc, h2conn.Limits{})
	if err != nil {
		return 2
	}
	defer func() { k.Close(); <-k.Done() }()
	s, err := k.Open(request("GET"), "http", "/", true)
	if err != nil {
		return 1
	}
	for {
		var p httpwire.Response
		if err := s.ReadHead(&p); err != nil {
			break
		}
	}
	io.Copy(io.Discard, s.Body())
	for k.Usable() { // the server has more to say
		time.Sleep(time.Millisecond)
	}
	return 0
}

// clientDeviates are the cases that the client fails, and why.
var clientDeviates = map[string]string{}

// TestClientConforms has h2specd try a client.
func TestClientConforms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := h2spec(t, "h2specd", []string{clientFor + "=1", "GORACE=atexit_sleep_ms=0"}, "-f", strconv.Itoa(freePorts(t, 120)), "-o", "5", "-e", self)
	failed := 0
	for _, m := range regexp.MustCompile(`(?m)×.*?(\d+: .*)$`).FindAllStringSubmatch(out, -1) {
		failed++
		if clientDeviates[m[1]] == "" {
			t.Errorf("fails: %s", m[1])
		}
	}
	passed := strings.Count(out, "✔")
	if passed+failed < 57 {
		t.Errorf("only %d cases ran", passed+failed)
	}
	if t.Failed() {
		t.Logf("%.10000s", out)
	}
}

// freePorts finds so many ports in a row that nobody listens on.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for first := 20_000; first < 32_000; first += n {
		if free(first, n) {
			return first
		}
	}
	t.Fatal("no ports are free")
	return 0
}

func free(first, n int) bool {
	for p := first; p < first+n; p++ {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err != nil {
			return false
		}
		ln.Close()
	}
	return true
}
