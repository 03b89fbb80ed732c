// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

// A peer is the other end of a connection, which says whatever a test wants it
// to. It reads all the time, and keeps what it has read as text.
type peer struct {
	t  *testing.T
	nc net.Conn
	fr *http2.Framer

	encoded bytes.Buffer
	enc     *hpack.Encoder

	mu    sync.Mutex
	log   []string
	data  map[uint32]int // octets of DATA by stream
	pause chan struct{}  // reading goes on when it is closed; nil: it goes on
	gone  bool
	err   error

	window int            // of streams, as the other end has set it
	given  map[uint32]int // by its updates
	spent  map[uint32]int
}

func wire(t *testing.T, nc net.Conn) *peer {
	p := &peer{
		t: t, nc: nc, fr: http2.NewFramer(nc, nc),
		data: map[uint32]int{}, given: map[uint32]int{}, spent: map[uint32]int{}, window: 65_535,
	}
	p.fr.AllowIllegalWrites = true
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.encoded)
	return p
}

// withServer runs a server against a peer that has shaken hands, and returns
// what Serve returned. Time stands still unless everybody waits.
func withServer(t *testing.T, lim h2conn.Limits, handle func(*h2conn.ServerStream), run func(*peer, *h2conn.Server)) error {
	t.Helper()
	return withStranger(t, lim, handle, func(p *peer, v *h2conn.Server) {
		p.raw([]byte(http2.ClientPreface))
		p.fr.WriteSettings()
		p.fr.WriteSettingsAck()
		synctest.Wait()
		run(p, v)
	})
}

// withStranger is withServer without the handshake.
func withStranger(t *testing.T, lim h2conn.Limits, handle func(*h2conn.ServerStream), run func(*peer, *h2conn.Server)) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		v := h2conn.NewServer(a, lim, handle)
		served := make(chan struct{})
		go func() { err = v.Serve(); close(served) }()
		p := wire(t, b)
		go p.read()
		run(p, v)
		synctest.Wait()
		p.nc.Close()
		<-served
	})
	return err
}

// withClient is withServer for a client.
func withClient(t *testing.T, lim h2conn.Limits, run func(*peer, *h2conn.Client)) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		k, e := h2conn.NewClient(a, lim)
		if e != nil {
			t.Fatal(e)
		}
		var preface [len(http2.ClientPreface)]byte
		p := wire(t, b)
		go func() {
			io.ReadFull(b, preface[:])
			p.read()
		}()
		p.fr.WriteSettings()
		p.fr.WriteSettingsAck()
		synctest.Wait()
		run(p, k)
		synctest.Wait()
		p.nc.Close()
		<-k.Done()
		err = k.Err()
	})
	return err
}

func (p *peer) read() {
	for {
		p.mu.Lock()
		pause := p.pause
		p.mu.Unlock()
		if pause != nil {
			<-pause
		}
		f, err := p.fr.ReadFrame()
		p.mu.Lock()
		if err != nil {
			p.err = err
			p.mu.Unlock()
			return
		}
		p.note(f)
		p.mu.Unlock()
	}
}

func (p *peer) note(f http2.Frame) {
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.DataFrame:
		p.data[id] += len(f.Data())
		if len(f.Data()) > 0 {
			p.log = append(p.log, fmt.Sprintf("DATA %d", id))
		}
		if f.StreamEnded() {
			p.log = append(p.log, fmt.Sprintf("END %d", id))
		}
	case *http2.MetaHeadersFrame:
		text := fmt.Sprintf("HEADERS %d", id)
		for _, h := range f.Fields {
			text += " " + h.Name + "=" + h.Value
		}
		p.log = append(p.log, text)
		if f.StreamEnded() {
			p.log = append(p.log, fmt.Sprintf("END %d", id))
		}
	case *http2.RSTStreamFrame:
		p.log = append(p.log, fmt.Sprintf("RST %d %s", id, f.ErrCode))
	case *http2.GoAwayFrame:
		p.gone = true
		p.log = append(p.log, fmt.Sprintf("GOAWAY %d %s", f.LastStreamID, f.ErrCode))
	case *http2.PingFrame:
		p.log = append(p.log, fmt.Sprintf("PING ack=%v", f.IsAck()))
	case *http2.SettingsFrame:
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			p.window = int(v)
		}
	case *http2.WindowUpdateFrame:
		p.given[id] += int(f.Increment)
		p.log = append(p.log, fmt.Sprintf("WINDOW %d", id))
	}
}

// heard waits until nothing moves and returns what was heard since the last
// call, without the updates of windows.
func (p *peer) heard() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	log := slices.DeleteFunc(p.log, func(s string) bool { return strings.HasPrefix(s, "WINDOW") })
	p.log = nil
	return slices.Compact(log)
}

// wantHeard compares what was heard with the lines given.
func (p *peer) wantHeard(want ...string) {
	p.t.Helper()
	if got := p.heard(); !slices.Equal(got, want) {
		p.t.Errorf("heard\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// dismissed reports whether the other end has said farewell.
func (p *peer) dismissed() bool {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || p.gone
}

func (p *peer) received(id uint32) int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.data[id]
}

func (p *peer) raw(b []byte) error {
	_, err := p.nc.Write(b)
	return err
}

// block encodes fields, each "name=value".
func (p *peer) block(lines ...string) []byte {
	p.encoded.Reset()
	for _, l := range lines {
		i := strings.IndexByte(l[1:], '=') + 1
		p.enc.WriteField(hpack.HeaderField{Name: l[:i], Value: l[i+1:]})
	}
	return slices.Clone(p.encoded.Bytes())
}

// headers sends a header list in one frame.
func (p *peer) headers(id uint32, end bool, lines ...string) error {
	return p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: end, EndHeaders: true, BlockFragment: p.block(lines...)})
}

// ask sends the head of a good request.
func (p *peer) ask(id uint32, end bool, more ...string) error {
	method := ":method=GET"
	if !end {
		method = ":method=POST"
	}
	return p.headers(id, end, append([]string{method, ":scheme=https", ":authority=h", ":path=/"}, more...)...)
}

// reply sends the head of a good response.
func (p *peer) reply(id uint32, end bool, more ...string) error {
	return p.headers(id, end, append([]string{":status=200"}, more...)...)
}

// drainBody reads a request to its end and answers 200, or what it deserves.
func drainBody(s *h2conn.ServerStream) {
	_, refused := s.Head()
	if refused == nil {
		_, refused = io.Copy(io.Discard, s.Body())
	}
	if e, ok := errors.AsType[*httpwire.Error](refused); ok {
		s.WriteHead(status(e.Status, "bawn-code", string(e.Code)), true)
		return
	}
	s.WriteHead(status(200), true)
}
