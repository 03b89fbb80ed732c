// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"bawn/internal/roottest"

	"golang.org/x/sys/unix"
)

// inPrivateMounts runs f where /etc, /run, /opt, /home and /var/lib may be changed and
// nothing of it stays: in this test binary once more, in a mount namespace of
// its own.
func inPrivateMounts(t *testing.T, f func()) {
	t.Helper()
	roottest.Require(t)
	const mark = "BAWN_TEST_PRIVATE"
	if os.Getenv(mark) == t.Name() {
		privateMounts(t)
		f()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func privateMounts(t *testing.T) {
	t.Helper()
	mount := func(source, target, kind, data string) {
		if err := unix.Mount(source, target, kind, 0, data); err != nil {
			t.Fatalf("mounting %s: %v", target, err)
		}
	}
	mount("tmpfs", "/run", "tmpfs", "mode=0755")
	for _, dir := range []string{"/run/.upper", "/run/.work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount("overlay", "/etc", "overlay", "lowerdir=/etc,upperdir=/run/.upper,workdir=/run/.work")
	for _, dir := range []string{"/opt", "/home", "/var/lib"} {
		mount("tmpfs", dir, "tmpfs", "mode=0755")
	}
}

// writeTree writes files with their directories.
func writeTree(t *testing.T, files map[string]string) {
	t.Helper()
	for p, text := range files {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
