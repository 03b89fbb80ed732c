// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"bawn/internal/codes"
	"bawn/internal/wswire"
)

var key = [4]byte{0x37, 0xfa, 0x21, 0x3d}

// frame makes a frame of a client.
func frame(op wswire.Opcode, fin bool, rsv uint8, payload string) string {
	return string(wswire.AppendFrame(nil, wswire.Header{Fin: fin, Rsv: rsv, Op: op, Masked: true, Key: key}, []byte(payload)))
}

// bare makes a frame of a server.
func bare(op wswire.Opcode, fin bool, rsv uint8, payload string) string {
	return string(wswire.AppendFrame(nil, wswire.Header{Fin: fin, Rsv: rsv, Op: op}, []byte(payload)))
}

func closing(payload string) string { return frame(wswire.Close, true, 0, payload) }

// A message is what was read as one.
type message struct {
	op   wswire.Opcode
	data string
}

// read takes a stream apart until its end, and returns the pings and pongs as
// well.
func read(src io.Reader, from wswire.Role, deflate bool, lim wswire.Limits) (got []message, control []message, err error) {
	var r wswire.Reader
	r.Control = func(op wswire.Opcode, p []byte) error {
		control = append(control, message{op, string(p)})
		return nil
	}
	r.Reset(bufio.NewReader(src), from, deflate, lim)
	for {
		op, _, err := r.Next()
		if err != nil {
			return got, control, err
		}
		data, err := r.Whole(nil)
		if err != nil {
			return got, control, err
		}
		got = append(got, message{op, string(data)})
	}
}

const (
	text   = wswire.Text
	binary = wswire.Binary
	cont   = wswire.Continuation
	ping   = wswire.Ping
	pong   = wswire.Pong
)

// TestRefused has a row for everything that fails a connection, with the close
// status that says so. Rows 118 and 121 of the list of attacks are among them.
func TestRefused(t *testing.T) {
	const b = "\xff" // no UTF-8
	for name, c := range map[string]struct {
		in     string
		status wswire.Status
	}{
		"RSV1 without an extension":          {frame(text, true, 4, "a"), 1002},
		"RSV2":                               {frame(text, true, 2, "a"), 1002},
		"RSV3":                               {frame(text, true, 1, "a"), 1002},
		"RSV on a ping":                      {frame(ping, true, 4, "a"), 1002},
		"opcode 3":                           {frame(3, true, 0, "a"), 1002},
		"opcode 7":                           {frame(7, true, 0, "a"), 1002},
		"opcode 11":                          {frame(11, true, 0, "a"), 1002},
		"opcode 15":                          {frame(15, true, 0, "a"), 1002},
		"no mask":                            {bare(text, true, 0, "a"), 1002},
		"no mask on a ping":                  {bare(ping, true, 0, "a"), 1002},
		"a ping in fragments":                {frame(ping, false, 0, "a"), 1002},
		"a ping of 126 octets":               {frame(ping, true, 0, strings.Repeat("a", 126)), 1002},
		"a continuation of nothing":          {frame(cont, true, 0, "a"), 1002},
		"a continuation behind a message":    {frame(text, true, 0, "a") + frame(cont, true, 0, "a"), 1002},
		"a message inside of another":        {frame(text, false, 0, "a") + frame(text, true, 0, "a"), 1002},
		"a length of two octets for 125":     {"\x81\xfe\x00\x7d" + strings.Repeat("a", 200), 1002},
		"a length of eight octets for 125":   {"\x81\xff\x00\x00\x00\x00\x00\x00\x00\x7d" + strings.Repeat("a", 200), 1002},
		"a length of eight octets for 65535": {"\x81\xff\x00\x00\x00\x00\x00\x00\xff\xff" + strings.Repeat("a", 200), 1002},
		"a length with its first bit set":    {"\x81\xff\x80\x00\x00\x00\x00\x00\xff\xff" + strings.Repeat("a", 200), 1002},
		"a length that nobody could hold":    {"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + strings.Repeat("a", 200), 1009},
		"a close frame of one octet":         {closing("\x03"), 1002},
		"the status 0":                       {closing("\x00\x00"), 1002},
		"the status 999":                     {closing("\x03\xe7"), 1002},
		"the status 1004":                    {closing("\x03\xec"), 1002},
		"the status 1005":                    {closing("\x03\xed"), 1002},
		"the status 1006":                    {closing("\x03\xee"), 1002},
		"the status 1015":                    {closing("\x03\xf7"), 1002},
		"the status 1016":                    {closing("\x03\xf8"), 1002},
		"the status 2999":                    {closing("\x0b\xb7"), 1002},
		"the status 5000":                    {closing("\x13\x88"), 1002},
		"a reason that is no UTF-8":          {closing("\x03\xe8" + b), 1007},
		"a text that is no UTF-8":            {frame(text, true, 0, "a"+b), 1007},
		"one that ends within a character":   {frame(text, true, 0, "a\xe2\x82"), 1007},
		"a surrogate":                        {frame(text, true, 0, "\xed\xa0\x80"), 1007},
		"an overlong slash":                  {frame(text, true, 0, "\xc0\xaf"), 1007},
		"beyond U+10FFFF":                    {frame(text, true, 0, "\xf4\x90\x80\x80"), 1007},
		"a character broken by fragments":    {frame(text, false, 0, "\xe2\x82") + frame(cont, true, 0, "a"), 1007},
		"found before the message ends":      {frame(text, false, 0, "a\xf4\x90"), 1007},
		"more than a message may hold":       {frame(binary, true, 0, strings.Repeat("a", 1001)), 1009},
		"more in fragments":                  {frame(binary, false, 0, strings.Repeat("a", 999)) + frame(cont, true, 0, "aa"), 1009},
		"too many fragments":                 {frame(binary, false, 0, "") + strings.Repeat(frame(cont, false, 0, ""), 10), 1009},
	} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, slow=%v", name, slow), func(t *testing.T) {
				var src io.Reader = strings.NewReader(c.in)
				if slow {
					src = iotest.OneByteReader(src)
				}
				_, _, err := read(src, wswire.Client, false, wswire.Limits{Message: 1000, Fragments: 10})
				e, ok := errors.AsType[*wswire.Error](err)
				if !ok || e.Status != c.status || e.Detail == "" {
					t.Fatalf("got %v, want status %d", err, c.status)
				}
				if code := e.Code; code != codes.WebSocketProtocolError && (code != codes.BodyTooLarge || c.status != 1009) {
					t.Errorf("code %s", code)
				}
			})
		}
	}
}

func TestServersDoNotMask(t *testing.T) {
	_, _, err := read(strings.NewReader(frame(text, true, 0, "a")), wswire.Server, false, wswire.Limits{})
	if e, ok := errors.AsType[*wswire.Error](err); !ok || e.Status != 1002 {
		t.Errorf("got %v", err)
	}
	got, _, err := read(strings.NewReader(bare(text, true, 0, "a")), wswire.Server, false, wswire.Limits{})
	if len(got) != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRead(t *testing.T) {
	long := strings.Repeat("0123456789", 7000)
	for name, c := range map[string]struct {
		in      string
		want    []message
		control []message
		end     string
	}{
		"nothing":              {"", nil, nil, "EOF"},
		"a text":               {frame(text, true, 0, "Hello"), []message{{text, "Hello"}}, nil, "EOF"},
		"the RFC's example":    {"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", []message{{text, "Hello"}}, nil, "EOF"},
		"an empty one":         {frame(binary, true, 0, ""), []message{{binary, ""}}, nil, "EOF"},
		"lengths of all forms": {frame(text, true, 0, long[:125]) + frame(text, true, 0, long[:126]) + frame(text, true, 0, long[:65535]) + frame(text, true, 0, long[:65536]), []message{{text, long[:125]}, {text, long[:126]}, {text, long[:65535]}, {text, long[:65536]}}, nil, "EOF"},
		"fragments with a ping between them": {
			frame(text, false, 0, "Hel") + frame(ping, true, 0, "x") + frame(cont, false, 0, "") + frame(pong, true, 0, "") + frame(cont, true, 0, "lo"),
			[]message{{text, "Hello"}}, []message{{ping, "x"}, {pong, ""}}, "EOF",
		},
		"characters over fragments": {
			frame(text, false, 0, "\xf0\x9f") + frame(cont, false, 0, "\x98") + frame(cont, true, 0, "\x80\xe2\x82\xac"),
			[]message{{text, "😀€"}}, nil, "EOF",
		},
		"any octets in binary":     {frame(binary, true, 0, "\xff\xfe"), []message{{binary, "\xff\xfe"}}, nil, "EOF"},
		"a close":                  {closing("") + frame(text, true, 0, "late"), nil, []message{{wswire.Close, ""}}, "the peer closed the WebSocket"},
		"a close with a reason":    {closing("\x03\xe8bye"), nil, []message{{wswire.Close, "\x03\xe8bye"}}, "the peer closed the WebSocket with 1000"},
		"a close within a message": {frame(text, false, 0, "a") + closing("\x0f\xa0"), nil, []message{{wswire.Close, "\x0f\xa0"}}, "the peer closed the WebSocket with 4000"},
		"an end within a head":     {"\x81", nil, nil, "unexpected EOF"},
		"an end within a payload":  {"\x81\x85\x37\xfa\x21\x3d\x7f", nil, nil, "unexpected EOF"},
		"an end within a message":  {frame(text, false, 0, "a"), nil, nil, "unexpected EOF"},
		"an end within a ping":     {"\x89\x85\x37\xfa\x21\x3d\x7f", nil, nil, "unexpected EOF"},
	} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, slow=%v", name, slow), func(t *testing.T) {
				var src io.Reader = strings.NewReader(c.in)
				if slow {
					src = iotest.OneByteReader(src)
				}
				got, control, err := read(src, wswire.Client, false, wswire.Limits{})
				if fmt.Sprint(got) != fmt.Sprint(c.want) || fmt.Sprint(control) != fmt.Sprint(c.control) || err.Error() != c.end {
					t.Errorf("got %.200v, %v, %v", got, control, err)
				}
			})
		}
	}
}

// TestReadAsItComes: octets are given out as they are here, and the wish to
// wait is heard before each wait.
func TestReadAsItComes(t *testing.T) {
	near, far := io.Pipe()
	var r wswire.Reader
	var waits []bool
	r.Wait = func(within bool) error { waits = append(waits, within); return nil }
	r.Reset(bufio.NewReader(near), wswire.Server, false, wswire.Limits{})
	whole := bare(text, true, 0, "abcdef")
	go func() {
		io.WriteString(far, whole[:5])
		io.WriteString(far, whole[5:])
	}()
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	n, err := r.Read(p)
	if string(p[:n]) != "abc" || err != nil {
		t.Errorf("got %q, %v", p[:n], err)
	}
	n, err = r.Read(p)
	if string(p[:n]) != "def" || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v", p[:n], err)
	}
	if fmt.Sprint(waits) != "[false true]" {
		t.Errorf("waited %v", waits)
	}
}

// TestReadGathersFrames: many small frames that are here become one piece, up to
// a control frame, which is heard in its place.
func TestReadGathersFrames(t *testing.T) {
	var r wswire.Reader
	heard := 0
	r.Control = func(wswire.Opcode, []byte) error { heard++; return nil }
	in := frame(text, false, 0, "a") + strings.Repeat(frame(cont, false, 0, "bc"), 20) + frame(ping, true, 0, "") + frame(cont, false, 0, "d") + frame(cont, true, 0, "")
	r.Reset(bufio.NewReader(strings.NewReader(in)), wswire.Client, false, wswire.Limits{})
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	if n, err := r.Read(p); n != 41 || err != nil || heard != 0 {
		t.Errorf("got %d octets, %v, %d pings", n, err, heard)
	}
	if n, err := r.Read(p); n != 1 || !errors.Is(err, io.EOF) || heard != 1 {
		t.Errorf("got %d octets, %v, %d pings", n, err, heard)
	}
}

func TestHandlersEndTheStream(t *testing.T) {
	stop := errors.New("stop")
	var r wswire.Reader
	r.Control = func(wswire.Opcode, []byte) error { return stop }
	r.Reset(bufio.NewReader(strings.NewReader(frame(ping, true, 0, "")+frame(text, true, 0, "a"))), wswire.Client, false, wswire.Limits{})
	for range 2 {
		if _, _, err := r.Next(); !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
	}
	r.Control, r.Wait = nil, func(bool) error { return stop }
	r.Reset(bufio.NewReader(strings.NewReader("")), wswire.Client, false, wswire.Limits{})
	if _, _, err := r.Next(); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	r.Wait = nil
	r.Reset(bufio.NewReader(strings.NewReader(frame(text, true, 0, "a"))), wswire.Client, false, wswire.Limits{})
	r.Next()
	if _, _, err := r.Next(); err == nil {
		t.Error("a message that was not read was skipped")
	}
}

// written gives messages to a writer in pieces of some size.
func written(as wswire.Role, p wswire.Params, compress bool, piece int, messages ...message) []byte {
	var out bytes.Buffer
	dst := bufio.NewWriterSize(&out, 64)
	var w wswire.Writer
	w.Reset(dst, as, p)
	for _, m := range messages {
		w.Begin(m.op, compress)
		for rest := []byte(m.data); ; {
			part := rest[:min(piece, len(rest))]
			rest = rest[len(part):]
			w.Write(part, len(rest) == 0)
			if len(rest) == 0 {
				break
			}
		}
		w.Control(ping, []byte(m.data[:min(len(m.data), 200)]))
	}
	w.Close(wswire.StatusGoingAway, strings.Repeat("é", 100))
	dst.Flush()
	return out.Bytes()
}

func TestWriterRoundTrip(t *testing.T) {
	long := strings.Repeat("the same again and again ", 5000)
	want := []message{{text, ""}, {text, "a"}, {binary, "\xff\x00"}, {text, "😀" + long}, {text, long[:126]}}
	for _, as := range []wswire.Role{wswire.Client, wswire.Server} {
		for _, bits := range []int{0, 8, 10, 15} {
			for _, piece := range []int{1 << 20, 1000, 7} {
				for _, compress := range []bool{false, true} {
					p := wswire.Params{Deflate: compress, ServerBits: bits, ClientBits: bits}
					out := written(as, p, true, piece, want...)
					got, control, err := read(bytes.NewReader(out), as, compress, wswire.Limits{})
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("as %d, %d bits, pieces of %d, compressed %v: got %.300v", as, bits, piece, compress, got)
					}
					c, ok := errors.AsType[*wswire.Closed](err)
					if !ok || c.Status != 1001 || c.Reason != strings.Repeat("é", 61) || len(control) != len(want)+1 {
						t.Errorf("got %v, %d control frames", err, len(control))
					}
				}
			}
		}
	}
}

// TestWriterLeavesPayload: masking changes nothing of the caller's.
func TestWriterLeavesPayload(t *testing.T) {
	p := []byte(strings.Repeat("payload", 1000))
	var w wswire.Writer
	w.Mask = func() [4]byte { return key }
	w.Reset(bufio.NewWriter(io.Discard), wswire.Client, wswire.Params{})
	w.Begin(binary, false)
	w.Write(p, true)
	wswire.AppendFrame(nil, wswire.Header{Masked: true, Key: key}, p)
	if string(p) != strings.Repeat("payload", 1000) {
		t.Error("the payload was masked where it stood")
	}
	if err := w.Write(p, true); err == nil {
		t.Error("a piece of no message was written")
	}
}
