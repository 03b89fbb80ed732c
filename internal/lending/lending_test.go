// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package lending_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"bawn/internal/lending"
)

func TestWhatIsSignedIsRead(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	loan, err := lending.Of(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	signed := []lending.Loan{loan, {Dev: 1, Ino: 1 << 63, Write: true}}
	f, err := lending.Sign(signed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 { // to read takes nothing away
		if got, err := lending.Read(f); err != nil || !slices.Equal(got, signed) {
			t.Errorf("read %v, %v", got, err)
		}
	}
	if _, err := f.Write([]byte(`{"lend":[]}`)); err == nil {
		t.Error("something can be added")
	}
	write := loan
	write.Write = true
	other := loan
	other.Ino++
	for want, covered := range map[lending.Loan]bool{
		loan: true, write: false, other: false,
		{Dev: 1, Ino: 1 << 63}: true, {Dev: 1, Ino: 1 << 63, Write: true}: true, {}: false,
	} {
		if lending.Covers(signed, want) != covered {
			t.Errorf("%+v is covered: %v", want, !covered)
		}
	}
}

// TestNothingElseIsALoan: sockets that an account has made for other ends, with
// bytes in them that somebody else could have chosen.
func TestNothingElseIsALoan(t *testing.T) {
	const text = `{"lend":[{"dev":1,"ino":2,"write":true}]}`
	pair := func(kind int, text string, closed bool) *os.File {
		fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := unix.Send(fds[1], []byte(text), 0); err != nil {
				t.Fatal(err)
			}
		}
		if closed {
			unix.Close(fds[1])
		} else {
			t.Cleanup(func() { unix.Close(fds[1]) })
		}
		return os.NewFile(uintptr(fds[0]), "end")
	}
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unixpacket", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("unixpacket", sock)
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near.Write([]byte(text))
	accepted, err := far.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{
		"a stream":              pair(unix.SOCK_STREAM, text, true),
		"datagrams":             pair(unix.SOCK_DGRAM, text, true),
		"an open pair":          pair(unix.SOCK_SEQPACKET, text, false),
		"an empty pair":         pair(unix.SOCK_SEQPACKET, "", true),
		"a connection":          accepted,
		"no note":               pair(unix.SOCK_SEQPACKET, "GET / HTTP/1.1\r\n\r\n", true),
		"a note with more":      pair(unix.SOCK_SEQPACKET, text+text, true),
		"a note of other words": pair(unix.SOCK_SEQPACKET, `{"lend":[],"all":true}`, true),
		"no socket":             null,
	} {
		if got, err := lending.Read(f); err == nil {
			t.Errorf("%s: read %v", name, got)
		}
		f.Close()
	}
}
