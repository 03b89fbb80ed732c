// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

// A memConn is a connection on which everything has been said before. What is
// written to it is kept.
type memConn struct {
	in   io.Reader
	open chan struct{} // reading waits for it to be closed
	mu   sync.Mutex
	out  bytes.Buffer
}

func newMemConn(in []byte) *memConn {
	return &memConn{in: bytes.NewReader(in), open: make(chan struct{})}
}

func (c *memConn) Read(p []byte) (int, error) { <-c.open; return c.in.Read(p) }

func (c *memConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

func (c *memConn) Close() error                     { return nil }
func (c *memConn) LocalAddr() net.Addr              { return nil }
func (c *memConn) RemoteAddr() net.Addr             { return nil }
func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

// A message is what one stream carried one way.
type message struct {
	head   string // the first header list
	octets int
	whole  bool
}

// byFramer reads the same octets with the reader of x/net, up to where that
// finds the connection at fault.
func byFramer(in []byte) map[uint32]*message {
	r := bytes.NewReader(in)
	fr := http2.NewFramer(nil, r)
	fr.SetMaxReadFrameSize(16 << 10)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	all := map[uint32]*message{}
	for {
		h, err := fr.ReadFrameHeader()
		if err != nil {
			return all
		}
		if h.Type == http2.FramePriorityUpdate { // it knows that extension, and we did not offer it
			if n, _ := io.CopyN(io.Discard, r, int64(h.Length)); n < int64(h.Length) {
				return all
			}
			continue
		}
		f, err := fr.ReadFrameForHeader(h)
		if _, ok := errors.AsType[http2.StreamError](err); ok {
			continue
		}
		if err != nil {
			return all
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			m := all[id]
			if m == nil {
				m = &message{}
				all[id] = m
			}
			if m.head == "" || strings.HasPrefix(m.head, "1") {
				m.head = f.PseudoValue("status") + f.PseudoValue("method") + " " + f.PseudoValue("path")
			}
			m.whole = m.whole || f.StreamEnded()
		case *http2.DataFrame:
			if m := all[id]; m != nil && !m.whole { // what follows the end is a fault, and not the message's
				m.octets += len(f.Data())
				m.whole = m.whole || f.StreamEnded()
			}
		}
	}
}

// checkWritten reads what the engine wrote, and expects of each stream that it
// is good HTTP/2: nothing but a reset after its end, and DATA after a head.
func checkWritten(t *testing.T, out []byte) {
	t.Helper()
	fr := http2.NewFramer(nil, bytes.NewReader(out))
	fr.SetMaxReadFrameSize(16 << 10)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	type state struct{ begun, ended, reset bool }
	streams := map[uint32]*state{}
	for first := true; ; first = false {
		f, err := fr.ReadFrame()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("what was written is read as %v: %x", err, out)
		}
		h := f.Header()
		if first != (h.Type == http2.FrameSettings && !h.Flags.Has(http2.FlagSettingsAck)) {
			t.Fatalf("SETTINGS, where they do not belong or not: %v", f)
		}
		s := streams[h.StreamID]
		if s == nil {
			s = &state{}
			streams[h.StreamID] = s
		}
		switch h.Type {
		case http2.FrameHeaders:
			if s.ended || s.reset {
				t.Fatalf("%v after the end of the stream", f)
			}
			s.begun = true
			s.ended = h.Flags.Has(http2.FlagHeadersEndStream)
		case http2.FrameData:
			if !s.begun || s.ended || s.reset {
				t.Fatalf("%v where none may be", f)
			}
			s.ended = h.Flags.Has(http2.FlagDataEndStream)
		case http2.FrameRSTStream:
			if s.reset {
				t.Fatalf("%v twice", f)
			}
			s.reset = true
		case http2.FrameWindowUpdate:
			if s.reset {
				t.Fatalf("%v after a reset", f)
			}
		}
	}
}

// script gives the octets of frames.
func script(write func(p *peer)) []byte {
	var buf bytes.Buffer
	p := &peer{fr: http2.NewFramer(&buf, nil)}
	p.fr.AllowIllegalWrites = true
	p.enc = hpack.NewEncoder(&p.encoded)
	write(p)
	return buf.Bytes()
}

func seeds(f *testing.F, head func(p *peer, id uint32, end bool, more ...string) error) {
	for _, write := range []func(p *peer){
		func(p *peer) { head(p, 1, true) },
		func(p *peer) { head(p, 1, false, "content-length=3"); p.fr.WriteData(1, true, []byte("abc")) },
		func(p *peer) {
			head(p, 1, false)
			head(p, 3, false)
			p.fr.WriteDataPadded(3, false, bytes.Repeat([]byte("x"), 5000), make([]byte, 7))
			p.fr.WriteWindowUpdate(0, 1000)
			p.fr.WriteWindowUpdate(1, 1000)
			p.headers(3, true, "a=b")
			p.fr.WriteRSTStream(1, http2.ErrCodeCancel)
			p.fr.WriteData(1, true, nil)
		},
		func(p *peer) {
			p.fr.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, EndStream: true, BlockFragment: p.block(":method=GET"), PadLength: 3,
				Priority: http2.PriorityParam{StreamDep: 5, Weight: 3},
			})
			p.fr.WriteContinuation(1, false, p.block(":scheme=https", ":path=/"))
			p.fr.WriteContinuation(1, true, p.block("host=h"))
			p.fr.WritePriority(3, http2.PriorityParam{Weight: 1})
		},
		func(p *peer) {
			p.fr.WritePing(false, [8]byte{1})
			p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5}, http2.Setting{ID: http2.SettingHeaderTableSize})
			p.fr.WriteSettingsAck()
			head(p, 1, true)
			p.fr.WriteRawFrame(0x42, 0, 0, []byte("x"))
			p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
			p.fr.WriteGoAway(1, http2.ErrCodeNo, []byte("bye"))
		},
	} {
		f.Add(script(func(p *peer) { p.fr.WriteSettings(); write(p) }))
	}
}

// FuzzServer has a server read anything. It must not fall over nor hang, what
// it writes must be good HTTP/2, and each request that it accepts must be what
// the reader of x/net finds in the same octets.
func FuzzServer(f *testing.F) {
	seeds(f, (*peer).ask)
	f.Fuzz(func(t *testing.T, in []byte) {
		want := byFramer(in)
		nc := newMemConn(append([]byte(http2.ClientPreface), in...))
		close(nc.open)
		var mu sync.Mutex
		v := h2conn.NewServer(nc, h2conn.Limits{}, func(s *h2conn.ServerStream) {
			q, err := s.Head()
			n, rerr := io.Copy(io.Discard, s.Body())
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				compare(t, want[s.ID()], q.Method+" "+q.Target, int(n), rerr == nil)
			} else if rerr == nil {
				t.Error("a refused request has a body")
			}
			s.WriteHead(status(200), false)
			s.Write(make([]byte, 100))
			s.End(nil)
		})
		v.Serve() //nolint:errcheck // anything may come of it
		if v.Streams() != 0 {
			t.Error("a handler is left")
		}
		checkWritten(t, nc.out.Bytes())
	})
}

func compare(t *testing.T, want *message, head string, n int, whole bool) {
	t.Helper()
	switch {
	case want == nil:
		t.Errorf("%q was accepted, which another reader does not see", head)
	case want.head != head || n > want.octets || whole && (!want.whole || n != want.octets):
		t.Errorf("accepted %q with %d octets (whole %v), another reader sees %+v", head, n, whole, *want)
	}
}

// FuzzClient is FuzzServer for a client with two requests under way.
func FuzzClient(f *testing.F) {
	seeds(f, (*peer).reply)
	f.Fuzz(func(t *testing.T, in []byte) {
		want := byFramer(in)
		nc := newMemConn(in)
		k, err := h2conn.NewClient(nc, h2conn.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 2 {
			s, err := k.Open(request("GET"), "https", "/", i == 0)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				readAnswer(t, s, want[s.ID()])
				s.Reset(http2.ErrCodeCancel)
			})
		}
		close(nc.open)
		<-k.Done()
		wg.Wait()
		if k.Streams() != 0 {
			t.Error("a stream is left")
		}
		out := nc.out.Bytes()
		if rest, ok := bytes.CutPrefix(out, []byte(http2.ClientPreface)); ok {
			checkWritten(t, rest)
		} else if len(out) > 0 {
			t.Error("the preface is missing")
		}
	})
}

func readAnswer(t *testing.T, s *h2conn.ClientStream, want *message) {
	var p httpwire.Response
	for p.Status < 200 {
		if s.ReadHead(&p) != nil {
			return
		}
	}
	n, err := io.Copy(io.Discard, s.Body())
	compare(t, want, fmt.Sprint(p.Status)+" ", int(n), err == nil)
}
