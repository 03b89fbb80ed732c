// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"bawn/internal/codes"
	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

// again sends something up to n times, and reports after how often the other
// end had enough of it.
func again(p *peer, n int, send func(i int) error) int {
	for i := range n {
		if send(i) != nil || p.dismissed() {
			return i
		}
	}
	return n
}

// TestFloods has each flood end the connection, long before its end.
func TestFloods(t *testing.T) {
	const many = 20_000
	for name, c := range map[string]struct {
		flood func(p *peer) int
		most  int
		code  codes.Code
		http2 http2.ErrCode
	}{
		"streams opened and reset": {func(p *peer) int {
			return again(p, many, func(i int) error {
				p.ask(uint32(2*i+1), true, "x-wait=1")
				return p.fr.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
			})
		}, 500, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"streams that have to be reset": {func(p *peer) int {
			return again(p, many, func(i int) error {
				p.ask(uint32(2*i+1), false)
				return p.fr.WriteWindowUpdate(uint32(2*i+1), 0)
			})
		}, 500, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"streams whose window overflows": {func(p *peer) int {
			return again(p, many, func(i int) error {
				p.ask(uint32(2*i+1), false)
				return p.fr.WriteWindowUpdate(uint32(2*i+1), 1<<31-1)
			})
		}, 500, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"DATA after the end of streams": {func(p *peer) int {
			return again(p, many, func(i int) error {
				p.ask(uint32(2*i+1), true, "x-wait=1")
				return p.fr.WriteData(uint32(2*i+1), false, []byte("x"))
			})
		}, 500, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"streams over the limit": {func(p *peer) int {
			return again(p, many, func(i int) error { return p.ask(uint32(2*i+1), false, "x-wait=1") })
		}, 700, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"streams that depend on themselves": {func(p *peer) int {
			return again(p, many, func(i int) error {
				id := uint32(2*i + 1)
				return p.fr.WriteHeaders(http2.HeadersFrameParam{
					StreamID: id, EndHeaders: true, EndStream: true, Priority: http2.PriorityParam{StreamDep: id, Weight: 1},
					BlockFragment: p.block(":method=GET", ":scheme=https", ":authority=h", ":path=/"),
				})
			})
		}, 500, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"malformed heads": {func(p *peer) int {
			return again(p, many, func(i int) error { return p.headers(uint32(2*i+1), true, ":method=GET") })
		}, 500, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"bodies of another length": {func(p *peer) int {
			return again(p, many, func(i int) error {
				p.ask(uint32(2*i+1), false, "content-length=5")
				return p.fr.WriteData(uint32(2*i+1), true, []byte("x"))
			})
		}, 500, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"pings": {func(p *peer) int {
			return again(p, many, func(int) error { return p.fr.WritePing(false, [8]byte{}) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"answers to pings": {func(p *peer) int {
			return again(p, many, func(int) error { return p.fr.WritePing(true, [8]byte{}) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"settings": {func(p *peer) int {
			return again(p, many, func(i int) error {
				return p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
			})
		}, 60, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"acknowledgements of settings": {func(p *peer) int {
			return again(p, many, func(int) error { return p.fr.WriteSettingsAck() })
		}, 60, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"priorities": {func(p *peer) int {
			return again(p, many, func(i int) error { return p.fr.WritePriority(uint32(2*i+1), http2.PriorityParam{Weight: 7}) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"window updates": {func(p *peer) int {
			return again(p, many, func(int) error { return p.fr.WriteWindowUpdate(0, 1) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"window updates of a stream": {func(p *peer) int {
			p.ask(1, false)
			return again(p, many, func(int) error { return p.fr.WriteWindowUpdate(1, 1) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"DATA without data": {func(p *peer) int {
			p.ask(1, false)
			return again(p, many, func(int) error { return p.fr.WriteData(1, false, nil) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"DATA with nothing but padding": {func(p *peer) int {
			p.ask(1, false)
			return again(p, many, func(int) error { return p.fr.WriteDataPadded(1, false, nil, make([]byte, 255)) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"frames of unknown types": {func(p *peer) int {
			return again(p, many, func(i int) error { return p.fr.WriteRawFrame(0x42, 0, 0, []byte("x")) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"farewells": {func(p *peer) int {
			return again(p, many, func(int) error { return p.fr.WriteGoAway(0, http2.ErrCodeNo, nil) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"resets of streams that have ended": {func(p *peer) int {
			p.ask(1, true)
			return again(p, many, func(int) error { return p.fr.WriteRSTStream(1, http2.ErrCodeCancel) })
		}, 1100, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"frames of a header block": {func(p *peer) int {
			p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(":method=GET")})
			return again(p, many, func(int) error { return p.fr.WriteContinuation(1, false, p.block("a=b")) })
		}, 70, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"empty frames of a header block": {func(p *peer) int {
			p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(":method=GET")})
			return again(p, many, func(int) error { return p.fr.WriteContinuation(1, false, nil) })
		}, 70, codes.RateLimited, http2.ErrCodeEnhanceYourCalm},
		"octets of a header block": {func(p *peer) int {
			p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(":method=GET")})
			literal := append([]byte{0, 1, 'a', 0x7f, 0x81, 0x7e}, bytes.Repeat([]byte("a"), 16256)...) // 127+1+126*128
			return again(p, many, func(int) error { return p.fr.WriteContinuation(1, false, literal) })
		}, 12, codes.HeadTooLarge, http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(name, func(t *testing.T) {
			err := withServer(t, h2conn.Limits{}, waitOrDrain, func(p *peer, _ *h2conn.Server) {
				if n := c.flood(p); n > c.most {
					t.Errorf("the connection bore %d of them", n)
				}
				if last := p.heard(); len(last) == 0 || !strings.HasSuffix(last[len(last)-1], c.http2.String()) {
					t.Errorf("the last word was %.300q", last[max(0, len(last)-2):])
				}
			})
			wantConnError(t, err, c.code, c.http2)
		})
	}
}

// waitOrDrain serves a request that is to last until its stream is reset, or
// any other.
func waitOrDrain(s *h2conn.ServerStream) {
	if q, err := s.Head(); err == nil {
		if _, ok := q.Fields.Get("x-wait"); ok {
			<-s.Done()
			return
		}
	}
	drainBody(s)
}

func wantConnError(t *testing.T, err error, code codes.Code, h2 http2.ErrCode) {
	t.Helper()
	e, ok := errors.AsType[*h2conn.ConnError](err)
	if !ok || e.Code != code || e.HTTP2 != h2 {
		t.Errorf("Serve returned %v, want %s and %s", err, code, h2)
	}
}

// TestNoFlood has a lot of everything that good clients do.
func TestNoFlood(t *testing.T) {
	for name, good := range map[string]func(p *peer){
		"requests, and some cancelled": func(p *peer) {
			for i := range 5000 {
				id := uint32(2*i + 1)
				p.ask(id, true)
				if i%4 == 0 {
					p.fr.WriteRSTStream(id, http2.ErrCodeCancel)
				}
				synctest.Wait()
			}
		},
		"a ping and a window update for each piece of a stream": func(p *peer) {
			p.ask(1, false)
			for range 5000 {
				p.fr.WriteData(1, false, []byte("a message"))
				p.fr.WritePing(false, [8]byte{})
				p.fr.WriteWindowUpdate(0, 9)
				p.fr.WriteWindowUpdate(1, 9)
			}
		},
		"a ping in ten seconds, for a day": func(p *peer) {
			for range 8640 {
				time.Sleep(10 * time.Second)
				p.fr.WritePing(false, [8]byte{})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := withServer(t, h2conn.Limits{}, drainBody, func(p *peer, v *h2conn.Server) {
				good(p)
				p.heard()
				v.Shutdown()
				if log := p.heard(); len(log) == 0 || !strings.HasSuffix(log[0], "NO_ERROR") {
					t.Errorf("the end was %q", log)
				}
				if err := p.fr.WriteData(1, true, nil); err != nil && name[0] == 'a' {
					t.Log(err)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAnswersNobodyReads bounds what waits for a peer that asks, and sends
// enough to be allowed to ask, and does not read.
func TestAnswersNobodyReads(t *testing.T) {
	err := withServer(t, h2conn.Limits{}, drainBody, func(p *peer, _ *h2conn.Server) {
		p.ask(1, false)
		synctest.Wait()
		stop := make(chan struct{})
		p.mu.Lock()
		p.pause = stop
		p.mu.Unlock()
		n := again(p, 100_000, func(int) error {
			p.fr.WriteData(1, false, []byte("x"))
			for range 3 {
				p.fr.WritePing(false, [8]byte{})
			}
			return p.fr.WritePing(false, [8]byte{})
		})
		if n < 100 || n > 20_000 { // a megabyte is read after the end
			t.Errorf("the connection bore %d of them", n)
		}
		close(stop)
	})
	wantConnError(t, err, codes.RateLimited, http2.ErrCodeEnhanceYourCalm)
}

// TestFloodsFromServers has a server flood a client.
func TestFloodsFromServers(t *testing.T) {
	for name, flood := range map[string]func(p *peer) int{
		"pings":    func(p *peer) int { return again(p, 5000, func(int) error { return p.fr.WritePing(false, [8]byte{}) }) },
		"settings": func(p *peer) int { return again(p, 5000, func(int) error { return p.fr.WriteSettings() }) },
		"frames of a header block": func(p *peer) int {
			p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(":status=200")})
			return again(p, 5000, func(int) error { return p.fr.WriteContinuation(1, false, nil) })
		},
		"interim responses that are read": func(p *peer) int {
			return again(p, 5000, func(int) error { return p.headers(1, false, ":status=103") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
				s, err := k.Open(request("GET"), "https", "/", true)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					var head httpwire.Response
					for s.ReadHead(&head) == nil {
					}
				}()
				synctest.Wait()
				if n := flood(p); n > 1100 {
					t.Errorf("the connection bore %d of them", n)
				}
			})
			wantConnError(t, err, codes.RateLimited, http2.ErrCodeEnhanceYourCalm)
		})
	}
}

// TestInterimResponsesNobodyReads ends the stream, and only that.
func TestInterimResponsesNobodyReads(t *testing.T) {
	withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
		s, _ := k.Open(request("GET"), "https", "/", true)
		other, _ := k.Open(request("GET"), "https", "/", true)
		synctest.Wait()
		p.heard()
		for range 100 {
			p.headers(1, false, ":status=103", "link="+strings.Repeat("x", 4<<10))
		}
		p.wantHeard("RST 1 ENHANCE_YOUR_CALM")
		var head httpwire.Response
		for range 100 {
			if err := s.ReadHead(&head); err != nil {
				break
			}
		}
		p.reply(3, true)
		if err := other.ReadHead(&head); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(other.Body()); err != nil {
			t.Error(err)
		}
	})
}

// TestServerThatDoesNotRead: requests that are given up cost no memory, even if
// the server never takes their heads.
func TestServerThatDoesNotRead(t *testing.T) {
	withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
		pause := make(chan struct{})
		p.mu.Lock()
		p.pause = pause
		p.mu.Unlock()
		p.fr.WritePing(false, [8]byte{}) // so that the reader comes by the pause
		synctest.Wait()
		q := &httpwire.Request{Method: "GET", Fields: httpwire.Fields{
			{Name: "Host", Value: "h"}, {Name: "X", Value: strings.Repeat("x", 8<<10)},
		}}
		opened := 0
		for range 10_000 {
			s, err := k.Open(q, "https", "/", true)
			if err != nil {
				break
			}
			opened++
			s.Reset(http2.ErrCodeCancel)
		}
		if opened > 200 {
			t.Errorf("the heads of %d requests wait", opened)
		}
		if k.Usable() {
			t.Error("the connection is still usable")
		}
		close(pause)
	})
}

// TestLongSettingsAreCounted: each setting is work for every stream, however
// many stand in a frame.
func TestLongSettingsAreCounted(t *testing.T) {
	err := withServer(t, h2conn.Limits{}, waitOrDrain, func(p *peer, _ *h2conn.Server) {
		many := make([]http2.Setting, 2700)
		for i := range many {
			many[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
		}
		p.fr.WriteSettings(many...)
		if !p.dismissed() {
			t.Error("a frame of 2,700 settings is worked through")
		}
	})
	if e, ok := errors.AsType[*h2conn.ConnError](err); !ok || e.Code != codes.RateLimited {
		t.Errorf("got %v", err)
	}
}

// A trap is a connection whose reader panics when something comes.
type trap struct {
	net.Conn
	armed atomic.Bool
}

func (c *trap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.armed.Swap(false) {
		panic("trapped")
	}
	return n, err
}

// TestI12PanicEndsOneConnection: a fault in the reader ends what it reads, wakes
// whoever waits for it, and is told.
func TestI12PanicEndsOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		c := &trap{Conn: a}
		var told any
		k, err := h2conn.NewClient(c, h2conn.Limits{Panicked: func(p any) { told = p }})
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, b)
		st, err := k.Open(&httpwire.Request{Method: "GET", Fields: httpwire.Fields{{Name: "Host", Value: "h"}}}, "https", "/", true)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.armed.Store(true)
		b.Write([]byte{0})
		var p httpwire.Response
		if err := st.ReadHead(&p); err == nil {
			t.Error("the response has a head")
		}
		b.Close()
		<-k.Done()
		if e, ok := errors.AsType[*h2conn.ConnError](k.Err()); !ok || e.Code != codes.InternalError || told != "trapped" {
			t.Errorf("got %v, and %v was told", k.Err(), told)
		}
	})
}
