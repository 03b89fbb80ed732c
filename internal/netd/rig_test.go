// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bawn/internal/ids"
	"bawn/internal/lending"
	"bawn/internal/netd"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/roottest"
)

// Accounts of the tests; they need no entry in /etc/passwd.
const (
	adminUID = 4001
	proxyUID = 4002
	otherUID = 4003
	devUID   = netplan.FirstUID + 7
)

var privateOnce = sync.OnceValue(private)

// A rig is a netd that serves, with what is around it.
type rig struct {
	t     *testing.T
	o     netd.Options
	sock  string
	exits chan netdapi.Exit
	log   *bytes.Buffer
	stop  func() // ends netd in order; it may be called twice

	mu   sync.Mutex
	next uint64
}

func requirePrivate(t *testing.T) {
	t.Helper()
	roottest.Require(t)
	if err := privateOnce(); err != nil {
		t.Fatal(err)
	}
}

// options are those of a fresh installation.
func options(t *testing.T) netd.Options {
	t.Helper()
	mark := make([]byte, 4)
	rand.Read(mark)
	state := t.TempDir()
	for dir, mode := range map[string]os.FileMode{"agents": 0o711, "public": 0o755} {
		if err := os.Mkdir(filepath.Join(state, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ca.crt", "bundle.crt"} {
		if err := os.WriteFile(filepath.Join(state, "public", name), []byte("a certificate\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return netd.Options{
		State: state, Mark: "bawn-" + hex.EncodeToString(mark), AdminUID: adminUID, ProxyUID: proxyUID, OperatorGID: operatorGID,
		Version: "test", Now: time.Now,
	}
}

// newRig starts netd.
func newRig(t *testing.T) *rig {
	t.Helper()
	requirePrivate(t)
	return startRig(t, options(t))
}

func startRig(t *testing.T, o netd.Options) *rig {
	t.Helper()
	r := &rig{t: t, o: o, exits: make(chan netdapi.Exit, 100), log: &bytes.Buffer{}}
	if r.o.Log == nil {
		r.o.Log = slog.New(slog.NewTextHandler(r.log, nil))
	}
	dir, err := os.MkdirTemp("", "bawn-netd") // short: the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.sock = filepath.Join(dir, "netd.sock")
	s, err := netd.Open(t.Context(), r.o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unixpacket", r.sock)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.sock, 0o777); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serving: %v", err)
		}
		if t.Failed() {
			t.Logf("netd's log:\n%s", r.log)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// as runs do on a thread that has the given account, for the kernel to see.
func as(t *testing.T, uid int, do func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its account
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- do()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// admin connects as bawn-admin.
func (r *rig) admin() *netdapi.Client {
	r.t.Helper()
	var c *netdapi.Client
	as(r.t, adminUID, func() (err error) {
		c, err = netdapi.Dial(r.t.Context(), r.sock, func(e netdapi.Exit) { r.exits <- e })
		return err
	})
	r.t.Cleanup(func() { c.Close() })
	return c
}

// A fakeProxy takes listeners as the proxy would, acknowledges them, and
// answers whoever connects with the slot's number.
type fakeProxy struct {
	feed    *netdapi.Feed
	events  chan netdapi.FeedEvent
	stop    func()
	peerUID chan uint32
}

func (r *rig) proxy() *fakeProxy {
	r.t.Helper()
	p := &fakeProxy{events: make(chan netdapi.FeedEvent, 100), peerUID: make(chan uint32, 100)}
	as(r.t, proxyUID, func() (err error) {
		p.feed, err = netdapi.DialFeed(r.t.Context(), r.sock)
		return err
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	p.stop = sync.OnceFunc(func() { cancel(); p.feed.Close(); <-done })
	r.t.Cleanup(p.stop)
	return p
}

func (p *fakeProxy) run(ctx context.Context) {
	slots := map[int][]net.Listener{}
	closeSlot := func(n int) {
		for _, l := range slots[n] {
			l.Close()
		}
		delete(slots, n)
	}
	defer func() {
		for n := range slots {
			closeSlot(n)
		}
	}()
	for {
		e, err := p.feed.Next(ctx)
		if err != nil {
			return
		}
		switch {
		case e.Added != nil:
			for i, s := range e.Added.Sockets {
				if s.Network == "tcp" {
					if l, err := net.FileListener(e.Files[i]); err == nil {
						slots[e.Added.Identity.Slot] = append(slots[e.Added.Identity.Slot], l)
						go p.answer(l, *e.Added, s)
					}
				}
			}
			netdapi.CloseAll(e.Files)
			p.feed.Ack(e.Added.Seq)
		case e.Removed != nil:
			closeSlot(e.Removed.Slot)
		}
		p.events <- e
	}
}

func (p *fakeProxy) answer(l net.Listener, a netdapi.SlotAdded, s netdapi.Socket) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if a.Placement == ids.PlacementUID {
			uid, _ := netkern.PeerUID(c)
			p.peerUID <- uid
		}
		fmt.Fprintf(c, "slot %d %s %s\n", a.Identity.Slot, s.Arrival, a.Identity.Session)
		c.Close()
	}
}

// spec describes a session of the agent dev in a slot of its own.
func (r *rig) spec(argv ...string) netdapi.StartSpec {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return netdapi.StartSpec{
		Identity: ids.Identity{
			Slot: int(r.next), Gen: ids.Generation{Epoch: 1, Count: r.next}, Session: fmt.Sprintf("s-%016x", r.next),
			Agent: "dev", User: "somebody",
		},
		Placement: ids.PlacementNetns, UID: devUID, Argv: argv,
		Env:    []string{"PATH=/usr/bin:/bin", "HOME=/home/dev"},
		Limits: netdapi.Limits{PIDs: 100, MemoryBytes: 1 << 30},
	}
}

// output reads a session's output until its end.
func output(t *testing.T, files []*os.File) string {
	t.Helper()
	defer netdapi.CloseAll(files)
	var all []byte
	for _, f := range files[max(len(files)-2, 0):] {
		text, _ := io.ReadAll(f) // a terminal ends with EIO
		all = append(all, text...)
	}
	return strings.ReplaceAll(string(all), "\r\n", "\n")
}

func (r *rig) exit() netdapi.Exit {
	r.t.Helper()
	select {
	case e := <-r.exits:
		return e
	case <-time.After(30 * time.Second):
		r.t.Fatal("no session has ended")
		return netdapi.Exit{}
	}
}

// traces lists what sessions have left in the kernel and on disk, and the
// process's descriptors by kind.
func (r *rig) traces() string {
	r.t.Helper()
	var b strings.Builder
	for _, pattern := range []string{"/sys/fs/cgroup/" + r.o.Mark + "/slot-*", "/sys/fs/cgroup/*/" + r.o.Mark + "/slot-*", r.o.State + "/agents/*/tmp/*"} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			fmt.Fprintln(&b, f)
		}
	}
	out, _ := exec.Command("nft", "-s", "list", "table", "inet", r.o.Mark).Output()
	fmt.Fprintf(&b, "%d elements in the firewall\n", strings.Count(string(out), " . 127.66."))
	kinds := map[string]int{}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		kind, _, _ := strings.Cut(target, ":")
		if err == nil && (kind == "net" || kind == "socket" || kind == "pipe") {
			kinds[kind]++
		}
	}
	fmt.Fprintln(&b, kinds)
	return b.String()
}

// eventually waits for something that another goroutine or process brings
// about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}

// operatorGID is the group of operators in these tests.
const operatorGID = 4700

// lent gives files, with the proof that root stands behind them.
func lent(t *testing.T, spec *netdapi.StartSpec, files ...*os.File) []*os.File {
	t.Helper()
	n := len(files)
	spec.Operator = &n
	loans := make([]lending.Loan, n)
	for i, f := range files {
		loans[i] = loanOf(t, f, spec.Work != nil && i == spec.Work.FD)
	}
	return append(files, signedBy(t, 0, 0, loans...))
}

func loanOf(t *testing.T, f *os.File, write bool) lending.Loan {
	t.Helper()
	l, err := lending.Of(f, write)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// signedBy signs loans as uid and gid.
func signedBy(t *testing.T, uid, gid int, loans ...lending.Loan) *os.File {
	t.Helper()
	return signedIn(t, uid, gid, uint32(gid), loans...)
}

// signedIn is signedBy with a supplementary group.
func signedIn(t *testing.T, uid, gid int, also uint32, loans ...lending.Loan) *os.File {
	t.Helper()
	made := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's account ends with it
		unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&also)), 0)
		unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid))
		unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		f, _ := lending.Sign(loans)
		made <- f
	}()
	f := <-made
	if f == nil {
		t.Fatal("no socket pair")
	}
	t.Cleanup(func() { f.Close() })
	return f
}
