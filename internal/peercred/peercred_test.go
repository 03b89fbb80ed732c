// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package peercred_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"bawn/internal/peercred"
	"bawn/internal/roottest"
)

// TestMain is also the peer: it connects and waits.
func TestMain(m *testing.M) {
	if sock := os.Getenv("PEERCRED_CONNECT"); sock != "" {
		c, err := net.Dial("unix", sock)
		if err != nil {
			os.Exit(1)
		}
		io.ReadAll(c)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestI9IdentityComesFromTheKernel(t *testing.T) {
	roottest.Require(t)
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	os.Chmod(filepath.Dir(dir), 0o755)
	sock := filepath.Join(dir, "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Chmod(sock, 0o666)
	self := filepath.Join(dir, "peer")
	copyFile(t, os.Args[0], self)
	cmd := exec.Command(self)
	cmd.Env = []string{"PEERCRED_CONNECT=" + sock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4712, Groups: []uint32{4713, 4714}}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := peercred.Of(c.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	if p.UID != 4711 || p.GID != 4712 || int(p.PID) != cmd.Process.Pid {
		t.Errorf("peer %+v, want 4711:4712 process %d", p, cmd.Process.Pid)
	}
	for gid, want := range map[uint32]bool{4712: true, 4713: true, 4714: true, 4715: false, 0: false} {
		if p.InGroup(gid) != want {
			t.Errorf("InGroup(%d) is %v", gid, !want)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
