// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package peercred_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"bawn/internal/peercred"
)

func TestConnectionsOfOneAccountAreBounded(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	l := peercred.Bound(inner, 2)
	defer l.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	dial()
	dial()
	first := <-accepted
	<-accepted
	third := dial()
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a third connection: %v, want it closed", err)
	}
	first.Close()
	first.Close() // gives its place back once
	dial()
	<-accepted
	fourth := dial()
	if _, err := fourth.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection too many after one was closed twice: %v", err)
	}
}
