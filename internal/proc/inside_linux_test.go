// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"bawn/internal/proc"
	"bawn/internal/roottest"

	"golang.org/x/sys/unix"
)

// insideVerb makes the test binary the agent's program: it tries what is named
// and prints how each try ended. Only real system calls count here.
const insideVerb = "inside"

// A try is one line of its output.
type try struct{ Name, Result string }

// succeeded is the result of a try that the kernel let through.
const succeeded = "succeeded"

func inside(names []string) int {
	for _, name := range names {
		err := errors.New("no such try")
		if f, ok := tries[name]; ok {
			err = f()
		}
		r := try{name, succeeded}
		if err != nil {
			r.Result = err.Error()
			if errno, ok := errors.AsType[syscall.Errno](err); ok {
				r.Result = unix.ErrnoName(errno)
			}
		}
		json.NewEncoder(os.Stdout).Encode(r)
	}
	return 0
}

// tryInside runs the tries as an agent.
func tryInside(t *testing.T, names ...string) map[string]string {
	t.Helper()
	roottest.Require(t)
	return triesOf(t, run(t, insideSpec(t, names...)))
}

func insideSpec(t *testing.T, names ...string) proc.Spec {
	t.Helper()
	s := spec(newState(t))
	s.Exec = append([]string{insideVerb}, names...)
	return s
}

// triesOf reads what the agent's program printed.
func triesOf(t *testing.T, r result) map[string]string {
	t.Helper()
	if r.Fault != "" || r.Status != 0 {
		t.Fatalf("status %d, fault %q, said %s", r.Status, r.Fault, r.err)
	}
	got := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(r.out))
	for lines.Scan() {
		var one try
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		got[one.Name] = one.Result
	}
	return got
}

func socket(family, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// call makes a system call with arguments that the kernel would find wrong:
// what counts is whether it gets that far.
func call(nr uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if errno != 0 {
			return errno
		}
		return nil
	}
}

func openFor(flags int) func(p string) func() error {
	return func(p string) func() error {
		return func() error {
			f, err := os.OpenFile(p, flags, 0o644)
			if err == nil {
				f.Close()
			}
			return err
		}
	}
}

var (
	writing = openFor(os.O_WRONLY)
	making  = openFor(os.O_WRONLY | os.O_CREATE)
	reading = openFor(os.O_RDONLY)
)

func listing(p string) func() error {
	return func() error {
		names, err := os.ReadDir(p)
		if err == nil && len(names) == 0 {
			return errors.New("empty")
		}
		return err
	}
}

func dialling(p string) func() error {
	return func() error {
		c, err := net.Dial("unix", p)
		if err == nil {
			c.Close()
		}
		return err
	}
}

// withMode tries to make a file with set-id bits in one of the ways there are.
func withMode(f func(p string) error) func() error {
	return func() error {
		p := filepath.Join("/tmp", fmt.Sprintf("set-id-%d", os.Getpid()))
		os.Remove(p)
		err := f(p)
		var st unix.Stat_t
		if err == nil && unix.Stat(p, &st) == nil && st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
			return errors.New("made without the bits")
		}
		return err
	}
}

func changed(p string, how func() error) error {
	if err := os.WriteFile(p, nil, 0o755); err != nil {
		return err
	}
	return how()
}

// deviceNumber is that of /dev/null.
var deviceNumber = int(unix.Mkdev(1, 3))

// join sets an option that takes a group.
func join(family, level, option int, group string) func() error {
	return func() error {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.SetsockoptString(fd, level, option, group)
	}
}

var tries = map[string]func() error{
	"unix socket":         socket(unix.AF_UNIX, unix.SOCK_STREAM, 0),
	"tcp socket":          socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP),
	"tcp6 socket":         socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0),
	"udp socket":          socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP),
	"route socket":        socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE),
	"raw socket":          socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"raw6 socket":         socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW),
	"ping socket":         socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
	"packet socket":       socket(unix.AF_PACKET, unix.SOCK_RAW, 0x300),
	"packet dgram socket": socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0x300),
	"vsock socket":        socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	"alg socket":          socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
	"bluetooth socket":    socket(unix.AF_BLUETOOTH, unix.SOCK_RAW, 0),
	"can socket":          socket(unix.AF_CAN, unix.SOCK_RAW, 1),
	"tipc socket":         socket(unix.AF_TIPC, unix.SOCK_RDM, 0),
	"smc socket":          socket(unix.AF_SMC, unix.SOCK_STREAM, 0),
	"xdp socket":          socket(unix.AF_XDP, unix.SOCK_RAW, 0),
	"qipcrtr socket":      socket(unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0),
	"sctp socket":         socket(unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP),
	"sctp stream socket":  socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
	"mptcp socket":        socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
	"netfilter socket":    socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
	"diag socket":         socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG),
	"audit socket":        socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
	"generic socket":      socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC),
	"vsock pair":          call(unix.SYS_SOCKETPAIR, unix.AF_VSOCK, unix.SOCK_STREAM, 0, 0),
	// The kernel reads 32 bits of these; what lies above must not help.
	"packet socket, high bits": call(unix.SYS_SOCKET, 1<<32|unix.AF_PACKET, unix.SOCK_RAW, 0),
	"unix socket, high bits":   call(unix.SYS_SOCKET, 1<<32|unix.AF_UNIX, unix.SOCK_STREAM, 0),

	"join group":          join(unix.AF_INET, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, "\xefsay\x00\x00\x00\x00"),
	"join source group":   join(unix.AF_INET, unix.IPPROTO_IP, unix.IP_ADD_SOURCE_MEMBERSHIP, "\xefsay\x00\x00\x00\x00\x01\x02\x03\x04"),
	"join IPv6 group":     join(unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, "\xff\x02 says a secret\x01\x00\x00\x00"),
	"join by IPv6 socket": join(unix.AF_INET6, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, "\xefsay\x00\x00\x00\x00"),
	"line discipline":     call(unix.SYS_IOCTL, 0, unix.TIOCSETD),

	"io_uring":          call(unix.SYS_IO_URING_SETUP, 1, 0),
	"io_uring_enter":    call(unix.SYS_IO_URING_ENTER),
	"io_uring_register": call(unix.SYS_IO_URING_REGISTER),
	"clone3":            call(unix.SYS_CLONE3),
	"openat2":           call(unix.SYS_OPENAT2),
	"listmount":         call(unix.SYS_LISTMOUNT),
	"newer call":        call(500),
	"unknown call":      call(4000),
	"x32 call":          call(0x40000000 | unix.SYS_GETPID),

	"unshare user":   call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
	"unshare net":    call(unix.SYS_UNSHARE, unix.CLONE_NEWNET),
	"unshare mount":  call(unix.SYS_UNSHARE, unix.CLONE_NEWNS),
	"unshare pid":    call(unix.SYS_UNSHARE, unix.CLONE_NEWPID),
	"unshare uts":    call(unix.SYS_UNSHARE, unix.CLONE_NEWUTS),
	"unshare ipc":    call(unix.SYS_UNSHARE, unix.CLONE_NEWIPC),
	"unshare cgroup": call(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP),
	"unshare time":   call(unix.SYS_UNSHARE, unix.CLONE_NEWTIME),
	"unshare files":  call(unix.SYS_UNSHARE, unix.CLONE_FS),
	"clone user":     call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)),
	"clone net":      call(unix.SYS_CLONE, unix.CLONE_NEWNET|uintptr(unix.SIGCHLD)),
	"setns": func() error {
		f, err := os.Open("/proc/self/ns/net")
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
	},

	"mount":             call(unix.SYS_MOUNT),
	"umount":            call(unix.SYS_UMOUNT2),
	"pivot_root":        call(unix.SYS_PIVOT_ROOT),
	"chroot":            call(unix.SYS_CHROOT),
	"open_tree":         call(unix.SYS_OPEN_TREE),
	"move_mount":        call(unix.SYS_MOVE_MOUNT),
	"fsopen":            call(unix.SYS_FSOPEN),
	"fsmount":           call(unix.SYS_FSMOUNT),
	"fspick":            call(unix.SYS_FSPICK),
	"mount_setattr":     call(unix.SYS_MOUNT_SETATTR),
	"open_tree_attr":    call(unix.SYS_OPEN_TREE_ATTR),
	"open_by_handle_at": call(unix.SYS_OPEN_BY_HANDLE_AT),

	"bpf":             call(unix.SYS_BPF),
	"perf_event_open": call(unix.SYS_PERF_EVENT_OPEN),
	"userfaultfd":     call(unix.SYS_USERFAULTFD),
	"kexec_load":      call(unix.SYS_KEXEC_LOAD),
	"kexec_file_load": call(unix.SYS_KEXEC_FILE_LOAD),
	"init_module":     call(unix.SYS_INIT_MODULE),
	"finit_module":    call(unix.SYS_FINIT_MODULE),
	"delete_module":   call(unix.SYS_DELETE_MODULE),
	"keyctl":          call(unix.SYS_KEYCTL),
	"add_key":         call(unix.SYS_ADD_KEY),
	"request_key":     call(unix.SYS_REQUEST_KEY),
	"syslog":          call(unix.SYS_SYSLOG, 3),
	"reboot":          call(unix.SYS_REBOOT),
	"swapon":          call(unix.SYS_SWAPON),
	"fanotify":        call(unix.SYS_FANOTIFY_INIT),
	"personality":     call(unix.SYS_PERSONALITY, 0x0400000), // READ_IMPLIES_EXEC
	"ask personality": call(unix.SYS_PERSONALITY, 0xffffffff),
	"set time":        call(unix.SYS_CLOCK_SETTIME, 0, 0),

	"fchmod set-uid": withMode(func(p string) error {
		return changed(p, func() error {
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Fchmod(int(f.Fd()), 0o4755)
		})
	}),
	"fchmodat set-gid": withMode(func(p string) error {
		return changed(p, func() error { return unix.Fchmodat(unix.AT_FDCWD, p, 0o2755, 0) })
	}),
	"fchmodat2 set-uid": withMode(func(p string) error {
		return changed(p, func() error {
			name, err := unix.BytePtrFromString(p)
			if err != nil {
				return err
			}
			return call(unix.SYS_FCHMODAT2, ^uintptr(99), uintptr(unsafe.Pointer(name)), 0o4755, 0)()
		})
	}),
	"chmod plain": func() error {
		p := "/tmp/plain"
		return changed(p, func() error { return unix.Fchmodat(unix.AT_FDCWD, p, 0o1777, 0) })
	},
	"openat set-uid": withMode(func(p string) error {
		fd, err := unix.Openat(unix.AT_FDCWD, p, unix.O_CREAT|unix.O_WRONLY, 0o4755)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}),
	"openat tmpfile set-uid": func() error {
		fd, err := unix.Openat(unix.AT_FDCWD, "/tmp", unix.O_TMPFILE|unix.O_WRONLY, 0o4755)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	// The mode of a call that makes no file may be anything.
	"openat odd mode": func() error {
		fd, err := unix.Openat(unix.AT_FDCWD, "/tmp", unix.O_RDONLY|unix.O_DIRECTORY, 0o6777)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	"mknodat set-uid": withMode(func(p string) error { return unix.Mknodat(unix.AT_FDCWD, p, unix.S_IFREG|0o4755, 0) }),
	"device":          func() error { return unix.Mknodat(unix.AT_FDCWD, "/tmp/device", unix.S_IFCHR|0o666, deviceNumber) },

	"ptrace 1":         call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0),
	"memory of 1":      reading("/proc/1/mem"),
	"fds of 1":         listing("/proc/1/fd"),
	"env of 1":         reading("/proc/1/environ"),
	"root of 1":        listing("/proc/1/root/"),
	"binary of 1":      writing("/proc/1/exe"),
	"own binary":       writing("/proc/self/exe"),
	"read from 1":      readFrom1,
	"steal from 1":     stealFrom1,
	"kill 1":           func() error { return unix.Kill(1, unix.SIGKILL) },
	"uid 0":            func() error { return call(unix.SYS_SETRESUID, 0, 0, 0)() },
	"gid 0":            func() error { return call(unix.SYS_SETRESGID, 0, 0, 0)() },
	"groups":           func() error { g := uint32(0); return call(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&g)))() },
	"host name":        func() error { return unix.Sethostname([]byte("x")) },
	"core limit":       func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}) },
	"oom immunity":     func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) },
	"abstract of host": func() error { return dialling("@" + os.Getenv("ABSTRACT"))() },
	"own abstract": func() error {
		l, err := net.Listen("unix", "@own")
		if err != nil {
			return err
		}
		defer l.Close()
		return dialling("@own")()
	},

	"docker socket": dialling("/run/docker.sock"),
	"system bus":    dialling("/run/dbus/system_bus_socket"),
	"admin socket":  dialling("/run/bawn/admin.sock"),
	"netd socket":   dialling("/run/bawn/netd.sock"),

	"write /usr":     making("/usr/bin/agent-was-here"),
	"write /etc":     making("/etc/agent-was-here"),
	"write /":        making("/agent-was-here"),
	"write /opt":     making("/opt/agent-was-here"),
	"write /dev":     making("/dev/agent-was-here"),
	"write /sys":     writing("/sys/kernel/uevent_helper"),
	"write sysctl":   writing("/proc/sys/net/ipv4/ip_forward"),
	"write core":     writing("/proc/sys/kernel/core_pattern"),
	"write resolv":   writing("/etc/resolv.conf"),
	"write bundle":   writing("/run/bawn/public/bundle.crt"),
	"write ca":       writing("/run/bawn/public/ca.crt"),
	"make public":    making("/run/bawn/public/x"),
	"write system":   writing("/etc/ssl/certs/ca-certificates.crt"),
	"remove bundle":  func() error { return os.Remove("/run/bawn/public/bundle.crt") },
	"replace bundle": func() error { return os.Rename("/tmp", "/run/bawn/public/bundle.crt") },
	"read shadow":    reading("/etc/shadow"),
	"read config":    reading("/etc/bawn/config.yaml"),
	"list state":     listing("/var/lib/bawn"),
	"list /root":     listing("/root"),
	"list /run/host": listing("/run/systemd"),
	"read kcore":     reading("/proc/kcore"),
	"read sysrq":     writing("/proc/sysrq-trigger"),
	"home":           making("/home/dev/mine"),
	"work":           making("/work/mine"),
	"tmp":            making("/tmp/mine"),
	"var tmp":        making("/var/tmp/mine"),
	"shm":            making("/dev/shm/mine"),
	"runtime":        making(fmt.Sprintf("/run/user/%d/mine", agentUID)),
}

// readFrom1 tries to read its memory, at an address that it has.
func readFrom1() error {
	b := make([]byte, 8)
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&os.Args)), Len: len(b)}}
	_, err := unix.ProcessVMReadv(1, local, remote, 0)
	return err
}

// stealFrom1 tries to take the control socket out of process 1.
func stealFrom1() error {
	pidfd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 3, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
