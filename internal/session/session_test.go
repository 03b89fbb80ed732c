// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/config"
	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/peercred"
	"bawn/internal/session"
	"bawn/internal/store"
)

// netd notes what it is asked and answers as the test says. The end-to-end
// tests have the real one.
type netd struct {
	mu      sync.Mutex
	specs   []netdapi.StartSpec
	refuse  error
	taken   int // slots up to this one have a proxy's address that somebody took
	stopped []string
}

func (n *netd) Start(_ context.Context, s netdapi.StartSpec, _ []*os.File) ([]*os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.specs = append(n.specs, s)
	if s.Identity.Slot <= n.taken {
		return nil, netdapi.Errorf(netdapi.CodeAddressTaken, "address already in use")
	}
	return nil, n.refuse
}
func (n *netd) Signal(context.Context, string, syscall.Signal) error { return nil }
func (n *netd) Stop(_ context.Context, s string) error {
	n.stopped = append(n.stopped, s)
	return nil
}
func (n *netd) DialSession(context.Context, string, uint16) (*os.File, error) {
	return nil, errors.New("not here")
}

type rig struct {
	*session.Manager
	netd  *netd
	store *store.Store
	shut  string
}

func newRig(t *testing.T, agents ...string) *rig {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, a := range agents {
		if _, err := s.CreateAgent(t.Context(), store.Agent{Name: a, User: "alice", Placement: ids.PlacementNetns, Created: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{netd: &netd{}, store: s}
	r.Manager = session.New(session.Options{
		Netd: func() (session.Netd, error) { return r.netd, nil }, Registry: s, Epoch: 7,
		Limits: config.Default().Limits, Closed: func(ids.Placement) string { return r.shut },
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	return r
}

func (r *rig) start(t *testing.T, s apitype.StartSession, files ...*os.File) (*session.Running, error) {
	t.Helper()
	if s.Argv == nil {
		s.Argv = []string{"true"}
	}
	run, _, err := r.Start(t.Context(), peercred.Peer{UID: uint32(os.Getuid())}, s, files)
	return run, err
}

func status(err error) int {
	if e, ok := errors.AsType[*apitype.Error](err); ok {
		return e.Status
	}
	return 0
}

func TestI8SlotsAreUsedAgainAndGenerationsNever(t *testing.T) {
	r := newRig(t, "dev")
	seen := map[ids.Generation]bool{}
	var slots []int
	for range 5 {
		run, err := r.start(t, apitype.StartSession{})
		if err != nil {
			t.Fatal(err)
		}
		if seen[run.Gen] || run.Gen.Epoch != 7 {
			t.Errorf("generation %v was there before", run.Gen)
		}
		seen[run.Gen] = true
		slots = append(slots, run.Slot)
		r.Exited(netdapi.Exit{Session: run.Session.Session, Status: 3})
		if e := <-run.Exit(); e.Status != 3 {
			t.Errorf("exit %+v", e)
		}
	}
	for _, s := range slots {
		if s != slots[0] {
			t.Errorf("slots %v: a free one was not used again", slots)
		}
	}
	open, err := r.store.OpenSessions(t.Context())
	if err != nil || len(open) != 0 {
		t.Errorf("sessions left open: %v, %v", open, err)
	}
}

func TestARefusedStartLeavesNothingReserved(t *testing.T) {
	r := newRig(t, "dev")
	r.netd.refuse = netdapi.Errorf(netdapi.CodeUnavailable, "the proxy is away")
	if _, err := r.start(t, apitype.StartSession{}); status(err) != 503 || !strings.Contains(err.Error(), "the proxy is away") {
		t.Errorf("error %v", err)
	}
	r.netd.refuse = nil
	run, err := r.start(t, apitype.StartSession{})
	if err != nil || run.Slot != 1 || len(r.List()) != 1 {
		t.Errorf("slot %+v after a refusal, %v, %d running", run, err, len(r.List()))
	}
}

// TestATakenAddressIsPassedOver: any account of the host can listen where a
// slot's proxy should, and keeps nobody's agent from running.
func TestATakenAddressIsPassedOver(t *testing.T) {
	r := newRig(t, "dev")
	r.netd.taken = 3
	run, err := r.start(t, apitype.StartSession{Placement: ids.PlacementUID})
	if err != nil || run.Slot != 4 || len(r.List()) != 1 {
		t.Fatalf("%+v, %v, %d running", run, err, len(r.List()))
	}
	if env := strings.Join(r.netd.specs[3].Env, "\n"); !strings.Contains(env, "HTTPS_PROXY=http://127.66.0.4:3128") {
		t.Error("the environment is another slot's")
	}
	r.netd.taken = 1000
	if _, err := r.start(t, apitype.StartSession{Placement: ids.PlacementUID}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("with every address taken: %v", err)
	}
	if open, _ := r.store.OpenSessions(t.Context()); len(open) != 1 {
		t.Errorf("%d sessions are on record as running", len(open))
	}
}

func TestI2LostNetdEndsEverySessionOnce(t *testing.T) {
	r := newRig(t, "dev")
	run, err := r.start(t, apitype.StartSession{})
	if err != nil {
		t.Fatal(err)
	}
	r.Lost()
	r.Exited(netdapi.Exit{Session: run.Session.Session})
	r.Lost()
	if e := <-run.Exit(); e.Status != 125 || e.Fault == "" {
		t.Errorf("exit %+v", e)
	}
	if len(r.List()) != 0 {
		t.Error("a session without a netd is still listed")
	}
}

func TestWhoRuns(t *testing.T) {
	r := newRig(t)
	if _, err := r.start(t, apitype.StartSession{}); status(err) != 404 {
		t.Errorf("no agent: %v", err)
	}
	r = newRig(t, "dev")
	if _, err := r.start(t, apitype.StartSession{}); err != nil {
		t.Errorf("the only agent needs no name: %v", err)
	}
	if _, err := r.start(t, apitype.StartSession{Agent: "other"}); status(err) != 404 {
		t.Errorf("an unknown one: %v", err)
	}
	r = newRig(t, "dev", "ops", session.Doctor)
	if _, err := r.start(t, apitype.StartSession{}); status(err) != 400 {
		t.Errorf("two and no name: %v", err)
	}
	if _, err := r.start(t, apitype.StartSession{Agent: session.Doctor}); status(err) != 404 {
		t.Errorf("the self-test's agent: %v", err)
	}
}

func TestI2NoAgentWhereTheSelfTestFailed(t *testing.T) {
	r := newRig(t, "dev")
	r.shut = "a canary got out"
	if _, err := r.start(t, apitype.StartSession{}); status(err) != 503 || !strings.Contains(err.Error(), "a canary got out") {
		t.Errorf("error %v", err)
	}
	if len(r.netd.specs) != 0 {
		t.Error("netd was asked all the same")
	}
}

func TestWhatACallerMayNotAsk(t *testing.T) {
	dir, file, null := t.TempDir(), open(t, os.Args[0]), open(t, os.DevNull)
	own := open(t, dir)
	zero := 0
	at := func(n int) *apitype.Directory { return &apitype.Directory{File: n, Path: "/x"} }
	for name, c := range map[string]struct {
		start apitype.StartSession
		files []*os.File
	}{
		"no command":                     {apitype.StartSession{Argv: []string{}}, nil},
		"an empty command":               {apitype.StartSession{Argv: []string{""}}, nil},
		"too many arguments":             {apitype.StartSession{Argv: make([]string, 5000)}, nil},
		"too long arguments":             {apitype.StartSession{Argv: []string{"true", strings.Repeat("x", 100<<10)}}, nil},
		"the proxy's variable":           {apitype.StartSession{Env: []string{"https_proxy=http://evil.example"}}, nil},
		"no variable":                    {apitype.StartSession{Env: []string{"x"}}, nil},
		"an unknown placement":           {apitype.StartSession{Placement: "host"}, nil},
		"a workspace and a clone":        {apitype.StartSession{Work: at(0), Repo: at(1)}, []*os.File{own, own}},
		"a descriptor that did not come": {apitype.StartSession{Work: at(1)}, []*os.File{own}},
		"one descriptor twice":           {apitype.StartSession{Lends: []apitype.Directory{*at(0), *at(0)}}, []*os.File{own}},
		"one place twice":                {apitype.StartSession{Lends: []apitype.Directory{*at(0), *at(1)}}, []*os.File{own, own}},
		"the proof as a directory":       {apitype.StartSession{Work: at(0), Proof: &zero}, []*os.File{own}},
		"a file as a directory":          {apitype.StartSession{Work: at(0)}, []*os.File{file}},
		"a device as a directory":        {apitype.StartSession{Lends: []apitype.Directory{*at(0)}}, []*os.File{null}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "dev")
			if c.start.Argv == nil {
				c.start.Argv = []string{"true"}
			}
			_, _, err := r.Start(t.Context(), peercred.Peer{UID: uint32(os.Getuid())}, c.start, c.files)
			if s := status(err); s != 400 && s != 403 {
				t.Errorf("error %v", err)
			}
			if len(r.netd.specs) != 0 {
				t.Error("netd was asked all the same")
			}
		})
	}
}

func TestAWorkspaceMustBeTheCallersOwn(t *testing.T) {
	r := newRig(t, "dev")
	own := open(t, t.TempDir())
	proof := 1
	start := apitype.StartSession{Argv: []string{"true"}, Work: &apitype.Directory{Path: "/home/op/x"}, Proof: &proof}
	stranger := peercred.Peer{UID: 4711}
	if _, _, err := r.Start(t.Context(), stranger, start, []*os.File{own, own}); status(err) != 403 {
		t.Errorf("another's directory as a workspace: %v", err)
	}
	if _, err := r.start(t, start, own, own); err != nil {
		t.Fatal(err)
	}
	spec := r.netd.specs[0]
	if spec.Work.OwnerUID != uint32(os.Getuid()) || spec.Work.Path != "/home/op/x" || *spec.Operator != 1 {
		t.Errorf("netd was told %+v", spec.Work)
	}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestThePlacementsProxyIsInTheEnvironment(t *testing.T) {
	r := newRig(t, "dev")
	for _, p := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		if _, err := r.start(t, apitype.StartSession{Placement: p, Env: []string{"TERM=xterm"}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"HTTPS_PROXY=http://198.18.0.1:3128", "HTTPS_PROXY=http://127.66.0.2:3128"} {
		env := strings.Join(r.netd.specs[i].Env, "\n")
		if !strings.Contains(env, want) || !strings.Contains(env, "TERM=xterm") {
			t.Errorf("environment of %s lacks %s", r.netd.specs[i].Placement, want)
		}
	}
}

func TestOnlyPublishedPortsAreDialled(t *testing.T) {
	r := newRig(t, "dev")
	run, err := r.start(t, apitype.StartSession{Ports: []uint16{3000}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Dial(t.Context(), 22); err == nil || !strings.Contains(err.Error(), "was not published") {
		t.Errorf("error %v", err)
	}
	if err := run.Signal(t.Context(), "SIGSEGV"); err == nil {
		t.Error("any signal may be sent")
	}
}
