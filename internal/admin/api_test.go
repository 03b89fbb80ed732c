// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/client"
	"bawn/internal/config"
	"bawn/internal/roottest"
	"bawn/internal/store"
)

const (
	operatorGID = 4700
	proxyUID    = 4701
)

// TestMain is also the callers of the tests: a program that asks one route as
// whoever it runs as.
func TestMain(m *testing.M) {
	if sock := os.Getenv("ADMIN_TEST_SOCK"); sock != "" {
		os.Exit(callAs(sock))
	}
	os.Exit(m.Run())
}

// callAs prints the status of each request, given as METHOD and PATH.
func callAs(sock string) int {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", sock)
	}}
	c := &http.Client{Transport: tr, Timeout: 20 * time.Second}
	for i := 1; i+1 < len(os.Args); i += 2 {
		q, err := http.NewRequest(os.Args[i], "http://admin"+os.Args[i+1], strings.NewReader(`{"plane":"proxy"}`))
		if err != nil {
			return 1
		}
		resp, err := c.Do(q)
		if err != nil {
			return 1
		}
		fmt.Println(resp.StatusCode)
	}
	return 0
}

// newServer starts admin in a directory of its own, without netd and planes.
func newServer(t *testing.T) (*Server, *client.Client, string) {
	t.Helper()
	p := config.Paths{Root: t.TempDir()}
	for dir := p.Root; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755) // other accounts connect in some tests
	}
	for _, dir := range []string{p.State("admin"), p.Public(), p.Journal("proxy"), p.Run()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Default()
	cfg.Resolvers = []string{"192.0.2.53"}
	ready := make(chan struct{})
	s, err := Open(t.Context(), Options{
		Paths: p, Config: cfg, Version: "test", Log: slog.New(slog.DiscardHandler),
		ProxyUID: proxyUID, OperatorGID: operatorGID, Ready: func() { close(ready) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", p.AdminSock())
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(p.AdminSock(), 0o666)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	<-ready
	return s, client.New(p.AdminSock()), p.AdminSock()
}

const someYAML = `version: 1
profiles: {reader: {rules: [{host: api.example.com}]}}
agents: {dev: {profile: reader, rules: []}}
`

func addAgent(t *testing.T, s *Server, name string) {
	t.Helper()
	if _, err := s.store.CreateAgent(t.Context(), store.Agent{Name: name, User: "alice", Placement: "netns", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
}

// TestI9EveryRouteAsksWhoCalls: each route, for each kind of caller.
func TestI9EveryRouteAsksWhoCalls(t *testing.T) {
	roottest.Require(t)
	_, _, sock := newServer(t)
	self := filepath.Join(t.TempDir(), "caller")
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(self, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(self); dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	callers := map[string]*syscall.Credential{
		"an operator": {Uid: 4710, Gid: 4710, Groups: []uint32{operatorGID}},
		"the proxy":   {Uid: proxyUID, Gid: proxyUID, Groups: []uint32{}},
		"an agent":    {Uid: 1900000001, Gid: 1900000001, Groups: []uint32{}},
		"anybody":     {Uid: 4711, Gid: 4711, Groups: []uint32{}},
	}
	for name, cred := range callers {
		cmd := exec.Command(self)
		var asked []route
		for _, r := range routes {
			if r.pattern == "POST /doctor" {
				continue // waits for netd, which is not here
			}
			method, path := cutPattern(r.pattern)
			cmd.Args = append(cmd.Args, method, "/v1"+strings.NewReplacer("{name}", "x", "{id}", "x").Replace(path))
			asked = append(asked, r)
		}
		cmd.Env = []string{"ADMIN_TEST_SOCK=" + sock}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		out, err := cmd.Output()
		got := strings.Fields(string(out))
		if err != nil || len(got) != len(asked) {
			t.Fatalf("%s: %v, %d answers to %d requests", name, err, len(got), len(asked))
		}
		for i, r := range asked {
			may := name == "an operator" && r.scope == operator || name == "the proxy" && r.scope == plane
			if (got[i] != "403") != may {
				t.Errorf("%s to %s: %s, may %v", name, r.pattern, got[i], may)
			}
		}
	}
}

func TestRoutesThatDoNotExist(t *testing.T) {
	_, c, _ := newServer(t)
	err := c.RemoveAgent(t.Context(), "nobody")
	if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Status != 404 || !strings.Contains(e.Message, "nobody") {
		t.Errorf("removing an agent that does not exist: %v", err)
	}
}

// TestSilentConnectionsKeepNobodyOut: one account's many silent connections
// leave room for another's.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	_, c, sock := newServer(t)
	var held []net.Conn
	defer func() {
		for _, h := range held {
			h.Close()
		}
	}()
	for range maxConns / 4 {
		h, err := net.Dial("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, h)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("with %d silent connections: %v", len(held), err)
	}
}

func TestAPolicyWithAProblemChangesNothing(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML, Why: "first"}); err != nil {
		t.Fatal(err)
	}
	for name, yaml := range map[string]string{
		"not YAML":         "profiles: [",
		"an unknown agent": strings.ReplaceAll(someYAML, "dev:", "ghost:"),
		"an unknown key":   someYAML + "rules: []\n",
		"nothing":          "",
	} {
		_, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: yaml})
		if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Code != "policy_invalid" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML, Base: 9}); err == nil {
		t.Error("a policy based on another revision was taken")
	}
	r, err := c.Policy(t.Context(), 0)
	if err != nil || r.Number != 1 || r.Why != "first" || r.YAML != someYAML {
		t.Errorf("in force: %+v, %v", r, err)
	}
}

func TestRollbackIsANewRevision(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	second := strings.ReplaceAll(someYAML, "api.example.com", "git.example.com")
	for _, yaml := range []string{someYAML, second} {
		if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: yaml}); err != nil {
			t.Fatal(err)
		}
	}
	done, err := c.RollbackPolicy(t.Context(), apitype.RollbackPolicy{Revision: 1})
	if err != nil || done.Revision != 3 {
		t.Fatalf("rollback: %+v, %v", done, err)
	}
	if r, _ := c.Policy(t.Context(), 0); r.YAML != someYAML || !strings.Contains(r.Why, "revision 1") {
		t.Errorf("in force: %+v", r)
	}
	if _, err := c.RollbackPolicy(t.Context(), apitype.RollbackPolicy{Revision: 9}); err == nil {
		t.Error("a revision that does not exist was rolled back to")
	}
	list, err := c.Revisions(t.Context())
	if err != nil || len(list) != 3 || list[0].Number != 3 || list[0].UID != uint32(os.Getuid()) {
		t.Errorf("revisions %+v, %v", list, err)
	}
}

// TestI2AGoneDatabaseEndsTheLease: a beat reads the database, so a plane's
// lease does not outlive it.
func TestI2AGoneDatabaseEndsTheLease(t *testing.T) {
	s, _, _ := newServer(t)
	ask := func() error {
		q, _ := http.NewRequestWithContext(t.Context(), "POST", "http://admin/v1/plane/lease", strings.NewReader(`{"plane":"proxy","have":""}`))
		return s.lease(discard{}, q, peerOf(proxyUID))
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.o.Paths.Database()); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err == nil {
		t.Error("a beat was answered without a database")
	}
}

func TestNamesThatAreBawnsOwn(t *testing.T) {
	s, c, _ := newServer(t)
	for _, name := range []string{"admin", "proxy", "doctor", "netd", "root", "Dev", "a/b", "", "-x", strings.Repeat("x", 28)} {
		_, err := c.CreateAgent(t.Context(), apitype.CreateAgent{Name: name, User: "alice"})
		if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Status != 400 {
			t.Errorf("agent %q: %v", name, err)
		}
	}
	for _, user := range []string{"", "a\nb", "\x1b[31m", strings.Repeat("x", 400), "\xff"} {
		_, err := c.CreateAgent(t.Context(), apitype.CreateAgent{Name: "dev", User: user})
		if err == nil {
			t.Errorf("user %q accepted", user)
		}
	}
	if agents, _ := s.store.Agents(t.Context()); len(agents) != 0 {
		t.Errorf("agents were left: %v", agents)
	}
}
