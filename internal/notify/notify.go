// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notify speaks with the service manager that started this process, as
// sd_notify(3) and sd_listen_fds(3) have it: datagrams of a few words on a
// socket that the environment names. Nothing of libsystemd is needed for that.
//
// A process that "bawn up" started has no [Manager]: it was given descriptors
// instead. Methods of the zero Manager do nothing.
package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"
)

// A Manager is who started this process. The zero value is nobody.
type Manager struct {
	addr     string
	fds      int           // how many sockets came along, from descriptor 3 on
	watchdog time.Duration // how long it waits for a sign of life; 0: for ever
}

// FromEnv finds the manager in the environment of the process pid. The
// variables may be meant for another process, which is no error.
func FromEnv(getenv func(string) string, pid int) (Manager, error) {
	m := Manager{addr: getenv("NOTIFY_SOCKET")}
	if m.addr == "" {
		return Manager{}, nil
	}
	if m.addr[0] != '/' && m.addr[0] != '@' || len(m.addr) < 2 {
		return Manager{}, fmt.Errorf("reading NOTIFY_SOCKET: %q is neither a path nor an abstract name", m.addr)
	}
	mine := strconv.Itoa(pid)
	if getenv("LISTEN_PID") == mine {
		n, err := strconv.Atoi(getenv("LISTEN_FDS"))
		if err != nil || n < 0 {
			return Manager{}, fmt.Errorf("reading LISTEN_FDS: %q is no number of sockets", getenv("LISTEN_FDS"))
		}
		m.fds = n
	}
	usec := getenv("WATCHDOG_USEC")
	if to := getenv("WATCHDOG_PID"); usec != "" && (to == "" || to == mine) {
		n, err := strconv.ParseInt(usec, 10, 64)
		if err != nil || n <= 0 || n > int64(time.Hour/time.Microsecond) {
			return Manager{}, fmt.Errorf("reading WATCHDOG_USEC: %q is no number of microseconds up to an hour", usec)
		}
		m.watchdog = time.Duration(n) * time.Microsecond
	}
	return m, nil
}

// IsZero reports whether there is no manager.
func (m Manager) IsZero() bool { return m.addr == "" }

// Sockets is how many listening sockets the manager handed over.
func (m Manager) Sockets() int { return m.fds }

// Ready says that this process answers.
func (m Manager) Ready() error { return m.say("READY=1") }

// Stopping says that this process ends in an orderly way.
func (m Manager) Stopping() error { return m.say("STOPPING=1") }

func (m Manager) say(words string) error {
	if m.IsZero() {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.addr, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	_, err = c.Write([]byte(words))
	if err = errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	return nil
}

// Live gives signs of life until ctx is done, three in the time that the
// manager waits for one: a process that hangs is then ended and started again.
func (m Manager) Live(ctx context.Context, log *slog.Logger) {
	if m.watchdog == 0 {
		return
	}
	tick := time.NewTicker(max(m.watchdog/3, time.Millisecond))
	defer tick.Stop()
	for {
		if err := m.say("WATCHDOG=1"); err != nil {
			log.Warn("no sign of life", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
