// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/apitype"
	"bawn/internal/ca"
	"bawn/internal/codes"
	"bawn/internal/config"
	"bawn/internal/dnsclient"
	"bawn/internal/doctor"
	"bawn/internal/roottest"
)

// What admin says of itself, where something has really failed. Two checks have
// no such test: that the clock is before the day of the build (clock_build),
// since no namespace has a wall clock of its own and the machine's is not a
// test's to set; and the parent proxy, whose failures package parent tests.

// rooted is a server with a state directory.
func rooted(t *testing.T) *Server {
	t.Helper()
	s := bare()
	s.o.Paths = config.Paths{Root: t.TempDir()}
	for _, dir := range []string{s.o.Paths.Journal("proxy"), s.o.Paths.Journal("admin"), s.o.Paths.Public()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func isFinding(t *testing.T, what string, f doctor.Finding, name doctor.Name, state doctor.State, seen string) {
	t.Helper()
	if f.Name != name || f.State != state || !strings.Contains(f.Seen, seen) {
		t.Errorf("%s: %+v, want %s with %q", what, f, state, seen)
	}
}

// TestI12ARootOfOtherDatesIsToldByThem: roots that were made by clocks that were
// wrong, or long ago.
func TestI12ARootOfOtherDatesIsToldByThem(t *testing.T) {
	now := time.Now()
	made := func(at time.Time) doctor.Finding {
		s := rooted(t)
		var err error
		if s.root, err = ca.OpenRoot(t.TempDir(), func() time.Time { return at }); err != nil {
			t.Fatal(err)
		}
		return s.caDates()
	}
	s := rooted(t)
	root, err := ca.OpenRoot(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	from, to := root.Validity()
	life := to.Sub(from)
	s.root = root
	isFinding(t, "made now", s.caDates(), doctor.CADates, doctor.OK, "until ")
	isFinding(t, "ends soon", made(now.Add(-life).AddDate(0, 0, 20)), doctor.CADates, doctor.Warn, "ends on ")
	isFinding(t, "ended", made(now.Add(-life).AddDate(0, 0, -5)), doctor.CADates, doctor.Fail, "ended on ")
	isFinding(t, "made by a clock that went before", made(now.AddDate(0, 1, 0)), doctor.CADates, doctor.Fail, "valid only from ")
}

// TestI12AnIndexThatIsBehindIsTold: records are written that it does not take in,
// and one that has no place for its database.
func TestI12AnIndexThatIsBehindIsTold(t *testing.T) {
	s := rooted(t)
	var mu sync.Mutex
	later := time.Duration(0)
	s.o.Now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(later)
	}
	s.index = s.openIndex(t.Context())
	t.Cleanup(func() { s.index.Close() })
	plane := newPlane(t, s.o.Paths)
	plane.request("dev", "api.example.com", time.Now(), codes.HostNotAllowed)
	run := func(until func(doctor.Finding) bool) {
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { s.index.Run(ctx) })
		for end := time.Now().Add(20 * time.Second); !until(s.indexFinding()) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			s.index.CatchUp(ctx)
		}
		stop()
		done.Wait()
	}
	ok := func(f doctor.Finding) bool { return f.State == doctor.OK && f.Seen == "0 bytes behind" }
	run(ok)
	isFinding(t, "at the end", s.indexFinding(), doctor.IndexLag, doctor.OK, "0 bytes behind")
	plane.request("dev", "api.example.com", time.Now(), codes.HostNotAllowed) // and nobody takes it in
	mu.Lock()
	later = 3 * time.Minute
	mu.Unlock()
	isFinding(t, "stopped", s.indexFinding(), doctor.IndexLag, doctor.Warn, "behind, for 3m")
	run(ok)
	isFinding(t, "going on", s.indexFinding(), doctor.IndexLag, doctor.OK, "0 bytes behind")

	s = rooted(t)
	if err := os.MkdirAll(s.o.Paths.Index()+"/in/the/way", 0o700); err != nil {
		t.Fatal(err)
	}
	s.index = s.openIndex(t.Context())
	t.Cleanup(func() { s.index.Close() })
	run(func(f doctor.Finding) bool { return f.State != doctor.OK })
	isFinding(t, "no database", s.indexFinding(), doctor.IndexLag, doctor.Warn, "index")
}

// TestI12ASignerThatCannotWriteIsTold: its directory is on a file system that was
// mounted read-only.
func TestI12ASignerThatCannotWriteIsTold(t *testing.T) {
	roottest.Require(t)
	s := rooted(t)
	var err error
	if s.acts, err = openActs(s.o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.acts.Close() })
	if s.signer, err = s.openSigner(); err != nil {
		t.Fatal(err)
	}
	plane := newPlane(t, s.o.Paths)
	plane.request("dev", "api.example.com", time.Now(), codes.HostNotAllowed)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: this thread has mounts of its own
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("tmpfs", s.o.Paths.Checkpoints(), "tmpfs", unix.MS_RDONLY, ""); err != nil {
				return err
			}
			if s.signer.SignNow() == nil {
				t.Error("a checkpoint was written to a file system that is read-only")
			}
			return unix.Unmount(s.o.Paths.Checkpoints(), 0)
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	isFinding(t, "read-only", s.checkpoints(), doctor.Checkpoint, doctor.Fail, "read-only file system")
	if err := s.signer.SignNow(); err != nil {
		t.Fatal(err)
	}
	isFinding(t, "mended", s.checkpoints(), doctor.Checkpoint, doctor.OK, "2 journals")
}

// childVerb has the test binary's test of that name do its part in a place of
// its own.
const childVerb = "ADMIN_TEST_CHILD"

// TestI12AClockThatJumpsIsTold: between two looks the clock that nobody sets goes
// an hour further, in a time namespace, and the wall clock does not.
func TestI12AClockThatJumpsIsTold(t *testing.T) {
	if text := os.Getenv(childVerb); text != "" {
		var wall, mono int64
		if _, err := fmt.Sscan(text, &wall, &mono); err != nil {
			t.Fatal(err)
		}
		c := clock{now: sinceBoot, wall: time.Unix(0, wall), mono: time.Duration(mono)}
		out, err := json.Marshal(c.look(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child:%s\n", out)
		return
	}
	roottest.Require(t)
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		roottest.Skip(t, "needs time namespaces")
	}
	c := clock{now: sinceBoot}
	isFinding(t, "the first look", c.look(time.Now()), doctor.ClockJump, doctor.OK, "first look")
	isFinding(t, "the second", c.look(time.Now()), doctor.ClockJump, doctor.OK, "0s")
	for offset, want := range map[string]doctor.State{"0": doctor.OK, "3600": doctor.Warn} {
		cmd := exec.Command("unshare", "--time", "--boottime", offset, "/proc/self/exe", "-test.run", "^"+t.Name()+"$")
		if path, err := os.Executable(); err == nil {
			cmd.Args[4] = path
		}
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", childVerb, c.wall.UnixNano(), c.mono))
		f := childFinding(t, cmd)
		isFinding(t, "boot "+offset+" s before", f, doctor.ClockJump, want, "")
		if want == doctor.Warn && !strings.Contains(f.Seen, "the wall clock went ") {
			t.Errorf("%+v", f)
		}
	}
}

// childFinding is the finding that a child has printed.
func childFinding(t *testing.T, cmd *exec.Cmd) (f doctor.Finding) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	_, text, ok := strings.Cut(string(out), "child:")
	line, _, _ := strings.Cut(text, "\n")
	if err != nil || !ok || json.Unmarshal([]byte(line), &f) != nil {
		t.Fatalf("%v %s", err, out)
	}
	return f
}

// TestI12ResolversThatDoNotAnswerAreTold: in a network of its own, one that is
// silent, one that is not there, and one to which no way leads, asked as the
// proxy asks them.
func TestI12ResolversThatDoNotAnswerAreTold(t *testing.T) {
	if os.Getenv(childVerb) == "" {
		roottest.Require(t)
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), childVerb+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
		isFinding(t, "none answers", childFinding(t, cmd), doctor.Resolvers, doctor.Fail, "192.0.2.53:53")
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	silent, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := dnsclient.New(dnsclient.Options{
		Timeout: 300 * time.Millisecond,
		Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53"), netip.MustParseAddrPort("127.0.0.2:53"), netip.MustParseAddrPort("192.0.2.53:53")},
	})
	s := bare()
	number := s.planes.askResolvers() + 1 // that of the question that resolverFinding asks
	report := apitype.ResolverReport{Check: number}
	for _, h := range c.Check(t.Context()) {
		report.Asked++
		if h.Err != nil {
			report.Failed = append(report.Failed, fmt.Sprintf("%s: %v", h.Server, h.Err))
		}
	}
	go func() {
		for s.planes.checkAsked() < number {
			time.Sleep(time.Millisecond)
		}
		s.planes.resolversReported(report)
	}()
	f := s.resolverFinding(t.Context())
	for _, server := range []string{"127.0.0.1:53", "127.0.0.2:53"} {
		if !strings.Contains(f.Seen, server) {
			t.Errorf("%+v has nothing of %s", f, server)
		}
	}
	out, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("child:%s\n", out)
}
