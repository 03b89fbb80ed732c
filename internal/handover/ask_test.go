// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package handover_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/config"
	"bawn/internal/handover"
)

// TestWhatASocketGives goes from the files to a proxy that asks.
func TestWhatASocketGives(t *testing.T) {
	dir := t.TempDir()
	c := config.Default()
	c.ParentProxy = config.ParentProxy{Address: "https://proxy.example:1", Username: "u", PasswordFile: put(t, dir, "password", []byte("hunter2\n"), 0o600)}
	collect := func() (*handover.Contents, error) {
		contents, _, err := handover.Collect(c, time.Now())
		return contents, err
	}
	me := uint32(os.Geteuid())
	for name, try := range map[string]struct {
		proxy   uint32
		collect func() (*handover.Contents, error)
		gives   string // the giver's error
		asks    string // the proxy's
	}{
		"the proxy":       {me, collect, "", ""},
		"somebody else":   {me + 1, collect, "who is not the proxy", "gives nothing"},
		"nothing to give": {me, func() (*handover.Contents, error) { return nil, errors.New("the key is gone") }, "the key is gone", "gives nothing"},
		"nothing is kept": {me, func() (*handover.Contents, error) { return new(handover.Contents), nil }, "", ""},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		must(t, err)
		gave := make(chan error, 1)
		go func() {
			s, err := l.AcceptUnix()
			if err == nil {
				err = handover.Give(s, try.proxy, try.collect)
				s.Close()
			}
			gave <- err
		}()
		got, err := handover.Ask(t.Context(), path)
		l.Close()
		if !says(err, try.asks) {
			t.Errorf("%s: asked: %v, want %q", name, err, try.asks)
		}
		if err := <-gave; !says(err, try.gives) {
			t.Errorf("%s: gave: %v, want %q", name, err, try.gives)
		}
		if name == "the proxy" && err == nil && got.ParentPassword.Reveal() != "hunter2" {
			t.Errorf("%s: got %q", name, got.ParentPassword.Reveal())
		}
	}
}

func says(err error, want string) bool {
	return (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want))
}
