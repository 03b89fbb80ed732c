// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"bawn/internal/wswire"
)

// FuzzReader gives a stream to this reader and to another implementation. Each
// message that this one takes the other must read as the same; that it takes
// more is no fault. What is written anew from it is read as the same again.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		frame(text, true, 0, "Hello"), frame(text, false, 0, "Hel") + frame(ping, true, 0, "x") + frame(cont, true, 0, "lo"),
		frame(text, true, 4, "\xf2\x48\xcd\xc9\xc9\x07\x00"), frame(text, true, 4, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00"),
		frame(binary, false, 4, "\xf2\x48\xcd") + frame(cont, true, 0, "\xc9\xc9\x07\x00") + closing("\x03\xe8"),
		frame(binary, true, 0, strings.Repeat("a", 300)), frame(text, true, 0, "\xe2\x82\xac"),
	} {
		f.Add([]byte(s), true, true)
		f.Add([]byte(s), false, true)
	}
	f.Add([]byte("\x01\x03Hel\x89\x01x\x80\x02lo\x82\x00\x88\x02\x03\xe8"), false, false)
	f.Add([]byte("\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00"), true, false)
	f.Fuzz(func(t *testing.T, in []byte, deflate, raw bool) {
		if !raw {
			in = masked(in)
		}
		lim := wswire.Limits{Message: 1 << 16}
		got, _, err := read(bytes.NewReader(in), wswire.Client, deflate, lim)
		if err == nil {
			t.Fatal("a stream without an end")
		}
		slow, _, slowErr := read(&halves{bytes.NewReader(in)}, wswire.Client, deflate, lim)
		if fmt.Sprint(got) != fmt.Sprint(slow) || err.Error() != slowErr.Error() {
			t.Fatalf("in pieces it reads %v, %v instead of %v, %v", slow, slowErr, got, err)
		}
		theirs, theirErr := otherReader(t, in, deflate, len(got))
		if fmt.Sprintf("%q", theirs) != fmt.Sprintf("%q", got) {
			t.Fatalf("read %q, the other %q (%v)", got, theirs, theirErr)
		}
		again, _, _ := read(bytes.NewReader(written(wswire.Server, wswire.Params{Deflate: deflate}, true, 100, got...)), wswire.Server, deflate, lim)
		if fmt.Sprintf("%q", again) != fmt.Sprintf("%q", got) {
			t.Fatalf("written anew it is %q, not %q", again, got)
		}
	})
}

// masked makes frames of a client out of pairs of a first octet and a payload
// with its length, which the fuzzer finds sooner than masks and lengths that fit.
func masked(script []byte) (frames []byte) {
	for len(script) >= 2 {
		first, n := script[0], min(int(script[1]), len(script)-2)
		h := wswire.Header{Fin: first&0x80 != 0, Rsv: first >> 4 & 7, Op: wswire.Opcode(first & 0xf), Masked: true, Key: key}
		frames = wswire.AppendFrame(frames, h, script[2:2+n])
		script = script[2+n:]
	}
	return frames
}

// halves reads at most three octets at a time.
type halves struct{ r io.Reader }

func (h *halves) Read(p []byte) (int, error) { return h.r.Read(p[:min(len(p), 3)]) }

// otherReader reads the first n messages of a client's stream by another
// implementation.
func otherReader(t *testing.T, in []byte, deflate bool, n int) (got []message, err error) {
	t.Helper()
	w := &hijacked{Conn: &canned{in: bytes.NewReader(in)}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Extensions": {wswire.Offer},
	}
	opts := &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled}
	if deflate {
		opts.CompressionMode = websocket.CompressionNoContextTakeover
	}
	c, err := websocket.Accept(w, req, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 20)
	for len(got) < n {
		kind, data, err := c.Read(context.Background())
		if err != nil {
			return got, err
		}
		got = append(got, message{map[websocket.MessageType]wswire.Opcode{websocket.MessageText: text, websocket.MessageBinary: binary}[kind], string(data)})
	}
	return got, nil
}

// canned is a connection from which fixed octets come.
type canned struct{ in *bytes.Reader }

func (c *canned) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *canned) Write(p []byte) (int, error)      { return len(p), nil }
func (c *canned) Close() error                     { return nil }
func (c *canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *canned) SetDeadline(time.Time) error      { return nil }
func (c *canned) SetReadDeadline(time.Time) error  { return nil }
func (c *canned) SetWriteDeadline(time.Time) error { return nil }

type hijacked struct {
	net.Conn
	header http.Header
}

func (h *hijacked) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}
func (h *hijacked) WriteHeader(int)             {}
func (h *hijacked) Write(p []byte) (int, error) { return len(p), nil }
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.Conn, bufio.NewReadWriter(bufio.NewReader(h.Conn), bufio.NewWriter(h.Conn)), nil
}

// FuzzRoundTrip writes a message in every way there is and reads it.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("Hello"), uint16(3), uint8(9), true, true)
	f.Add([]byte{}, uint16(1), uint8(0), false, false)
	f.Fuzz(func(t *testing.T, data []byte, piece uint16, bits uint8, client, compress bool) {
		as := wswire.Server
		if client {
			as = wswire.Client
		}
		size := 8 + int(bits%8)
		p := wswire.Params{Deflate: compress, ServerBits: size, ClientBits: size}
		m := message{binary, string(data)}
		if string(bytes.ToValidUTF8(data, nil)) == m.data {
			m.op = text
		}
		out := written(as, p, true, int(piece)+1, m, m)
		got, _, err := read(bytes.NewReader(out), as, compress, wswire.Limits{Ratio: 2000})
		if _, ok := errors.AsType[*wswire.Closed](err); !ok || len(got) != 2 || got[0] != m || got[1] != m {
			t.Fatalf("%q became %q, %v", m.data, got, err)
		}
	})
}

// FuzzExtensions writes what was read of a field in its plainest form, which
// has to be read as the same.
func FuzzExtensions(f *testing.F) {
	f.Add("permessage-deflate; server_max_window_bits=\"10\", a ; b")
	f.Fuzz(func(t *testing.T, in string) {
		list, ok := wswire.ParseExtensions([]string{in})
		if !ok {
			return
		}
		var plain []string
		for _, e := range list {
			s := e.Name
			for _, p := range e.Params {
				s += ";" + p.Name
				if p.Valued {
					s += "=" + p.Value
				}
			}
			plain = append(plain, s)
		}
		again, ok := wswire.ParseExtensions(plain)
		joined, ok2 := wswire.ParseExtensions([]string{strings.Join(plain, ",")})
		if !ok || !ok2 || fmt.Sprint(again) != fmt.Sprint(list) || fmt.Sprint(joined) != fmt.Sprint(list) {
			t.Fatalf("%q is %v, written anew %v, %v", in, list, again, joined)
		}
		if p, answer := wswire.Answer(list); answer != "" {
			theirs, ok := wswire.ParseExtensions([]string{answer})
			if _, agreed := wswire.Agreed(theirs, true); !ok || !agreed || !p.Deflate {
				t.Fatalf("the answer %q to %q could not be taken", answer, in)
			}
		}
	})
}
