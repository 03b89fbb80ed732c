// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"bawn/internal/ids"
	"bawn/internal/netd"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
)

// withAgent is a rig with an admin, a proxy and the agent dev.
func withAgent(t *testing.T) (*rig, *netdapi.Client, *fakeProxy) {
	t.Helper()
	r := newRig(t)
	return prepared(t, r)
}

func prepared(t *testing.T, r *rig) (*rig, *netdapi.Client, *fakeProxy) {
	t.Helper()
	p := r.proxy()
	c := r.admin()
	if err := c.CreateAccount(t.Context(), "dev", devUID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Only the account files matter: the directories are the test's own.
		if cc, err := netdapi.Dial(t.Context(), r.sock, nil); err == nil {
			cc.RemoveAccount(t.Context(), "dev", devUID)
			cc.Close()
		}
	})
	if e := <-p.events; !e.Replayed {
		t.Fatalf("first event %+v", e)
	}
	return r, c, p
}

func placements(t *testing.T, test func(t *testing.T, p ids.Placement)) {
	for _, p := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		t.Run(string(p), func(t *testing.T) { test(t, p) })
	}
}

// TestSessionFromStartToEnd: what runs gets its network, its account and its
// proxy; its end is told once, and then nothing is left.
func TestSessionFromStartToEnd(t *testing.T) {
	r, c, p := withAgent(t)
	placements(t, func(t *testing.T, placement ids.Placement) {
		before := r.traces()
		spec := r.spec("/bin/bash", "-c", `id -u; exec 3<>/dev/tcp/$PROXY && cat <&3; exit 7`)
		spec.Placement = placement
		proxy := fmt.Sprintf("%s/%d", netplan.Gateway, netplan.ProxyPort)
		if placement == ids.PlacementUID {
			proxy = strings.Replace(netplan.UIDProxy(spec.Identity.Slot).String(), ":", "/", 1)
		}
		spec.Env = append(spec.Env, "PROXY="+proxy)
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		added := (<-p.events).Added
		if added == nil || added.Identity != spec.Identity || added.UID != devUID || added.Placement != placement {
			t.Errorf("the proxy was given %+v", added)
		}
		want := fmt.Sprintf("%d\nslot %d explicit %s\n", devUID, spec.Identity.Slot, spec.Identity.Session)
		if got := output(t, files); got != want {
			t.Errorf("output %q, not %q", got, want)
		}
		if placement == ids.PlacementUID {
			if uid := <-p.peerUID; uid != devUID {
				t.Errorf("the proxy's peer is uid %d", uid)
			}
		}
		if e := r.exit(); e != (netdapi.Exit{Session: spec.Identity.Session, Status: 7}) {
			t.Errorf("exit %+v", e)
		}
		removed := (<-p.events).Removed
		if removed == nil || removed.Slot != spec.Identity.Slot || removed.Gen != spec.Identity.Gen {
			t.Errorf("the proxy was told %+v", removed)
		}
		eventually(t, "nothing to be left", func() bool { return r.traces() == before })
	})
}

// TestI1TransparentArrivalInASession: in its own namespace an agent that knows
// of no proxy arrives at it all the same.
func TestI1TransparentArrivalInASession(t *testing.T) {
	r, c, _ := withAgent(t)
	spec := r.spec("/bin/bash", "-c", `exec 3<>/dev/tcp/203.0.113.9/443 && cat <&3; cat /etc/resolv.conf | grep nameserver`)
	files, err := c.Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("slot %d transparent %s\nnameserver 198.18.0.1\n", spec.Identity.Slot, spec.Identity.Session)
	if got := output(t, files); got != want {
		t.Errorf("output %q, not %q", got, want)
	}
}

// TestSessionsOfBothPlacementsDoNotReachEachOther.
func TestSessionsOfBothPlacementsDoNotReachEachOther(t *testing.T) {
	r, c, _ := withAgent(t)
	var victims []netdapi.StartSpec
	for _, p := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		spec := r.spec("/usr/bin/python3", "-c", `
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", 9000)); s.listen()
print("listening", flush=True)
while True: s.accept()[0].send(b"reached")`)
		spec.Placement = p
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer netdapi.CloseAll(files)
		line := make([]byte, 10)
		if _, err := io.ReadFull(files[1], line); err != nil {
			t.Fatal(err)
		}
		victims = append(victims, spec)
	}
	other := netplan.UIDProxy(victims[1].Identity.Slot)
	placements(t, func(t *testing.T, p ids.Placement) {
		spec := r.spec("/bin/bash", "-c", fmt.Sprintf(`
for to in 127.0.0.1/9000 198.18.0.2/9000 %s/9000 %s/%d; do
	(exec 3<>/dev/tcp/$to && timeout 5 head -c 20 <&3) 2>/dev/null; echo "$to done"
done`, other.Addr(), other.Addr(), other.Port()))
		spec.Placement = p
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		out := output(t, files)
		if strings.Contains(out, "reached") || strings.Contains(out, victims[1].Identity.Session) || strings.Count(out, "done") != 4 {
			t.Errorf("output %q", out)
		}
		r.exit()
	})
}

func TestTerminal(t *testing.T) {
	r, c, _ := withAgent(t)
	spec := r.spec("/bin/sh", "-c", `test -t 0 && stty size; read line; echo "got $line"`)
	spec.TTY, spec.Rows, spec.Cols = true, 40, 132
	files, err := c.Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(files[0], "hello")
	if got := output(t, files); !strings.Contains(got, "40 132\n") || !strings.Contains(got, "got hello\n") {
		t.Errorf("output %q", got)
	}
}

func TestDialReachesAPort(t *testing.T) {
	r, c, _ := withAgent(t)
	spec := r.spec("/usr/bin/python3", "-c", `
import socket
s = socket.socket(); s.bind(("127.0.0.1", 8080)); s.listen()
print("up", flush=True)
s.accept()[0].send(b"from inside")`)
	files, err := c.Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer netdapi.CloseAll(files)
	if _, err := io.ReadFull(files[1], make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	f, err := c.DialSession(t.Context(), spec.Identity.Session, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, _ := io.ReadAll(f); string(text) != "from inside" {
		t.Errorf("read %q", text)
	}
	r.exit()
	if _, err := c.DialSession(t.Context(), spec.Identity.Session, 8080); code(err) != netdapi.CodeNotFound {
		t.Errorf("dialling a session that has ended: %v", err)
	}
}

func TestDialSaysWhyNot(t *testing.T) {
	r, c, _ := withAgent(t)
	placements(t, func(t *testing.T, p ids.Placement) {
		spec := r.spec("/bin/sleep", "1000")
		spec.Placement = p
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer netdapi.CloseAll(files)
		want := netdapi.CodeUnreachable
		if p == ids.PlacementUID {
			want = netdapi.CodeUnavailable
		}
		if _, err := c.DialSession(t.Context(), spec.Identity.Session, 8080); code(err) != want {
			t.Errorf("dialling: %v", err)
		}
		if _, err := c.DialSession(t.Context(), spec.Identity.Session, 0); code(err) != netdapi.CodeBadRequest {
			t.Errorf("dialling port 0: %v", err)
		}
	})
}

func code(err error) netdapi.Code {
	if e, ok := errors.AsType[*netdapi.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestSignalsAndStop(t *testing.T) {
	r, c, _ := withAgent(t)
	placements(t, func(t *testing.T, p ids.Placement) {
		spec := r.spec("/bin/sh", "-c", `trap 'echo usr1; exit 3' USR1; echo ready; while :; do sleep 0.05; done`)
		spec.Placement = p
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(files[1], make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if err := c.Signal(t.Context(), spec.Identity.Session, syscall.SIGSTOP); code(err) != netdapi.CodeBadRequest {
			t.Errorf("SIGSTOP: %v", err)
		}
		if err := c.Signal(t.Context(), spec.Identity.Session, syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
		if got := output(t, files); !strings.HasPrefix(got, "usr1\n") {
			t.Errorf("output %q", got)
		}
		if e := r.exit(); e.Status != 3 {
			t.Errorf("exit %+v", e)
		}
		// A session that ignores every signal, with children, ends at once all
		// the same.
		spec = r.spec("/bin/sh", "-c", `trap '' INT TERM HUP; sleep 1000 & sleep 1000 & wait`)
		spec.Placement = p
		if files, err = c.Start(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
		netdapi.CloseAll(files)
		if err := c.Stop(t.Context(), spec.Identity.Session); err != nil {
			t.Error(err)
		}
		if e := r.exit(); e.Session != spec.Identity.Session || e.Status != 128+9 {
			t.Errorf("exit %+v", e)
		}
	})
}

func TestStatusAndCounters(t *testing.T) {
	r, c, _ := withAgent(t)
	for _, p := range []ids.Placement{ids.PlacementNetns, ids.PlacementUID} {
		spec := r.spec("/bin/bash", "-c", `echo x > /dev/udp/8.8.8.8/53; echo x > /dev/udp/127.0.0.53/53; echo sent; sleep 1000`)
		spec.Placement = p
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer netdapi.CloseAll(files)
		if _, err := io.ReadFull(files[1], make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		counter := netplan.CountUDP
		if p == ids.PlacementUID {
			counter = netplan.CountDenied4
		}
		got, err := c.Counters(t.Context(), spec.Identity.Session)
		if err != nil || got[counter].Packets == 0 {
			t.Errorf("%s: counters %v, %v", p, got, err)
		}
	}
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !st.Proxy || st.Firewall.State != "standing" || st.Version != "test" || len(st.Sessions) != 2 ||
		st.Sessions[0].Identity.Agent != "dev" || st.Sessions[1].Placement != ids.PlacementUID || st.Sessions[0].PID == 0 {
		t.Errorf("status %+v", st)
	}
	r.stop()
}

// TestAProgramThatIsNotThere: the fault says so, and where.
func TestAProgramThatIsNotThere(t *testing.T) {
	r, c, _ := withAgent(t)
	files, err := c.Start(t.Context(), r.spec("/opt/harness/claude"), nil)
	if err != nil {
		t.Fatal(err)
	}
	netdapi.CloseAll(files)
	if e := r.exit(); e.Status != 127 || !strings.Contains(e.Fault, "/opt/harness/claude") {
		t.Errorf("exit %+v", e)
	}
}

var errStep = errors.New("made to fail")

// A failer fails the step that a test names, and remembers what came by since
// it was told so.
type failer struct {
	mu    sync.Mutex
	bad   string
	steps []string
}

func (f *failer) check(step string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps = append(f.steps, step)
	if step == f.bad {
		return errStep
	}
	return nil
}

func (f *failer) fail(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad, f.steps = step, nil
}

func (f *failer) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps)
}

// TestStartTakesApartWhatItMade fails each step in turn, for both placements.
func TestStartTakesApartWhatItMade(t *testing.T) {
	requirePrivate(t)
	f := &failer{}
	r := startRig(t, netd.WithCheck(options(t), f.check))
	_, c, p := prepared(t, r)
	placements(t, func(t *testing.T, placement ids.Placement) {
		start := func() error {
			spec := r.spec("/bin/true")
			spec.Placement = placement
			files, err := c.Start(t.Context(), spec, nil)
			netdapi.CloseAll(files)
			return err
		}
		f.fail("")
		if err := start(); err != nil {
			t.Fatal(err)
		}
		r.exit()
		names := f.seen()
		before, same := "", 0
		eventually(t, "the first session to be gone", func() bool {
			now := r.traces()
			if now != before {
				before, same = now, 0
			}
			same++ // descriptors and files go a little later than the session
			return same > 50 && !strings.Contains(before, "slot-") && !strings.Contains(before, "/tmp/s-")
		})
		for _, step := range names {
			f.fail(step)
			err := start()
			if err == nil || !strings.Contains(err.Error(), step+": made to fail") {
				t.Errorf("step %s: %v", step, err)
			}
			eventually(t, "step "+step+" to leave nothing", func() bool { return r.traces() == before })
		}
		f.fail("")
		if st, err := c.Status(t.Context()); err != nil || len(st.Sessions) != 0 {
			t.Errorf("status %+v, %v", st, err)
		}
	})
	for len(p.events) > 0 {
		<-p.events
	}
}

// TestI2NoAgentStartsWithoutTheProxy, and one waits for a proxy that is just
// being started again.
func TestI2NoAgentStartsWithoutTheProxy(t *testing.T) {
	r, c, p := withAgent(t)
	p.stop()
	eventually(t, "netd to miss the proxy", func() bool {
		st, err := c.Status(t.Context())
		return err == nil && !st.Proxy
	})
	before := r.traces()
	_, err := c.Start(t.Context(), r.spec("/bin/true"), nil)
	if code(err) != netdapi.CodeUnavailable || !strings.Contains(err.Error(), "proxy") {
		t.Errorf("starting: %v", err)
	}
	eventually(t, "nothing to be left", func() bool { return r.traces() == before })
	done := make(chan error, 1)
	go func() {
		files, err := c.Start(t.Context(), r.spec("/bin/true"), nil)
		netdapi.CloseAll(files)
		done <- err
	}()
	r.proxy()
	if err := <-done; err != nil {
		t.Errorf("starting while the proxy comes back: %v", err)
	}
}

// TestPortsOutliveTheProxy: while the proxy is away, connections wait; the next
// one is given every listener and answers them.
func TestPortsOutliveTheProxy(t *testing.T) {
	r, c, p := withAgent(t)
	placements(t, func(t *testing.T, placement ids.Placement) {
		spec := r.spec("/bin/bash", "-c", `read go; exec 3<>/dev/tcp/$PROXY && echo connected && cat <&3`)
		spec.Placement = placement
		proxy := "198.18.0.1/3128"
		if placement == ids.PlacementUID {
			proxy = strings.Replace(netplan.UIDProxy(spec.Identity.Slot).String(), ":", "/", 1)
		}
		spec.Env = append(spec.Env, "PROXY="+proxy)
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.stop()
		fmt.Fprintln(files[0], "go")
		if _, err := io.ReadFull(files[1], make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		p = r.proxy()
		e := <-p.events
		if e.Added == nil || e.Added.Identity != spec.Identity {
			t.Errorf("the new proxy was given %+v", e.Added)
		}
		if e := <-p.events; !e.Replayed {
			t.Errorf("then %+v", e)
		}
		if got := output(t, files); !strings.Contains(got, spec.Identity.Session) {
			t.Errorf("output %q", got)
		}
		r.exit()
		<-p.events // removed
	})
}

// TestASecondProxyReplacesTheFirst: never two at once.
func TestASecondProxyReplacesTheFirst(t *testing.T) {
	r, _, first := withAgent(t)
	r.proxy()
	if _, err := first.feed.Next(t.Context()); err == nil {
		t.Error("the first proxy still gets events")
	}
}

// TestEndsAreKeptForTheNextAdmin: a session that ends while admin is away is
// told to the next one.
func TestEndsAreKeptForTheNextAdmin(t *testing.T) {
	r, c, _ := withAgent(t)
	spec := r.spec("/bin/sh", "-c", "read x; exit 5")
	files, err := c.Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	eventually(t, "netd to miss admin", func() bool { <-c.Done(); return true })
	netdapi.CloseAll(files)
	root, err := netdapi.Dial(t.Context(), r.sock, nil) // does not watch
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	eventually(t, "the session to end", func() bool {
		st, err := root.Status(t.Context())
		return err == nil && len(st.Sessions) == 0
	})
	r.admin()
	if e := r.exit(); e.Session != spec.Identity.Session || e.Status != 5 {
		t.Errorf("exit %+v", e)
	}
}

func TestSlotsAndNamesAreTakenOnce(t *testing.T) {
	r, c, _ := withAgent(t)
	spec := r.spec("/bin/sleep", "1000")
	files, err := c.Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer netdapi.CloseAll(files)
	again := r.spec("/bin/true")
	again.Identity.Slot = spec.Identity.Slot
	if _, err := c.Start(t.Context(), again, nil); code(err) != netdapi.CodeExists {
		t.Errorf("the same slot: %v", err)
	}
	again = r.spec("/bin/true")
	again.Identity.Session = spec.Identity.Session
	if _, err := c.Start(t.Context(), again, nil); code(err) != netdapi.CodeExists {
		t.Errorf("the same name: %v", err)
	}
	if err := c.RemoveAccount(t.Context(), "dev", devUID); code(err) != netdapi.CodeExists {
		t.Errorf("removing the account of a running session: %v", err)
	}
}

// TestWorkspaceIsTheOperators: a directory that came as a descriptor is the
// agent's to write, and its files stay the operator's.
func TestWorkspaceIsTheOperators(t *testing.T) {
	r, c, _ := withAgent(t)
	dir := t.TempDir()
	if err := os.Chown(dir, otherUID, otherUID); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spec := r.spec("/bin/sh", "-c", "pwd; echo made > file; stat -c %u file")
	spec.Work = &netdapi.Mount{FD: 0, Path: "/project", OwnerUID: otherUID}
	files, err := c.Start(t.Context(), spec, lent(t, &spec, f))
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, files); got != fmt.Sprintf("/project\n%d\n", devUID) {
		t.Errorf("output %q", got)
	}
	if uid, _ := ownersOf(t, filepath.Join(dir, "file")); uid != otherUID {
		t.Errorf("the file belongs to uid %d outside", uid)
	}
}

func ownersOf(t *testing.T, name string) (uid, gid uint32) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// TestWhatAnAgentMakesHasTheOwnersGroup: the kernel's word for the group of whoever
// lends the directory, but never the group of operators, and nobody's where it is
// another who lends.
func TestWhatAnAgentMakesHasTheOwnersGroup(t *testing.T) {
	r, c, _ := withAgent(t)
	const owner, group, nogroup = 4711, 4713, 65534
	for name, x := range map[string]struct{ uid, gid, want int }{
		"operators": {owner, operatorGID, nogroup},
		"root":      {0, 0, nogroup},
		"owner":     {owner, group, group},
	} {
		dir := t.TempDir()
		if err := os.Chown(dir, owner, group); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		spec := r.spec("/bin/sh", "-c", "echo made > file; stat -c %g file")
		spec.Work = &netdapi.Mount{FD: 0, Path: "/project", OwnerUID: owner}
		spec.Operator = new(int)
		*spec.Operator = 1
		proof := signedIn(t, x.uid, x.gid, operatorGID, loanOf(t, f, true))
		files, err := c.Start(t.Context(), spec, []*os.File{f, proof})
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := output(t, files); got != fmt.Sprintf("%d\n", devUID) {
			t.Errorf("%s: output %q", name, got)
		}
		r.exit()
		if uid, gid := ownersOf(t, filepath.Join(dir, "file")); uid != owner || gid != uint32(x.want) {
			t.Errorf("%s: the file is of %d:%d outside", name, uid, gid)
		}
	}
}

// TestATakenProxyAddressIsToldApart: admin tries another slot then.
func TestATakenProxyAddressIsToldApart(t *testing.T) {
	r, c, _ := withAgent(t)
	spec := r.spec("/bin/true")
	spec.Placement = ids.PlacementUID
	l, err := net.Listen("tcp", netplan.UIDProxy(spec.Identity.Slot).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	files, err := c.Start(t.Context(), spec, nil)
	netdapi.CloseAll(files)
	if code(err) != netdapi.CodeAddressTaken {
		t.Errorf("error %v", err)
	}
}
