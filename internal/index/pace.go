// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// The index is a copy that can wait, and what it waits for is the traffic: while
// the host's processors are busy it takes a tenth of one, and makes up for it once
// they are not. Somebody who asks does not wait for that.
const (
	idleEnough = 0.25 // part of the processors' time that nobody wants
	busyRest   = 9    // times as long as a batch took
	longestPut = 10 * time.Second
)

// rest says how long after a batch the next may begin.
func rest(took time.Duration, idle float64, asked bool) time.Duration {
	if asked || idle >= idleEnough {
		return 0
	}
	return min(busyRest*took, longestPut)
}

// A processors tells how busy the host was since it was asked last.
type processors struct {
	read func() ([]byte, error) // /proc/stat
	idle uint64
	all  uint64
}

func hostProcessors() processors {
	return processors{read: func() ([]byte, error) { return os.ReadFile("/proc/stat") }}
}

// unused is the part of the time that no processor had anything to do. What
// cannot be read counts as idle: the index then goes on as it can.
func (p *processors) unused() float64 {
	text, err := p.read()
	if err != nil {
		return 1
	}
	idle, all, ok := times(text)
	if !ok {
		return 1
	}
	i, a := idle-p.idle, all-p.all
	p.idle, p.all = idle, all
	if a == 0 || a > all || i > a {
		return 1
	}
	return float64(i) / float64(a)
}

// times reads the first line of /proc/stat: "cpu", and then user, nice, system,
// idle, iowait and more, in ticks (proc_stat(5)). Guests are in user already.
func times(text []byte) (idle, all uint64, ok bool) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 6 || string(fields[0]) != "cpu" {
		return 0, 0, false
	}
	for i, f := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		if all += n; i == 3 || i == 4 {
			idle += n
		}
	}
	return idle, all, true
}
