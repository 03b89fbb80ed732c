// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/netkern"
)

// agentFlag makes the test binary play an agent: it reads one command a line
// and answers with one line.
const agentFlag = "BAWN_NETKERN_AGENT"

func TestMain(m *testing.M) {
	switch os.Getenv(agentFlag) {
	case "probe":
		probeAsAgent()
		return
	case "1":
		playAgent()
		return
	}
	code := m.Run()
	if path, err := agentBinary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func playAgent() {
	held := map[string]int{} // sockets by name
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		answer, err := obey(held, strings.Fields(in.Text()))
		if err != nil {
			answer = "error " + errnoName(err)
		}
		fmt.Println(strings.TrimSpace("ok " + answer))
	}
}

// patience is how long the agent waits for an answer.
var patience = unix.Timeval{Sec: 2}

func errnoName(err error) string {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(e)
	}
	return err.Error()
}

// obey carries out one command of the agent.
func obey(held map[string]int, words []string) (string, error) {
	switch words[0] {
	case "tcp": // NAME TO [FROM]: connect
		var from string
		if len(words) > 3 {
			from = words[3]
		}
		fd, err := agentConnect(words[2], from)
		held[words[1]] = fd
		return "", err
	case "udp": // TO
		return "", sendUDP(words[1], "stolen")
	case "error": // TO: what a datagram's socket is told afterwards
		return agentError(words[1])
	case "listen": // NAME AT
		fd, err := agentListen(words[2])
		held[words[1]] = fd
		return "", err
	case "bind": // NAME AT: UDP
		a := netip.MustParseAddrPort(words[2])
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		held[words[1]] = fd
		return "", unix.Bind(fd, agentSockaddr(a))
	case "accept": // NAME: what comes within a moment
		return agentAccept(held[words[1]])
	case "say": // NAME TEXT
		_, err := unix.Write(held[words[1]], []byte(words[2]))
		return "", err
	case "hear": // NAME
		buf := make([]byte, 1000)
		n, err := unix.Read(held[words[1]], buf)
		return string(buf[:max(n, 0)]), err
	case "fill": // NAME: as much as the kernel takes without waiting
		return agentFill(held[words[1]])
	case "close": // NAME
		return "", unix.Close(held[words[1]])
	case "raw": // PROTOCOL TO: one empty packet
		proto, _ := strconv.Atoi(words[1])
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		return "", unix.Sendto(fd, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 0, agentSockaddr(netip.AddrPortFrom(netip.MustParseAddr(words[2]), 0)))
	case "patience": // MILLISECONDS
		ms, err := strconv.Atoi(words[1])
		patience = unix.NsecToTimeval(int64(ms) * 1e6)
		return "", err
	case "uid":
		return fmt.Sprint(os.Getuid()), nil
	}
	return "", errors.New("what is " + words[0])
}

func agentSocket(a netip.Addr) (int, error) {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

func agentSockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		var zone uint32
		if a.Addr().Zone() == "lo" {
			zone = 1
		}
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: zone}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func agentConnect(to, from string) (int, error) {
	dst := netip.MustParseAddrPort(to)
	fd, err := agentSocket(dst.Addr())
	if err != nil {
		return -1, err
	}
	// A silent drop would show as a timeout, which the tests tell from an error.
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	if from != "" {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		if err := unix.Bind(fd, agentSockaddr(netip.MustParseAddrPort(from))); err != nil {
			return fd, err
		}
	}
	return fd, unix.Connect(fd, agentSockaddr(dst))
}

func agentError(to string) (string, error) {
	a := netip.MustParseAddrPort(to)
	family := unix.AF_INET
	if a.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, agentSockaddr(a)); err != nil {
		return "", err
	}
	unix.Write(fd, []byte("x"))
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return unix.ErrnoName(unix.Errno(code)), err
}

func agentListen(at string) (int, error) {
	a := netip.MustParseAddrPort(at)
	fd, err := agentSocket(a.Addr())
	if err != nil {
		return -1, err
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, agentSockaddr(a)); err != nil {
		return fd, err
	}
	return fd, unix.Listen(fd, 16)
}

func agentAccept(fd int) (string, error) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 100); err != nil || n == 0 {
		return "nobody", err
	}
	c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	if err == nil {
		unix.Close(c)
	}
	return "somebody", err
}

func agentFill(fd int) (string, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return "", err
	}
	total, block := 0, make([]byte, 64<<10)
	for {
		n, err := unix.Write(fd, block)
		if err != nil {
			break
		}
		total += n
	}
	return fmt.Sprint(total), nil
}

// An agent is a process that plays one.
type agent struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	mu  sync.Mutex
}

// startAgent starts one in the network ns, as uid and, unless cgroup is empty,
// in that cgroup (a directory).
func startAgent(t *testing.T, ns *os.File, uid uint32, cgroup string) *agent {
	t.Helper()
	a := &agent{t: t, cmd: exec.Command("/proc/self/exe")}
	// Without the signals that would interrupt its system calls.
	a.cmd.Env = []string{agentFlag + "=1", "GODEBUG=asyncpreemptoff=1"}
	a.cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: false},
	}
	var err error
	// Copied, since the agent's account may not reach where Go builds tests.
	if a.cmd.Path, err = agentBinary(); err != nil {
		t.Fatal(err)
	}
	if cgroup != "" {
		dir, err := os.Open(cgroup)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		a.cmd.SysProcAttr.UseCgroupFD, a.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	a.cmd.Stderr = os.Stderr
	a.out = bufio.NewReader(out)
	if err := netkern.InNamespace(ns, a.cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.end)
	if got := a.do("uid"); got != fmt.Sprintf("ok %d", uid) {
		t.Fatalf("the agent says %q", got)
	}
	return a
}

// agentBinary is a copy of the test binary that any account may run. TestMain
// removes it.
var agentBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bawn-netkern")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agent")
	return path, os.WriteFile(path, data, 0o755)
})

// do gives the agent one command and returns its answer.
func (a *agent) do(format string, args ...any) string {
	a.t.Helper()
	answer, err := a.try(format, args...)
	if err != nil {
		a.t.Fatalf("agent: %v", err)
	}
	return answer
}

func (a *agent) try(format string, args ...any) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := fmt.Fprintf(a.in, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := a.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// end kills the agent and waits for its end.
func (a *agent) end() {
	a.cmd.Process.Kill()
	a.cmd.Wait()
}

// eventually waits for something that another goroutine or process brings
// about, and fails the test if it never comes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}
