// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/config"
	"bawn/internal/roottest"
)

func script(t *testing.T, text string) *child {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	return &child{
		name: "test", argv: []string{"/bin/sh", "-c", text}, stderr: null,
		log: slog.New(slog.DiscardHandler), ready: make(chan struct{}),
	}
}

func TestAChildThatWasNeverReadyIsNotRepeated(t *testing.T) {
	err := script(t, "exit 3").keep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "starting test: exit status 3") {
		t.Errorf("error %v", err)
	}
}

// TestI2AChildThatDiesIsStartedAgain kills a child that was ready, and waits
// for its successor.
func TestI2AChildThatDiesIsStartedAgain(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	c := script(t, `echo $$ >>`+pids+`; echo >&3; exec sleep 60`)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- c.keep(ctx) }()
	<-c.ready
	first := waitPIDs(t, pids, 1)[0]
	syscall.Kill(first, syscall.SIGKILL)
	second := waitPIDs(t, pids, 2)[1]
	if second == first {
		t.Error("the same process twice")
	}
	cancel()
	if err := <-kept; err != nil {
		t.Errorf("orderly stop: %v", err)
	}
	if err := syscall.Kill(second, 0); err != syscall.ESRCH {
		t.Errorf("the child is still there after the stop: %v", err)
	}
}

// TestWhatIsHandedOverIsMadeAnewForEachStart, and stands before the ready pipe.
// A start for which it cannot be made fails, and the next is tried.
func TestWhatIsHandedOverIsMadeAnewForEachStart(t *testing.T) {
	dir := t.TempDir()
	pids, got := filepath.Join(dir, "pids"), filepath.Join(dir, "got")
	c := script(t, `cat <&3 >>`+got+`; echo $$ >>`+pids+`; echo >&4; exec sleep 60`)
	made := 0
	c.fresh = func() (*os.File, error) {
		if made++; made == 2 {
			return nil, errors.New("the key is gone")
		}
		r, w, err := os.Pipe()
		if err == nil {
			_, err = fmt.Fprintf(w, "start %d\n", made)
			w.Close()
		}
		return r, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- c.keep(ctx) }()
	<-c.ready
	syscall.Kill(waitPIDs(t, pids, 1)[0], syscall.SIGKILL)
	waitPIDs(t, pids, 2)
	cancel()
	if err := <-kept; err != nil {
		t.Errorf("orderly stop: %v", err)
	}
	if text, err := os.ReadFile(got); err != nil || string(text) != "start 1\nstart 3\n" {
		t.Errorf("handed over %q, %v", text, err)
	}
}

// TestI2TheSelfTestRunsAgainAfterARestart kills a child twice.
func TestI2TheSelfTestRunsAgainAfterARestart(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	c := script(t, `echo $$ >>`+pids+`; echo >&3; exec sleep 60`)
	c.again = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	calls := make(chan struct{}, 10)
	done := make(chan error, 1)
	o := Options{Log: slog.New(slog.DiscardHandler), Ready: func(context.Context) error { calls <- struct{}{}; return nil }}
	go func() { done <- runChildren(ctx, o, []*child{c}) }()
	<-calls
	for n := range 2 {
		syscall.Kill(waitPIDs(t, pids, n+1)[n], syscall.SIGKILL)
		<-calls
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("orderly stop: %v", err)
	}
}

func waitPIDs(t *testing.T, file string, n int) []int {
	t.Helper()
	for range 500 {
		data, _ := os.ReadFile(file)
		if lines := bytes.Fields(data); len(lines) >= n {
			var pids []int
			for _, l := range lines {
				pid, err := strconv.Atoi(string(l))
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
			return pids
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no %d processes in %s", n, file)
	return nil
}

func TestOperatorsEnvironmentStaysOutside(t *testing.T) {
	got := passedOn([]string{"PATH=/evil", "LD_PRELOAD=/evil.so", "HTTPS_PROXY=http://evil", "BAWN_DEBUG=1", "GODEBUG=x"})
	if len(got) != 1 || got[0] != "BAWN_DEBUG=1" {
		t.Errorf("passed on: %v", got)
	}
}

func TestOneSupervisorForARoot(t *testing.T) {
	p := config.Paths{Root: t.TempDir()}
	unlock, err := Lock(p)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(p)
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("a second one: %v; it should name the process", err)
	}
	unlock()
	again, err := Lock(p)
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	again()
}

func TestStateDirectoriesAreNotFollowedThroughLinks(t *testing.T) {
	roottest.Require(t)
	p := config.Paths{Root: t.TempDir()}
	a := accounts{admin: account{4711, 4711}, proxy: account{4712, 4712}}
	if err := makeDirectories(p, a); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{p.State("admin"): "drwx------", p.Journal("proxy"): "dgrwxr-x---", p.Agents(): "drwx--x--x"} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v, %v, want %s", path, info.Mode(), err, want)
		}
	}
	elsewhere := t.TempDir()
	os.Remove(p.State("admin"))
	os.Symlink(elsewhere, p.State("admin"))
	if err := makeDirectories(p, a); err == nil || !strings.Contains(err.Error(), p.State("admin")) {
		t.Errorf("a link in the place of a state directory: %v", err)
	}
}

func TestSocketsAreTakenOverAndNothingElseIs(t *testing.T) {
	roottest.Require(t)
	p := config.Paths{Root: t.TempDir()}
	os.MkdirAll(p.Run(), 0o755)
	for range 2 { // the second finds what the first left
		s, err := listen(p, accounts{})
		if err != nil {
			t.Fatal(err)
		}
		s.close()
	}
	os.Remove(p.AdminSock())
	os.WriteFile(p.AdminSock(), []byte("mine"), 0o600)
	if _, err := listen(p, accounts{}); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a file in the place of the socket: %v", err)
	}
	if data, _ := os.ReadFile(p.AdminSock()); string(data) != "mine" {
		t.Error("somebody's file was removed")
	}
}
