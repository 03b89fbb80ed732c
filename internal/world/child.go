// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// childArg makes this program one of the world's own processes.
const childArg = "bawn-world-child"

// The roles of the world's own processes, one in each namespace.
const (
	roleHost     = "host"
	roleInternet = "internet"
	roleAttacker = "attacker"
	roleLAN      = "lan"
)

// Main runs this program as a process of a world if it was started as one, and
// then does not return. Call it before anything else.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != childArg {
		return
	}
	if err := childMain(os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "world: %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childMain answers calls on descriptor 3 until the other end is gone, which
// is how a child learns that the program that started it has ended.
func childMain(role string) error {
	f := os.NewFile(3, "control")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("opening control socket: %w", err)
	}
	if err := hasteIPv6(); err != nil {
		return err
	}
	srv := rpc.NewServer()
	var service any
	switch role {
	case roleHost:
		go reap()
		service = &HostCalls{}
	case roleInternet:
		service = newInternet()
	case roleAttacker:
		service = newAttacker()
	case roleLAN:
		service = newLAN()
	default:
		return fmt.Errorf("no such role")
	}
	if err := srv.RegisterName("World", service); err != nil {
		return fmt.Errorf("registering calls: %w", err)
	}
	srv.ServeConn(conn)
	return nil
}

// child is the program's handle on one of the world's processes.
type child struct {
	role string
	cmd  *exec.Cmd
	rpc  *rpc.Client
	log  string // file that holds what it printed
}

// start runs this program again as role, in namespaces of its own. before is
// put in front of the command (a wrapper), extra become descriptors 4 and on.
func start(dir, role string, before []string, extra ...*os.File) (*child, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", role, err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", role, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, role+".log"))
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", role, err)
	}
	defer log.Close()
	argv := append(append([]string{}, before...), self, childArg, role)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Args, cmd.Env, cmd.Dir = argv, []string{"PATH=" + Path}, "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = append([]*os.File{theirs}, extra...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("starting %s: %w", role, err)
	}
	return &child{role: role, cmd: cmd, rpc: rpc.NewClient(conn), log: log.Name()}, nil
}

// call asks the process for something; it waits 20 seconds at most, so that a
// stopped world fails a test instead of hanging it.
func (c *child) call(method string, args, reply any) error {
	call := c.rpc.Go("World."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return fmt.Errorf("asking %s for %s: %w%s", c.role, method, call.Error, c.said())
		}
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("asking %s for %s: no answer in 20 s", c.role, method)
	}
}

func (c *child) said() string {
	text, err := os.ReadFile(c.log)
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\n" + string(text[max(0, len(text)-4096):])
}

// stop ends the process and with it everything in its namespaces.
func (c *child) stop() {
	c.rpc.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// namespace opens one of the namespaces of the process.
func (c *child) namespace(kind string) (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", c.cmd.Process.Pid, kind))
	if err != nil {
		return nil, fmt.Errorf("opening namespace of %s: %w", c.role, err)
	}
	return f, nil
}
