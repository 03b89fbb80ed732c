// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"bawn/internal/codes"
	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

var small = h2conn.Limits{StreamWindow: 16 << 10, ConnWindow: 64 << 10}

// upload sends n octets on a stream, a thousand at a time, as far as the
// windows go that the other end has given.
func (p *peer) upload(id uint32, n int) (sent int) {
	for sent < n && p.allowed(id) >= 1000 {
		p.fr.WriteData(id, false, make([]byte, 1000))
		p.mu.Lock()
		p.spent[0] += 1000
		p.spent[id] += 1000
		p.mu.Unlock()
		sent += 1000
	}
	return sent
}

// allowed is how much the other end lets p send on a stream.
func (p *peer) allowed(id uint32) int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(65_535+p.given[0]-p.spent[0], p.window+p.given[id]-p.spent[id])
}

// TestSlowReaderHoldsNobodyUp lets one stream fill its window, unread, while
// much more than the connection's window goes through another.
func TestSlowReaderHoldsNobodyUp(t *testing.T) {
	var (
		read chan struct{} // made where time stands still
		got  int64
	)
	err := withServer(t, small, func(s *h2conn.ServerStream) {
		if q, _ := s.Head(); q.Target == "/slow" {
			<-read
		}
		n, err := io.Copy(io.Discard, s.Body())
		if err != nil {
			t.Error(err)
		}
		got += n
		s.WriteHead(status(200), true)
	}, func(p *peer, _ *h2conn.Server) {
		read = make(chan struct{})
		p.headers(1, false, ":method=POST", ":scheme=https", ":authority=h", ":path=/slow")
		p.ask(3, false)
		if n := p.upload(1, 1<<20); n != 16_000 {
			t.Errorf("%d octets went to a stream that nobody reads", n)
		}
		if n := p.upload(3, 1_000_000); n != 1_000_000 {
			t.Errorf("%d octets went beside it", n)
		}
		close(read)
		if n := p.upload(1, 100_000); n != 100_000 {
			t.Errorf("%d octets went when it was read", n)
		}
		p.fr.WriteData(1, true, nil)
		p.fr.WriteData(3, true, nil)
	})
	if err != nil || got != 1_116_000 {
		t.Errorf("%d octets were read, %v", got, err)
	}
}

// TestDroppedDataIsGivenBack has streams end with their bodies unread, by
// every way that there is, far beyond the connection's window.
func TestDroppedDataIsGivenBack(t *testing.T) {
	for name, handle := range map[string]func(*h2conn.ServerStream){
		"the handler answers":   func(s *h2conn.ServerStream) { s.WriteHead(status(200), true) },
		"the handler is gone":   func(*h2conn.ServerStream) {},
		"the handler resets":    func(s *h2conn.ServerStream) { s.Reset(http2.ErrCodeCancel) },
		"the handler stops":     func(s *h2conn.ServerStream) { s.Body().Stop(); <-s.Done() },
		"the client resets":     func(s *h2conn.ServerStream) { <-s.Done() },
		"the answer comes late": func(s *h2conn.ServerStream) { s.Body().Read(make([]byte, 1)); s.WriteHead(status(200), true) },
	} {
		t.Run(name, func(t *testing.T) {
			err := withServer(t, small, handle, func(p *peer, v *h2conn.Server) {
				for i := range 100 {
					id := uint32(2*i + 1)
					p.ask(id, false)
					if n := p.upload(id, 10_000); n != 10_000 {
						t.Fatalf("after %d streams only %d octets could be sent", i, n)
					}
					p.fr.WriteRSTStream(id, http2.ErrCodeCancel)
					if synctest.Wait(); v.Streams() != 0 {
						t.Fatal("a stream is left")
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPaddingIsGivenBack sends more padding than all windows.
func TestPaddingIsGivenBack(t *testing.T) {
	err := withServer(t, small, drainBody, func(p *peer, _ *h2conn.Server) {
		p.ask(1, false)
		for range 1000 {
			if p.allowed(1) < 257 {
				t.Fatal("the window is used up")
			}
			p.fr.WriteDataPadded(1, false, []byte("x"), make([]byte, 255))
			p.mu.Lock()
			p.spent[0] += 257
			p.spent[1] += 257
			p.mu.Unlock()
		}
		p.fr.WriteDataPadded(1, true, nil, make([]byte, 10))
		p.heard()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWindowsAreKept has the engine send through windows of any size.
func TestWindowsAreKept(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 10_000)
	handle := func(s *h2conn.ServerStream) {
		s.WriteHead(status(200), false)
		if n, err := s.Write(body); n != len(body) || err != nil {
			t.Errorf("%d octets were written, %v", n, err)
		}
		s.End(nil)
	}
	withServer(t, h2conn.Limits{}, handle, func(p *peer, _ *h2conn.Server) {
		p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		p.ask(1, true)
		if n := p.received(1); n != 10 {
			t.Errorf("%d octets came through a window of 10", n)
		}
		p.fr.WriteWindowUpdate(1, 1)
		if n := p.received(1); n != 11 {
			t.Errorf("%d octets came through a window of 11", n)
		}
		p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		p.fr.WriteWindowUpdate(1, 10) // pays the debt, and no more
		if n := p.received(1); n != 11 {
			t.Errorf("%d octets came through a window that had shrunk", n)
		}
		p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		if n := p.received(1); n != 65_535 {
			t.Errorf("%d octets came through the connection's first window", n)
		}
		p.fr.WriteWindowUpdate(0, 1<<20)
		if n := p.received(1); n != len(body) {
			t.Errorf("%d octets came in the end", n)
		}
	})
}

// TestStreamsTakeTurns has many streams share a window that is too small for
// one.
func TestStreamsTakeTurns(t *testing.T) {
	const streams = 10
	handle := func(s *h2conn.ServerStream) {
		s.WriteHead(status(200), false)
		s.Write(make([]byte, 200_000))
		s.End(nil)
	}
	withServer(t, h2conn.Limits{}, handle, func(p *peer, _ *h2conn.Server) {
		p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		for i := range streams {
			p.ask(uint32(2*i+1), true)
		}
		p.received(1)
		p.fr.WriteWindowUpdate(0, streams*16<<10)
		p.received(1)
		p.fr.WriteWindowUpdate(0, streams*16<<10)
		for i := range streams {
			if n := p.received(uint32(2*i + 1)); n < 2*16_000 || n > 65_535+3*16<<10 {
				t.Errorf("stream %d got %d octets", 2*i+1, n)
			}
		}
		p.fr.WriteRSTStream(1, http2.ErrCodeCancel)
		p.fr.WriteWindowUpdate(0, 1<<24)
		for i := 1; i < streams; i++ {
			if n := p.received(uint32(2*i + 1)); n != 200_000 {
				t.Errorf("stream %d got %d octets in the end", 2*i+1, n)
			}
		}
	})
}

// TestResetWakes has writers wait for each thing that there is to wait for.
func TestResetWakes(t *testing.T) {
	for name, block := range map[string]func(p *peer){
		"the stream's window":     func(p *peer) { p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) },
		"the connection's window": func(p *peer) { p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}) },
		"the socket": func(p *peer) {
			p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
			p.fr.WriteWindowUpdate(0, 1<<30)
			synctest.Wait()
			p.mu.Lock()
			p.pause = make(chan struct{})
			p.mu.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				stream *h2conn.ServerStream
				wrote  error
			)
			handle := func(s *h2conn.ServerStream) {
				s.WriteHead(status(200), false)
				stream = s
				for wrote == nil {
					_, wrote = s.Write(make([]byte, 10_000))
				}
			}
			withServer(t, h2conn.Limits{}, handle, func(p *peer, v *h2conn.Server) {
				block(p)
				p.ask(1, true)
				synctest.Wait()
				s := stream
				if v.Streams() != 1 {
					t.Fatal("the handler did not wait")
				}
				s.Reset(http2.ErrCodeCancel)
				s.Reset(http2.ErrCodeCancel)
				if synctest.Wait(); v.Streams() != 0 || !errors.Is(wrote, h2conn.ErrReset) {
					t.Errorf("the handler did not wake: %v", wrote)
				}
				<-s.Done()
				if p.pause != nil {
					close(p.pause)
				}
			})
		})
	}
}

// TestWindowViolations sends more than may be sent.
func TestWindowViolations(t *testing.T) {
	t.Run("of a stream", func(t *testing.T) {
		var read error
		err := withServer(t, h2conn.Limits{StreamWindow: 10_000}, func(s *h2conn.ServerStream) {
			<-s.Done()
			_, read = s.Body().Read(make([]byte, 1))
		}, func(p *peer, _ *h2conn.Server) {
			p.ask(1, false)
			p.fr.WriteData(1, false, make([]byte, 10_000))
			p.wantHeard()
			p.fr.WriteData(1, false, make([]byte, 1))
			p.wantHeard("RST 1 FLOW_CONTROL_ERROR")
		})
		if err != nil {
			t.Error(err)
		}
		wantRefusal(t, read, codes.BodyTruncated)
	})
	t.Run("of the connection", func(t *testing.T) {
		err := withServer(t, h2conn.Limits{StreamWindow: 1 << 20, ConnWindow: 70_000}, waitOrDrain, func(p *peer, _ *h2conn.Server) {
			p.ask(1, false, "x-wait=1")
			for range 7 {
				p.fr.WriteData(1, false, make([]byte, 10_000))
			}
			p.wantHeard()
			p.fr.WriteData(1, false, make([]byte, 1))
			p.wantHeard("GOAWAY 1 FLOW_CONTROL_ERROR")
		})
		wantConnError(t, err, codes.ProtocolError, http2.ErrCodeFlowControl)
	})
	t.Run("before the settings are known", func(t *testing.T) {
		err := withStranger(t, h2conn.Limits{StreamWindow: 10_000}, waitOrDrain, func(p *peer, _ *h2conn.Server) {
			p.raw([]byte(http2.ClientPreface))
			p.fr.WriteSettings()
			p.ask(1, false, "x-wait=1")
			for range 6 {
				p.fr.WriteData(1, false, make([]byte, 10_000))
			}
			p.wantHeard()
			p.fr.WriteSettingsAck() // from here on it is at fault
			p.ask(3, false, "x-wait=1")
			p.fr.WriteData(3, false, make([]byte, 5000))
			p.wantHeard()
			p.fr.WriteData(1, false, make([]byte, 1))
			p.wantHeard("RST 1 FLOW_CONTROL_ERROR")
			p.fr.WriteRSTStream(3, http2.ErrCodeCancel)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func wantRefusal(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if e, ok := errors.AsType[*httpwire.Error](err); !ok || e.Code != code {
		t.Errorf("the error is %v, want one with %s", err, code)
	}
}

// TestSmallPiecesTakeLittleMemory sends a window of single octets.
func TestSmallPiecesTakeLittleMemory(t *testing.T) {
	var got bytes.Buffer
	withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		before := heap()
		time.Sleep(time.Second) // when all is there
		if more := heap() - before; more > 1<<20 {
			t.Errorf("30000 octets take %d", more)
		}
		io.Copy(&got, s.Body())
		s.WriteHead(status(200), true)
	}, func(p *peer, _ *h2conn.Server) {
		p.ask(1, false)
		for i := range 30_000 {
			p.fr.WriteData(1, i == 29_999, fmt.Appendf(nil, "%d", i%10))
		}
		time.Sleep(2 * time.Second)
		p.wantHeard("HEADERS 1 :status=200", "END 1")
	})
	if got.Len() != 30_000 || !bytes.HasPrefix(got.Bytes(), []byte("0123456789012")) {
		t.Errorf("%d octets came", got.Len())
	}
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first has put aside from the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestRoomIsShared: connections that share a room have no more window between
// them than there is, beyond the least; one that ends makes room for another.
func TestRoomIsShared(t *testing.T) {
	room := h2conn.NewRoom(100_000)
	lim := h2conn.Limits{StreamWindow: 1 << 20, ConnWindow: 65_535 + 80_000, Room: room}
	sends := func(k *peer) int {
		t.Helper()
		k.ask(1, false)
		for sent := 0; sent < 1<<20; sent += 1000 {
			if k.fr.WriteData(1, false, make([]byte, 1000)) != nil || k.dismissed() {
				return sent
			}
		}
		return 1 << 20
	}
	wait := func(s *h2conn.ServerStream) { <-s.Done() }
	for range 2 {
		withServer(t, lim, wait, func(p *peer, _ *h2conn.Server) {
			a, b := net.Pipe()
			second := h2conn.NewServer(a, lim, wait)
			served := make(chan struct{})
			go func() { second.Serve(); close(served) }()
			q := wire(t, b)
			go q.read()
			q.raw([]byte(http2.ClientPreface))
			q.fr.WriteSettings()
			synctest.Wait()
			if got := sends(p); got != 145_000 {
				t.Errorf("the first connection lets %d octets wait", got)
			}
			if got := sends(q); got != 85_000 {
				t.Errorf("the second connection lets %d octets wait", got)
			}
			b.Close()
			<-served
		})
	}
}
