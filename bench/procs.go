// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of times in /proc/PID/stat (proc(5)): USER_HZ, which is 100
// on every architecture that Go runs on.
const tick = time.Second / 100

// firstAgentUID and lastAgentUID bound the accounts of Bawn's agents: their
// programs are the load, not the peer.
const (
	firstAgentUID = 1_900_000_000
	lastAgentUID  = 1_900_009_999
)

// process is one line of the process table.
type process struct {
	pid, parent int
	cpu         time.Duration // user and system, its waited-for children included
	agent       bool
}

// cpuOf adds up the CPU time of a process and of all below it, but for what
// runs as an agent, and all below that.
func cpuOf(root int) (time.Duration, error) {
	tree, err := below(root)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, p := range tree {
		total += p.cpu
	}
	return total, nil
}

// memoryOf adds up the resident memory of a process and of all below it, agents
// left out; what several share counts once (proc(5), Pss). The kernel's own for
// their sockets is not in it.
func memoryOf(root int) (int64, error) {
	tree, err := below(root)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, p := range tree {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
		if err != nil {
			continue // it has ended meanwhile
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				if err != nil {
					return 0, fmt.Errorf("/proc/%d/smaps_rollup: %q", p.pid, line)
				}
				total += kb << 10
			}
		}
	}
	if total == 0 {
		return 0, fmt.Errorf("process %d has no memory", root)
	}
	return total, nil
}

// descriptors is how many a process may have here.
func descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(l.Max, 1<<20))
}

// below returns a process and all below it, agents left out.
func below(root int) ([]process, error) {
	table, err := processes()
	if err != nil {
		return nil, err
	}
	children := make(map[int][]process)
	var tree []process
	for _, p := range table {
		children[p.parent] = append(children[p.parent], p)
		if p.pid == root {
			tree = append(tree, p)
		}
	}
	if len(tree) == 0 {
		return nil, fmt.Errorf("process %d is gone", root)
	}
	for i := 0; i < len(tree); i++ {
		for _, p := range children[tree[i].pid] {
			if !p.agent {
				tree = append(tree, p)
			}
		}
	}
	return tree, nil
}

func processes() ([]process, error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var table []process
	for _, path := range paths {
		p, err := readProcess(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		table = append(table, p)
	}
	return table, nil
}

func readProcess(path string) (process, error) {
	var p process
	raw, err := os.ReadFile(filepath.Join(path, "stat"))
	if err != nil {
		return p, err
	}
	// The name, in parentheses, may hold anything.
	text := string(raw)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 15 {
		return p, fmt.Errorf("%s/stat: %q", path, text)
	}
	p.pid, err = strconv.Atoi(filepath.Base(path))
	if err != nil {
		return p, err
	}
	if p.parent, err = strconv.Atoi(f[1]); err != nil {
		return p, err
	}
	for _, field := range f[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return p, err
		}
		p.cpu += time.Duration(n) * tick
	}
	info, err := os.Stat(path)
	if err != nil {
		return p, err
	}
	uid := info.Sys().(*syscall.Stat_t).Uid
	p.agent = uid >= firstAgentUID && uid <= lastAgentUID
	return p, nil
}
