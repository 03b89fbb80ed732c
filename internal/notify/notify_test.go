// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/notify"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if k, v, _ := strings.Cut(p, "="); k == name {
				return v
			}
		}
		return ""
	}
}

func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		env   []string
		fds   int
		error string
		zero  bool
	}{
		"nothing":                   {env: nil, zero: true},
		"no manager, only sockets":  {env: []string{"LISTEN_PID=7", "LISTEN_FDS=1"}, zero: true},
		"a path":                    {env: []string{"NOTIFY_SOCKET=/run/n"}},
		"an abstract name":          {env: []string{"NOTIFY_SOCKET=@n"}},
		"a relative path":           {env: []string{"NOTIFY_SOCKET=n"}, error: "neither a path"},
		"half a name":               {env: []string{"NOTIFY_SOCKET=@"}, error: "neither a path"},
		"a socket":                  {env: []string{"NOTIFY_SOCKET=/n", "LISTEN_PID=7", "LISTEN_FDS=1"}, fds: 1},
		"another process's socket":  {env: []string{"NOTIFY_SOCKET=/n", "LISTEN_PID=8", "LISTEN_FDS=1"}},
		"a number that is none":     {env: []string{"NOTIFY_SOCKET=/n", "LISTEN_PID=7", "LISTEN_FDS=x"}, error: "LISTEN_FDS"},
		"less than no socket":       {env: []string{"NOTIFY_SOCKET=/n", "LISTEN_PID=7", "LISTEN_FDS=-1"}, error: "LISTEN_FDS"},
		"another's watchdog":        {env: []string{"NOTIFY_SOCKET=/n", "WATCHDOG_PID=8", "WATCHDOG_USEC=x"}},
		"a watchdog without a time": {env: []string{"NOTIFY_SOCKET=/n", "WATCHDOG_PID=7", "WATCHDOG_USEC=0"}, error: "WATCHDOG_USEC"},
	} {
		m, err := notify.FromEnv(env(c.env...), 7)
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: error %v, want %q", name, err, c.error)
		}
		if err == nil && (m.Sockets() != c.fds || m.IsZero() != c.zero) {
			t.Errorf("%s: %d sockets, zero %v", name, m.Sockets(), m.IsZero())
		}
	}
}

// TestWhatIsSaid goes to a real socket.
func TestWhatIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m, err := notify.FromEnv(env("NOTIFY_SOCKET="+path, "WATCHDOG_USEC=3000"), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Ready(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go m.Live(ctx, slog.New(slog.DiscardHandler))
	buf := make([]byte, 100)
	for i, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"} {
		l.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := l.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Fatalf("datagram %d: %q, %v, want %q", i, buf[:n], err, want)
		}
	}
}

func TestNobodyIsTold(t *testing.T) {
	var m notify.Manager
	if err := m.Ready(); err != nil {
		t.Error(err)
	}
	m.Live(t.Context(), slog.New(slog.DiscardHandler)) // returns
	gone, err := notify.FromEnv(env("NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "none")), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Ready(); err == nil {
		t.Error("a manager that is gone was told")
	}
}
