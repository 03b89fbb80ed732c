// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bawn/internal/proc"
	"bawn/internal/roottest"

	"golang.org/x/sys/unix"
)

// expect runs the tries and compares their results. "refused" stands for any
// error but success.
func expect(t *testing.T, want map[string]string) {
	t.Helper()
	got := tryInside(t, slices.Sorted(maps.Keys(want))...)
	for name, w := range want {
		g, ok := got[name]
		if !ok || g != w && !(w == "refused" && g != succeeded) {
			t.Errorf("%s: %q, want %s", name, g, w)
		}
	}
}

func TestI1OnlyTheSocketsOfTheBoundary(t *testing.T) {
	expect(t, map[string]string{
		"unix socket":              succeeded,
		"tcp socket":               succeeded,
		"tcp6 socket":              succeeded,
		"udp socket":               succeeded,
		"route socket":             succeeded,
		"unix socket, high bits":   succeeded,
		"raw socket":               "EPERM",
		"raw6 socket":              "EPERM",
		"ping socket":              "EPROTONOSUPPORT",
		"packet socket":            "EAFNOSUPPORT",
		"packet dgram socket":      "EAFNOSUPPORT",
		"packet socket, high bits": "EAFNOSUPPORT",
		"vsock socket":             "EAFNOSUPPORT",
		"vsock pair":               "EAFNOSUPPORT",
		"alg socket":               "EAFNOSUPPORT",
		"bluetooth socket":         "EAFNOSUPPORT",
		"can socket":               "EAFNOSUPPORT",
		"tipc socket":              "EAFNOSUPPORT",
		"smc socket":               "EAFNOSUPPORT",
		"xdp socket":               "EAFNOSUPPORT",
		"qipcrtr socket":           "EAFNOSUPPORT",
		"sctp socket":              "EPERM",
		"sctp stream socket":       "EPROTONOSUPPORT",
		"mptcp socket":             "EPROTONOSUPPORT",
		"netfilter socket":         "EPROTONOSUPPORT",
		"diag socket":              "EPROTONOSUPPORT",
		"audit socket":             "EPROTONOSUPPORT",
		"generic socket":           "EPROTONOSUPPORT",
	})
}

// TestI1AnAgentJoinsNoGroups: the kernel would tell the network of it.
func TestI1AnAgentJoinsNoGroups(t *testing.T) {
	expect(t, map[string]string{
		"join group": "ENOPROTOOPT", "join source group": "ENOPROTOOPT",
		"join IPv6 group": "ENOPROTOOPT", "join by IPv6 socket": "ENOPROTOOPT",
	})
}

func TestAnAgentHasNoIOURingAndNoNewerCalls(t *testing.T) {
	want := map[string]string{}
	for _, name := range []string{"io_uring", "io_uring_enter", "io_uring_register", "clone3", "openat2", "listmount", "newer call", "unknown call", "x32 call"} {
		want[name] = "ENOSYS"
	}
	expect(t, want)
}

func TestAnAgentMakesNoNamespaces(t *testing.T) {
	want := map[string]string{"unshare files": succeeded}
	for _, name := range []string{
		"unshare user", "unshare net", "unshare mount", "unshare pid", "unshare uts", "unshare ipc", "unshare cgroup", "unshare time",
		"clone user", "clone net", "setns",
	} {
		want[name] = "EPERM"
	}
	expect(t, want)
}

func TestAnAgentMountsNothing(t *testing.T) {
	want := map[string]string{}
	for _, name := range []string{
		"mount", "umount", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsmount", "fspick", "mount_setattr",
		"open_tree_attr", "open_by_handle_at",
	} {
		want[name] = "EPERM"
	}
	expect(t, want)
}

func TestAnAgentReachesNoMachineryOfTheKernel(t *testing.T) {
	want := map[string]string{"ask personality": succeeded}
	for _, name := range []string{
		"bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
		"keyctl", "add_key", "request_key", "syslog", "line discipline", "reboot", "swapon", "fanotify", "personality", "set time",
	} {
		want[name] = "EPERM"
	}
	expect(t, want)
}

func TestAnAgentMakesNoSetIDFiles(t *testing.T) {
	want := map[string]string{"chmod plain": succeeded, "openat odd mode": succeeded}
	for _, name := range []string{
		"fchmod set-uid", "fchmodat set-gid", "fchmodat2 set-uid", "openat set-uid", "openat tmpfile set-uid", "mknodat set-uid", "device",
	} {
		want[name] = "EPERM"
	}
	expect(t, want)
	// The old forms, as programs make them.
	got := sh(t, `cd /tmp; touch a; chmod u+s a && echo done; chmod 2755 a && echo done; install -m 4755 /bin/true b; find . -perm /6000; chmod 750 a && echo plain`)
	if strings.Contains(got, "done") || strings.Contains(got, "./") || !strings.HasSuffix(got, "plain") {
		t.Error(got)
	}
}

func TestAnAgentGainsNothingFromProcess1(t *testing.T) {
	expect(t, map[string]string{
		"ptrace 1":     "EPERM",
		"memory of 1":  "refused",
		"fds of 1":     "EACCES",
		"env of 1":     "EACCES",
		"root of 1":    "EACCES",
		"binary of 1":  "refused",
		"own binary":   "refused",
		"read from 1":  "EPERM",
		"steal from 1": "EPERM",
		"kill 1":       succeeded, // and without any effect: the tries after it still report
		"uid 0":        "EPERM",
		"gid 0":        "EPERM",
		"groups":       "EPERM",
		"host name":    "EPERM",
		"core limit":   "EPERM",
		"oom immunity": "EACCES",
	})
}

func TestAnAgentHasItsOwnPlacesAndNoOthers(t *testing.T) {
	want := map[string]string{}
	for _, name := range []string{"home", "work", "tmp", "var tmp", "shm", "runtime"} {
		want[name] = succeeded
	}
	for _, name := range []string{
		"write /usr", "write /etc", "write /", "write /opt", "write /dev", "write /sys", "write sysctl", "write core", "write resolv",
		"read shadow", "list /root", "list /run/host", "read kcore", "read sysrq", "docker socket", "system bus",
	} {
		want[name] = "refused"
	}
	expect(t, want)
}

// The seed sentence: an agent cannot modify code, configuration, network
// policy, proxy certificates or the admin API. One test each, as far as the
// agent's own view goes.

func TestAnAgentCannotModifyCode(t *testing.T) {
	expect(t, map[string]string{"write /usr": "EROFS", "binary of 1": "refused", "own binary": "refused", "write /opt": "EROFS"})
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	got := sh(t, `for f in /usr/local/bin /usr/bin /bin /sbin /usr/lib /lib; do echo x > $f/x && echo wrote; done 2>/dev/null
		mount -o remount,rw /usr && echo remounted
		for f in /usr/bin/env /bin/sh; do echo x >> $f && echo wrote; rm -f $f && echo removed; done 2>/dev/null
		sh -c 'echo still works'`)
	if lines := strings.Split(got, "\n"); lines[len(lines)-1] != "still works" || strings.Contains(got, "wrote") ||
		strings.Contains(got, "removed") || strings.Contains(got, "remounted") {
		t.Error(got)
	}
	if after, err := os.ReadFile(os.Args[0]); err != nil || string(after) != string(binary) {
		t.Errorf("Bawn's binary has changed: %v", err)
	}
}

func TestAnAgentCannotModifyConfiguration(t *testing.T) {
	inPrivateMounts(t, func() {
		writeTree(t, map[string]string{"/etc/bawn/config.yaml": "secret: yes\n", "/etc/shadow": "root:x\n"})
		if err := os.Chmod("/etc/bawn/config.yaml", 0o666); err != nil { // even then
			t.Fatal(err)
		}
		expect(t, map[string]string{"read config": "ENOENT", "write /etc": "EROFS", "read shadow": "ENOENT"})
	})
}

func TestAnAgentCannotModifyNetworkPolicy(t *testing.T) {
	expect(t, map[string]string{
		"netfilter socket": "EPROTONOSUPPORT", "write sysctl": "refused", "unshare net": "EPERM", "setns": "EPERM", "bpf": "EPERM",
	})
	got := sh(t, `PATH=$PATH:/usr/sbin:/sbin
		ip link set lo up; ip link set lo mtu 1000; ip addr add 10.0.0.1/8 dev lo; ip route add default dev lo; ip link add d0 type dummy
		nft add table inet x; nft flush ruleset
		ip addr; ip link | grep -c mtu`)
	if strings.Contains(got, "10.0.0.1") || strings.Contains(got, "d0") || strings.Contains(got, "mtu 1000") || !strings.HasSuffix(got, "\n1") {
		t.Error(got)
	}
}

func TestAnAgentCannotModifyProxyCertificates(t *testing.T) {
	expect(t, map[string]string{
		"write bundle": "refused", "write ca": "refused", "make public": "refused", "write system": "refused",
		"remove bundle": "refused", "replace bundle": "refused", "list state": "refused",
	})
}

// TestAPublicFileThatIsALinkIsNotFollowed: admin owns the directory, and must not
// be able to show an agent what only the host has.
func TestAPublicFileThatIsALinkIsNotFollowed(t *testing.T) {
	roottest.Require(t)
	for _, name := range []string{proc.BundleFile, proc.JavaFile} {
		state := newState(t)
		secret := filepath.Join(t.TempDir(), "socket of a service")
		if err := os.WriteFile(secret, []byte("reached"), 0o644); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(state, "public", name))
		if err := os.Symlink(secret, filepath.Join(state, "public", name)); err != nil {
			t.Fatal(err)
		}
		c, err := proc.Start(t.Context(), spec(state, "true"), newNetns(t), nil)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnAgentCannotReachTheAdminAPI(t *testing.T) {
	inPrivateMounts(t, func() {
		for _, p := range []string{"/run/bawn/admin.sock", "/run/bawn/netd.sock", "/opt/bawn/run/bawn/admin.sock"} {
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Bind(fd, &unix.SockaddrUnix{Name: p}); err != nil {
				t.Fatal(err)
			}
			if err := unix.Listen(fd, 1); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(p, 0o777); err != nil { // even then
				t.Fatal(err)
			}
		}
		expect(t, map[string]string{"admin socket": "ENOENT", "netd socket": "ENOENT"})
		// A --root within something that agents see.
		s := spec(newState(t), "ls", "-a", "/opt/bawn/run/bawn")
		s.Hide = []string{"/opt/bawn/run/bawn", "/etc/bawn"}
		if r := run(t, s); strings.TrimSpace(r.out) != ".\n.." {
			t.Errorf("%q %q", r.out, r.err)
		}
	})
}

func TestStateWithinTheViewIsHidden(t *testing.T) {
	inPrivateMounts(t, func() {
		state := newState(t)
		if err := os.MkdirAll("/opt/bawn/var/lib", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(state, "/opt/bawn/var/lib/bawn"); err != nil { // the test's /opt is in memory: copy
			if err := os.CopyFS("/opt/bawn/var/lib/bawn", os.DirFS(state)); err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{"home", "work"} {
				if err := os.Chown("/opt/bawn/var/lib/bawn/agents/dev/"+d, agentUID, agentGID); err != nil {
					t.Fatal(err)
				}
			}
		}
		r := run(t, spec("/opt/bawn/var/lib/bawn", "ls", "-a", "/opt/bawn/var/lib/bawn"))
		if strings.TrimSpace(r.out) != ".\n.." {
			t.Errorf("%q %q %q", r.out, r.err, r.Fault)
		}
	})
}

func TestAnAgentSeesOnlyItsOwnProcesses(t *testing.T) {
	got := sh(t, `ls /proc | grep -E '^[0-9]+$' | wc -l; kill -0 `+strconv.Itoa(os.Getpid())+` && echo reached`)
	n, err := strconv.Atoi(strings.Fields(got)[0])
	if err != nil || n > 6 || strings.Contains(got, "reached") {
		t.Errorf("%s", got)
	}
}

func TestAnAgentKeepsNoDescriptors(t *testing.T) {
	roottest.Require(t)
	secret, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	// What a careless part of netd might leave open across an exec.
	for range 5 {
		fd, err := unix.Dup(int(secret.Fd())) // without close-on-exec
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	// The descriptor of ls itself is the last one.
	if got := sh(t, `ls /proc/self/fd | tr '\n' ' '; ls -l /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 | grep -vc pipe:`); got != "0 1 2 3 0" {
		t.Errorf("descriptors: %s", got)
	}
}

func TestAnAgentGetsNoEnvironmentButItsOwn(t *testing.T) {
	roottest.Require(t)
	t.Setenv("BAWN_TEST_SECRET", "hunter2")
	got := sh(t, `env | sort; cat /proc/1/environ 2>/dev/null`)
	if got != "HOME=/home/dev\nPATH=/usr/local/bin:/usr/bin:/bin\nPWD=/work" {
		t.Error(got)
	}
}

func TestAnAgentIsItsAccountAndNothingMore(t *testing.T) {
	got := sh(t, `id -u; id -g; id -G; whoami; hostname; umask; ulimit -c; cat ~/../../etc/hostname
		grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\t' | tr '\n' ' '; cat /proc/self/oom_score_adj`)
	const id = "1900000042"
	want := strings.Join([]string{
		id, id, id, "bawn-dev", "bawn-dev", "0022", "0", "bawn-dev",
		"CapInh:0000000000000000 CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 CapAmb:0000000000000000 NoNewPrivs:1 Seccomp:2 200",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEveryMountRefusesSetIDBitsAndDevices(t *testing.T) {
	got := sh(t, `cat /proc/self/mountinfo`)
	for line := range strings.Lines(got) {
		f := strings.Fields(line)
		place, options := f[4], strings.Split(f[5], ",")
		has := func(o string) bool { return slices.Contains(options, o) }
		if !has("nosuid") {
			t.Errorf("%s may lend set-id bits: %s", place, f[5])
		}
		if !has("nodev") && !strings.HasPrefix(place, "/dev") && !strings.HasPrefix(place, "/proc/") {
			t.Errorf("%s may hold devices: %s", place, f[5])
		}
		writable := []string{"/run", "/dev/pts", "/dev/shm", "/proc", "/home/dev", "/tmp", "/var/tmp", "/work"}
		if has("rw") && !slices.Contains(writable, place) {
			t.Errorf("%s is writable", place)
		}
	}
}

func TestNamesAndCertificatesAreTheAgentsOwn(t *testing.T) {
	roottest.Require(t)
	s := spec(newState(t), "sh", "-c",
		"cat /etc/resolv.conf; getent hosts localhost | head -1; getent passwd $(id -u); cat /etc/ssl/certs/ca-certificates.crt /run/bawn/public/ca.crt")
	s.Nameservers = []string{"198.18.0.1"}
	r := run(t, s)
	want := "nameserver 198.18.0.1\noptions timeout:2 attempts:1\n::1             localhost ip6-localhost ip6-loopback\n" +
		"bawn-dev:x:1900000042:1900000042:Bawn agent dev:/home/dev:/bin/sh\n" +
		"the roots of " + proc.BundleFile + "\nthe roots of " + proc.CAFile + "\n"
	if r.out != want {
		t.Errorf("got\n%s\nwant\n%s%s", r.out, want, r.err)
	}
}

// In the uid placement the host's abstract sockets share the agent's network
// namespace; Landlock keeps them apart.
func TestAbstractSocketsOfTheHostAreOutOfReach(t *testing.T) {
	roottest.Require(t)
	name := "bawn-test-" + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for placement, netns := range map[string]*os.File{"netns": newNetns(t), "uid": nil} {
		s := insideSpec(t, "abstract of host", "own abstract")
		s.Env = append(s.Env, "ABSTRACT="+name)
		got := triesOf(t, runIn(t, s, netns))
		if got["own abstract"] != succeeded {
			t.Errorf("%s: its own: %s", placement, got["own abstract"])
		}
		want := map[string]string{"netns": "ECONNREFUSED", "uid": "EPERM"}[placement]
		if got["abstract of host"] == want {
			continue
		}
		if placement == "uid" && got["abstract of host"] == succeeded && !landlockScopes() {
			roottest.Skip(t, "needs Landlock with scopes (Linux 6.12): this kernel leaves the host's abstract sockets open to the uid placement")
		}
		t.Errorf("%s: the host's: %s, want %s", placement, got["abstract of host"], want)
	}
}

// landlockScopes reports whether the kernel can do it at all.
func landlockScopes() bool {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && abi >= 6
}

// Attack 144: something of the host's that would act for the agent under
// another account.
func TestNoHelperOfTheHostActsForTheAgent(t *testing.T) {
	got := sh(t, `PATH=$PATH:/usr/sbin:/sbin
		ls -A /var/spool /run/systemd /var/run/dbus /run/user/0 2>/dev/null
		su -c 'echo became root' root </dev/null 2>/dev/null; mount -t tmpfs x /tmp 2>/dev/null && echo mounted
		systemctl --user start x 2>/dev/null && echo started
		echo end`)
	for _, bad := range []string{"became root", "mounted", "started", "cron", "bus"} {
		if strings.Contains(got, bad) {
			t.Error(got)
		}
	}
	if !strings.HasSuffix(got, "end") {
		t.Error(got)
	}
}

// Boundary 195: what stands where a directory of the agent's must be is refused
// at once, whatever it is.
func TestAnOddThingInPlaceOfTheHomeIsRefused(t *testing.T) {
	roottest.Require(t)
	for name, make := range map[string]func(p string) error{
		"link":         func(p string) error { return os.Symlink("/etc", p) },
		"link to link": func(p string) error { return os.Symlink("home", p) },
		"fifo":         func(p string) error { return unix.Mkfifo(p, 0o600) },
		"device":       func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o666, deviceNumber) },
		"file":         func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"root's":       func(p string) error { return os.Mkdir(p, 0o755) },
		"nothing":      func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(newState(t), "true")
			home := filepath.Join(s.State, "agents/dev/home")
			if err := errors.Join(os.Remove(home), make(home)); err != nil {
				t.Fatal(err)
			}
			c, err := proc.Start(t.Context(), s, nil, nil)
			if err == nil {
				c.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), "agents/dev/home") {
				t.Error(err)
			}
		})
	}
}
