// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"bawn/internal/netplan"
	"bawn/internal/roottest"
)

// command runs a program with a small environment and wants it to succeed.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "SOURCE_DATE_EPOCH=1700000000", "CGO_ENABLED=0", "BAWN_DEB_ZIP=-Zgzip -z1")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", argv, err, out.String(), stderr.String())
	}
	return out.String()
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			roottest.Skip(t, "needs "+p)
		}
	}
}

// program builds the program as it is released, once for all tests.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bawn-install-")
	if err != nil {
		return "", err
	}
	built = dir
	to := filepath.Join(dir, "bawn")
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=0.2.0", "-o", to, "bawn/cmd/bawn")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out), err
	}
	return to, nil
})

var built string // removed by TestMain

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		if err := os.RemoveAll(built); err != nil {
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func bawn(t *testing.T) string {
	t.Helper()
	needs(t, "go")
	path, err := program()
	if err != nil {
		t.Fatalf("building bawn: %v: %s", err, path)
	}
	return path
}

func deb(t *testing.T, version string) string {
	t.Helper()
	needs(t, "dpkg-deb")
	return strings.TrimSpace(command(t, "../../packaging/build-deb", bawn(t), version, t.TempDir()))
}

func TestThePackageIsCleanAndReproducible(t *testing.T) {
	needs(t, "lintian")
	first, second := deb(t, "v0.2.0"), deb(t, "v0.2.0")
	a, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(second)
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("two builds differ: %v", err)
	}
	if out := command(t, "lintian", "--fail-on", "error,warning", first); out != "" {
		t.Errorf("lintian: %s", out)
	}
}

// TestManualPages are read by what reads them on a host.
func TestManualPages(t *testing.T) {
	needs(t, "man", "lexgrog")
	dir := t.TempDir()
	command(t, bawn(t), "manual", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("pages %v, %v", pages, err)
	}
	for _, p := range pages {
		cmd := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", p)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANWIDTH=80")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			t.Errorf("man %s: %v: %s", filepath.Base(p), err, stderr.String())
		}
	}
	out := command(t, append([]string{"lexgrog"}, pages...)...)
	if n := strings.Count(out, ": \"bawn"); n != len(pages) {
		t.Errorf("lexgrog understood %d of %d pages:\n%s", n, len(pages), out)
	}
}

func TestCompletionsAreWhatTheShellsTake(t *testing.T) {
	for shell, check := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		needs(t, shell)
		file := filepath.Join(t.TempDir(), shell)
		if err := os.WriteFile(file, []byte(command(t, bawn(t), "completion", shell)), 0o644); err != nil {
			t.Fatal(err)
		}
		command(t, shell, check, file)
	}
}

// TestThePackageKnowsAgentsUIDs: its last script cannot ask the program.
func TestThePackageKnowsAgentsUIDs(t *testing.T) {
	text, err := os.ReadFile("../../packaging/postrm")
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{netplan.FirstUID, netplan.LastUID} {
		if !strings.Contains(string(text), " "+strconv.Itoa(uid)+" ]") {
			t.Errorf("postrm does not know uid %d", uid)
		}
	}
}

// inRoot runs a shell script in a copy of the machine's root file system that
// takes changes in the directory upper, in namespaces of its own.
const inRoot = `set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount -t tmpfs tmpfs "$1/root/tmp"
mount -t tmpfs tmpfs "$1/root/dev"
for n in null zero urandom; do : >"$1/root/dev/$n"; mount --bind "/dev/$n" "$1/root/dev/$n"; done
rm -rf "$1/root/run/bawn" "$1/root/var/lib/bawn" "$1/root/etc/bawn"
cp "$2" "$1/root/tmp/old.deb"
cp "$3" "$1/root/tmp/new.deb"
chroot "$1/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive sh -c "$4"
cp -a "$1/upper" "$5"`

const packageLife = `set -eu
dpkg --no-triggers --force-confold -i /tmp/old.deb
bawn --version
bawn --help >/dev/null
getent passwd bawn-admin bawn-proxy >/dev/null
getent group bawn
stat -c '%n %a %U %G' /var/lib/bawn/admin /var/lib/bawn/proxy/journal
echo 'placement: uid' >>/etc/bawn/config.yaml
groupadd -g 1900000001 bawn-dev
useradd -M -N --no-log-init -u 1900000001 -g 1900000001 -c 'Bawn agent dev' -d /home/dev bawn-dev
mkdir /var/lib/bawn/agents/dev
useradd -M --no-log-init -c 'Bawn agent mine' bawn-mine
dpkg --no-triggers --force-confold -i /tmp/new.deb
dpkg-query -W -f '${Version}\n' bawn
tail -n 1 /etc/bawn/config.yaml
dpkg --no-triggers -r bawn
test -d /var/lib/bawn/admin && test -f /etc/bawn/config.yaml && ! test -e /usr/bin/bawn
dpkg --no-triggers --purge bawn
! getent passwd bawn-dev bawn-admin bawn-proxy
getent passwd bawn-mine
userdel bawn-mine
`

// TestI13ThePackagesLife: installed, upgraded with the operator's changes kept,
// removed with the data kept, purged; and of all that nothing is left but what
// the package manager itself remembers.
func TestI13ThePackagesLife(t *testing.T) {
	roottest.Require(t)
	needs(t, "unshare", "dpkg")
	if _, err := user.Lookup("bawn-admin"); err == nil {
		roottest.Skip(t, "needs a machine without Bawn")
	}
	old, latest := deb(t, "v0.1.0"), deb(t, "v0.2.0")
	dir, upper := t.TempDir(), filepath.Join(t.TempDir(), "upper")
	out := command(t, "unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", inRoot, "sh", dir, old, latest, packageLife, upper)
	for _, want := range []string{"bawn version 0.2.0", "bawn:x:", "/var/lib/bawn/admin 700 bawn-admin bawn-admin", "/var/lib/bawn/proxy/journal 2750 bawn-proxy bawn-admin", "\n0.2.0\n", "\nplacement: uid\n", "bawn-mine:x:"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	err := filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := strings.TrimPrefix(path, upper); name != "" && !remembered(name) {
			changed(t, name, path, d)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// remembered are files in which the package manager and the account tools keep
// what they did.
func remembered(name string) bool {
	for _, p := range []string{"/var/lib/dpkg", "/var/log", "/var/cache", "/var/lib/systemd/deb-systemd-helper", "/etc/.pwd.lock", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid", "/etc/subgid", "/tmp", "/dev", "/proc"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// changed complains of a file that is not what it was.
func changed(t *testing.T, name, path string, d fs.DirEntry) {
	t.Helper()
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		t.Errorf("left: %s", name)
	case d.Type()&fs.ModeCharDevice != 0 && filepath.Base(name) != "bawn": // taken away before, see inRoot
		t.Errorf("gone: %s", name)
	case d.Type()&fs.ModeCharDevice != 0:
	case info.Mode().Type() != d.Type():
		t.Errorf("another kind: %s", name)
	case d.Type().IsRegular():
		before, err1 := os.ReadFile(name)
		after, err2 := os.ReadFile(path)
		if err1 != nil || err2 != nil || !bytes.Equal(before, after) {
			t.Errorf("changed: %s (%v, %v)", name, err1, err2)
		}
	}
}
