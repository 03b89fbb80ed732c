// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/ids"
	"bawn/internal/lending"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
)

// raw connects as uid and gives the bare connection.
func (r *rig) raw(uid int) *netdapi.Conn {
	r.t.Helper()
	var conn *netdapi.Conn
	as(r.t, uid, func() error {
		c, err := net.Dial("unixpacket", r.sock)
		if err == nil {
			conn = netdapi.NewConn(c.(*net.UnixConn))
		}
		return err
	})
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends one request and reads one message.
func ask(c *netdapi.Conn, verb netdapi.Verb, args string) (netdapi.Message, error) {
	request := netdapi.Request{ID: 1, Verb: verb}
	if args != "" {
		request.Args = json.RawMessage(args)
	}
	var m netdapi.Message
	err := c.Send(request)
	if err == nil {
		_, err = c.Receive(&m)
	}
	return m, err
}

// TestI9WhoMayAskWhat: each verb answers one account, by the kernel's word on
// who connected; strangers are cut off before anything is read.
func TestI9WhoMayAskWhat(t *testing.T) {
	r := newRig(t)
	adminVerbs := []netdapi.Verb{
		netdapi.VerbStatus, netdapi.VerbWatch, netdapi.VerbAccountCreate, netdapi.VerbAccountRemove,
		netdapi.VerbStart, netdapi.VerbSignal, netdapi.VerbStop, netdapi.VerbDial, netdapi.VerbCounters,
	}
	proxyVerbs := []netdapi.Verb{netdapi.VerbListeners, netdapi.VerbListenerAck}
	check := func(uid int, verbs []netdapi.Verb, may bool) {
		for _, v := range verbs {
			m, err := ask(r.raw(uid), v, `{"nonsense":true}`)
			if err != nil {
				t.Errorf("uid %d, verb %s: %v", uid, v, err)
				continue
			}
			denied := m.Error != nil && m.Error.Code == netdapi.CodeNotPermitted
			if denied == may {
				t.Errorf("uid %d, verb %s: %+v", uid, v, m.Error)
			}
		}
	}
	check(adminUID, adminVerbs, true)
	check(adminUID, proxyVerbs, false)
	check(proxyUID, adminVerbs, false)
	check(proxyUID, proxyVerbs, true)
	check(0, adminVerbs, true)
	for _, uid := range []int{otherUID, devUID, 65534} {
		if m, err := ask(r.raw(uid), netdapi.VerbStatus, ""); err == nil {
			t.Errorf("uid %d is answered: %+v", uid, m)
		}
	}
}

func TestWhatCannotBeUnderstoodEndsTheConnection(t *testing.T) {
	r := newRig(t)
	for name, packet := range map[string]string{
		"not JSON":     "hello",
		"unknown key":  `{"id":1,"verb":"status","sudo":true}`,
		"other case":   `{"id":1,"Verb":"status"}`,
		"twice":        `{"id":1,"verb":"status","verb":"start"}`,
		"two values":   `{"id":1,"verb":"status"}{}`,
		"wrong type":   `{"id":"1","verb":"status"}`,
		"empty packet": " ",
	} {
		t.Run(name, func(t *testing.T) {
			c := r.raw(adminUID)
			if _, err := c.Unwrap().Write([]byte(packet)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Receive(&netdapi.Message{}); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
				t.Errorf("the connection goes on: %v", err)
			}
		})
	}
	m, err := ask(r.raw(adminUID), "reboot", "")
	if err != nil || m.Error == nil || m.Error.Code != netdapi.CodeBadRequest {
		t.Errorf("an unknown verb: %+v, %v", m, err)
	}
	m, err = ask(r.raw(adminUID), netdapi.VerbStatus, `{}`)
	if err != nil || m.Error == nil || m.Error.Code != netdapi.CodeBadRequest {
		t.Errorf("arguments that are not taken: %+v, %v", m, err)
	}
	c := r.raw(adminUID)
	if err := c.Send(netdapi.Request{ID: 1, Verb: netdapi.VerbStatus}, os.Stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(&m); err != nil || m.Error == nil || m.Error.Code != netdapi.CodeBadRequest {
		t.Errorf("descriptors that are not taken: %+v, %v", m, err)
	}
}

// TestSilentConnectionsDoNotBlock: many that say nothing, and the next is
// served all the same once one of them is gone; the others are bounded.
func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t)
	var silent []*netdapi.Conn
	for range 100 {
		silent = append(silent, r.raw(adminUID))
	}
	for _, c := range silent {
		c.Close()
	}
	eventually(t, "an answer", func() bool {
		_, err := ask(r.raw(adminUID), netdapi.VerbStatus, "")
		return err == nil
	})
}

// TestAgentsAreNeverSomebodyElse: whoever asks, a program runs only under an
// agent's own account.
func TestAgentsAreNeverSomebodyElse(t *testing.T) {
	r, c, _ := withAgent(t)
	if err := c.CreateAccount(t.Context(), "other", devUID+1); err != nil {
		t.Fatal(err)
	}
	defer c.RemoveAccount(t.Context(), "other", devUID+1)
	for name, change := range map[string]func(*netdapi.StartSpec){
		"root":                   func(s *netdapi.StartSpec) { s.UID = 0 },
		"admin":                  func(s *netdapi.StartSpec) { s.UID = adminUID },
		"below the range":        func(s *netdapi.StartSpec) { s.UID = netplan.FirstUID - 1 },
		"above the range":        func(s *netdapi.StartSpec) { s.UID = netplan.LastUID + 1 },
		"no uid":                 func(s *netdapi.StartSpec) { s.UID = 1<<32 - 1 },
		"no account":             func(s *netdapi.StartSpec) { s.UID = devUID + 100 },
		"another agent's":        func(s *netdapi.StartSpec) { s.UID = devUID + 1 },
		"another agent's name":   func(s *netdapi.StartSpec) { s.Identity.Agent = "other" },
		"an unknown agent":       func(s *netdapi.StartSpec) { s.Identity.Agent = "ghost" },
		"a path":                 func(s *netdapi.StartSpec) { s.Identity.Agent = "../etc" },
		"no agent":               func(s *netdapi.StartSpec) { s.Identity.Agent = "" },
		"a session with a slash": func(s *netdapi.StartSpec) { s.Identity.Session = "s-1/../../x" },
		"no session":             func(s *netdapi.StartSpec) { s.Identity.Session = "" },
		"slot below zero":        func(s *netdapi.StartSpec) { s.Identity.Slot = -1 },
		"slot too large":         func(s *netdapi.StartSpec) { s.Identity.Slot = 1 << 16 },
		"no generation":          func(s *netdapi.StartSpec) { s.Identity.Gen = ids.Generation{} },
		"no placement":           func(s *netdapi.StartSpec) { s.Placement = "" },
		"unknown placement":      func(s *netdapi.StartSpec) { s.Placement = "host" },
		"no command":             func(s *netdapi.StartSpec) { s.Argv = nil },
		"two commands":           func(s *netdapi.StartSpec) { s.Exec = []string{"doctor"} },
		"NUL in an argument":     func(s *netdapi.StartSpec) { s.Argv = []string{"/bin/true", "a\x00b"} },
		"limits below zero":      func(s *netdapi.StartSpec) { s.Limits.PIDs = -1 },
		"a missing descriptor":   func(s *netdapi.StartSpec) { s.Work = &netdapi.Mount{FD: 0, Path: "/w"} },
	} {
		t.Run(name, func(t *testing.T) {
			spec := r.spec("/bin/true")
			change(&spec)
			if files, err := c.Start(t.Context(), spec, nil); err == nil {
				netdapi.CloseAll(files)
				t.Errorf("started %+v", spec)
			}
		})
	}
	if st, err := c.Status(t.Context()); err != nil || len(st.Sessions) != 0 {
		t.Errorf("status %+v, %v", st, err)
	}
}

// TestSystemDirectoriesAreNotLent: a descriptor proves that admin could open a
// directory, and not that an operator owns it.
func TestSystemDirectoriesAreNotLent(t *testing.T) {
	r, c, _ := withAgent(t)
	inner := filepath.Join(r.o.State, "admin")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/", "/etc", "/etc/ssl", "/usr/share", "/proc/self", "/sys", "/var", "/var/lib", r.o.State, inner, filepath.Dir(r.o.State), file, link} {
		for kind, set := range map[string]func(*netdapi.StartSpec, *netdapi.Mount){
			"work": func(s *netdapi.StartSpec, m *netdapi.Mount) { s.Work = m },
			"repo": func(s *netdapi.StartSpec, m *netdapi.Mount) { s.Repo = m },
			"lend": func(s *netdapi.StartSpec, m *netdapi.Mount) { s.Lends = []netdapi.Mount{*m} },
		} {
			f, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			spec := r.spec("/bin/true")
			set(&spec, &netdapi.Mount{FD: 0, Path: "/project"})
			files, err := c.Start(t.Context(), spec, lent(t, &spec, f))
			f.Close()
			if code(err) != netdapi.CodeNotPermitted {
				netdapi.CloseAll(files)
				t.Errorf("%s as %s: %v", dir, kind, err)
			}
		}
	}
	own, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	spec := r.spec("/bin/true")
	spec.Lends = []netdapi.Mount{{FD: 0, Path: "/a"}, {FD: 0, Path: "/b"}}
	if _, err := c.Start(t.Context(), spec, lent(t, &spec, own, own)); code(err) != netdapi.CodeBadRequest {
		t.Errorf("one descriptor for two directories: %v", err)
	}
	spec = r.spec("/bin/true")
	spec.Work = &netdapi.Mount{FD: 0, Path: "/project", OwnerUID: devUID + 1}
	if _, err := c.Start(t.Context(), spec, lent(t, &spec, own)); code(err) != netdapi.CodeNotPermitted {
		t.Errorf("another agent's directory: %v", err)
	}
}

// TestI9OperatorsLendWhatIsTheirs: whose files an agent gets, and which, is what
// the kernel says of a socket and keeps in it, not what admin says.
func TestI9OperatorsLendWhatIsTheirs(t *testing.T) {
	r, c, _ := withAgent(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	other, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const operator, stranger = 4711, 4712
	whole, look, elsewhere := loanOf(t, dir, true), loanOf(t, dir, false), loanOf(t, other, true)
	try := func(owner uint32, proof *os.File) error {
		spec := r.spec("/bin/true")
		spec.Work = &netdapi.Mount{FD: 0, Path: "/project", OwnerUID: owner}
		files := []*os.File{dir}
		if proof != nil {
			n := 1
			spec.Operator, files = &n, append(files, proof)
		}
		got, err := c.Start(t.Context(), spec, files)
		netdapi.CloseAll(got)
		if err == nil {
			r.exit()
		}
		return err
	}
	if err := try(operator, nil); code(err) != netdapi.CodeBadRequest {
		t.Errorf("without a proof: %v", err)
	}
	if err := try(operator, dir); code(err) != netdapi.CodeBadRequest {
		t.Errorf("a directory for a proof: %v", err)
	}
	if err := try(operator, signedBy(t, operator, stranger, whole)); code(err) != netdapi.CodeNotPermitted {
		t.Errorf("somebody outside the group: %v", err)
	}
	if err := try(stranger, signedBy(t, operator, operatorGID, whole)); code(err) != netdapi.CodeNotPermitted {
		t.Errorf("another's files: %v", err)
	}
	for name, loans := range map[string][]lending.Loan{"nothing": nil, "another directory": {elsewhere}, "it to be read": {elsewhere, look}} {
		if err := try(operator, signedBy(t, operator, operatorGID, loans...)); code(err) != netdapi.CodeNotPermitted {
			t.Errorf("an operator who lent %s: %v", name, err)
		}
		if err := try(0, signedBy(t, 0, 0, loans...)); code(err) != netdapi.CodeNotPermitted {
			t.Errorf("root who lent %s: %v", name, err)
		}
	}
	if err := try(operator, signedBy(t, operator, operatorGID, elsewhere, whole)); err != nil {
		t.Errorf("an operator's own: %v", err)
	}
}
