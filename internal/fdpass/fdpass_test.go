// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package fdpass_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bawn/internal/fdpass"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	return end(fds[0]), end(fds[1])
}

type message struct {
	Text string `json:"text"`
}

func TestMessagesAndDescriptorsArriveTogether(t *testing.T) {
	a, b := pair(t)
	out, in := fdpass.New(a), fdpass.New(b)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		out.Send(message{"first"})
		out.Send(message{strings.Repeat("x", 200<<10)}, w)
		w.Close()
		out.Close()
	}()
	var m message
	if files, err := in.Receive(&m); err != nil || m.Text != "first" || len(files) != 0 {
		t.Fatalf("first message: %q, %d files, %v", m.Text, len(files), err)
	}
	files, err := in.Receive(&m)
	if err != nil || len(m.Text) != 200<<10 || len(files) != 1 {
		t.Fatalf("second message: %d bytes, %d files, %v", len(m.Text), len(files), err)
	}
	io.WriteString(files[0], "through")
	files[0].Close()
	if got, _ := io.ReadAll(r); string(got) != "through" {
		t.Errorf("the passed descriptor is another pipe: read %q", got)
	}
	if _, err := in.Receive(&m); !errors.Is(err, io.EOF) {
		t.Errorf("after close: %v, want io.EOF", err)
	}
}

func TestHostileMessagesAreRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"longer than allowed": "\xff\xff\xff\xff{}",
		"unknown field":       "\x00\x00\x00\x0b{\"other\":1}",
		"two values":          "\x00\x00\x00\x04{}{}",
		"cut short":           "\x00\x00\x00\x10{",
		"cut in the length":   "\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			a.Write([]byte(raw))
			a.Close()
			var m message
			if _, err := fdpass.New(b).Receive(&m); err == nil || errors.Is(err, io.EOF) && len(raw) > 4 && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("accepted %q: %v", raw, err)
			}
		})
	}
}

// FuzzReceive: whatever comes is either refused or, sent again, is the same.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x0d{\"text\":\"hi\"}"))
	f.Add([]byte("\x00\x00\x00\x02{}rest"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, b := pair(t)
		go func() { a.Write(raw); a.Close() }()
		var m message
		if files, err := fdpass.New(b).Receive(&m); err != nil || len(files) != 0 {
			return
		}
		c, d := pair(t)
		go func() { fdpass.New(c).Send(m); c.Close() }()
		var again message
		if _, err := fdpass.New(d).Receive(&again); err != nil || again.Text != strings.ToValidUTF8(m.Text, "\ufffd") && again != m {
			t.Errorf("%+v came back as %+v, %v", m, again, err)
		}
	})
}
