// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 the peer of x/net gives hold of frames and connections that net/http hides

package h2conn_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"bawn/internal/codes"
	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

// TestMalformedRequests are answered, and then their streams end with an error.
// The connection goes on.
func TestMalformedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		send func(p *peer)
		want []string
	}{
		"a head without a path": {
			func(p *peer) { p.headers(1, true, ":method=GET", ":scheme=https", ":authority=h") },
			[]string{"HEADERS 1 :status=400 bawn-code=protocol_error", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
		"a head without a path, and a body": {
			func(p *peer) {
				p.headers(1, false, ":method=GET", ":scheme=https", ":authority=h")
				p.fr.WriteData(1, false, []byte("x"))
			},
			[]string{"HEADERS 1 :status=400 bawn-code=protocol_error", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
		"a transfer-encoding": {
			func(p *peer) { p.ask(1, false, "transfer-encoding=chunked") },
			[]string{"HEADERS 1 :status=400 bawn-code=framing_invalid", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
		"a list over the limit, with a body": {
			func(p *peer) {
				p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(":method=GET", ":scheme=https", ":authority=h", ":path=/")})
				for i := range 8 {
					p.fr.WriteContinuation(1, i == 7, p.block("a="+strings.Repeat("a", 4<<10)))
				}
			},
			[]string{"HEADERS 1 :status=431 bawn-code=head_too_large", "END 1", "RST 1 NO_ERROR"},
		},
		"a body that is too short": {
			func(p *peer) {
				p.ask(1, false, "content-length=5")
				p.fr.WriteData(1, true, []byte("abc"))
			},
			[]string{"HEADERS 1 :status=400 bawn-code=framing_invalid", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
		"a body that is too long": {
			func(p *peer) {
				p.ask(1, false, "content-length=5")
				p.fr.WriteData(1, false, []byte("abcdef"))
			},
			[]string{"HEADERS 1 :status=400 bawn-code=framing_invalid", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
		"no body where one was said": {
			func(p *peer) { p.ask(1, true, "content-length=5") },
			[]string{"HEADERS 1 :status=400 bawn-code=framing_invalid", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
		"a pseudo-field in the trailers": {
			func(p *peer) {
				p.ask(1, false)
				p.headers(1, true, ":path=/")
			},
			[]string{"HEADERS 1 :status=400 bawn-code=protocol_error", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
		"trailers that do not end the stream": {
			func(p *peer) {
				p.ask(1, false)
				p.headers(1, false, "a=b")
			},
			[]string{"HEADERS 1 :status=400 bawn-code=protocol_error", "END 1", "RST 1 PROTOCOL_ERROR"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := withServer(t, h2conn.Limits{Wire: httpwire.Limits{Head: 16 << 10}}, drainBody, func(p *peer, v *h2conn.Server) {
				c.send(p)
				p.wantHeard(c.want...)
				p.ask(3, true)
				p.wantHeard("HEADERS 3 :status=200", "END 3")
				if v.Streams() != 0 {
					t.Error("a stream is left")
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMalformedWhileAnswered ends a stream at once whose answer has begun.
func TestMalformedWhileAnswered(t *testing.T) {
	var read error
	withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		s.WriteHead(status(200), false)
		s.Flush()
		_, read = io.Copy(io.Discard, s.Body())
	}, func(p *peer, _ *h2conn.Server) {
		p.ask(1, false, "content-length=5")
		p.wantHeard("HEADERS 1 :status=200")
		p.fr.WriteData(1, true, []byte("abc"))
		p.wantHeard("RST 1 PROTOCOL_ERROR")
	})
	wantRefusal(t, read, codes.FramingInvalid)
}

// TestClientResets has the client give up at each point of a request.
func TestClientResets(t *testing.T) {
	for name, handle := range map[string]func(*h2conn.ServerStream) error{
		"while the body is read": func(s *h2conn.ServerStream) error {
			_, err := io.Copy(io.Discard, s.Body())
			wantRefusal(t, err, codes.BodyTruncated)
			return s.WriteHead(status(200), false)
		},
		"while the answer is awaited": func(s *h2conn.ServerStream) error {
			<-s.Done()
			return s.WriteHead(status(200), false)
		},
		"while the answer is written": func(s *h2conn.ServerStream) error {
			s.WriteHead(status(200), false)
			for {
				if _, err := s.Write(make([]byte, 1000)); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var wrote error
			err := withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) { wrote = handle(s) }, func(p *peer, v *h2conn.Server) {
				p.ask(1, false)
				p.fr.WriteData(1, false, []byte("x"))
				p.heard()
				p.fr.WriteRSTStream(1, http2.ErrCodeCancel)
				p.wantHeard()
				if v.Streams() != 0 {
					t.Error("a stream is left")
				}
			})
			if err != nil {
				t.Error(err)
			}
			if e, ok := errors.AsType[*h2conn.ResetError](wrote); !ok || e.Code != http2.ErrCodeCancel {
				t.Errorf("writing gave %v", wrote)
			}
		})
	}
}

// TestOnAbort tells a handler that its client has given up, and nothing else.
func TestOnAbort(t *testing.T) {
	for name, c := range map[string]struct {
		does func(p *peer, v *h2conn.Server)
		told bool
	}{
		"the client resets":      {func(p *peer, _ *h2conn.Server) { p.fr.WriteRSTStream(1, http2.ErrCodeCancel) }, true},
		"the connection ends":    {func(p *peer, _ *h2conn.Server) { p.nc.Close() }, true},
		"the client breaks it":   {func(p *peer, _ *h2conn.Server) { p.fr.WriteWindowUpdate(1, 0) }, true},
		"the handler resets":     {func(*peer, *h2conn.Server) {}, false},
		"the response is whole":  {func(p *peer, _ *h2conn.Server) { p.fr.WriteRSTStream(3, http2.ErrCodeCancel) }, false},
		"another stream's reset": {func(p *peer, _ *h2conn.Server) { p.fr.WriteRSTStream(3, http2.ErrCodeCancel) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			told := false
			withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
				if s.ID() == 1 {
					s.OnAbort(func() { told = true })
				}
				switch name {
				case "the handler resets":
					s.Reset(http2.ErrCodeInternal)
				case "the response is whole":
					s.WriteHead(status(200), true)
				default:
					<-s.Done()
				}
			}, func(p *peer, v *h2conn.Server) {
				p.ask(1, true)
				p.ask(3, true)
				synctest.Wait()
				c.does(p, v)
				if synctest.Wait(); told != c.told {
					t.Errorf("the handler was told: %v", told)
				}
			})
		})
	}
}

// TestWholeBodySurvivesReset lets the client take back the request, not what it
// has sent whole.
func TestWholeBodySurvivesReset(t *testing.T) {
	var got []byte
	withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		<-s.Done()
		got, _ = io.ReadAll(s.Body())
	}, func(p *peer, _ *h2conn.Server) {
		p.ask(1, false)
		p.fr.WriteData(1, true, []byte("all"))
		p.fr.WriteRSTStream(1, http2.ErrCodeCancel)
	})
	if string(got) != "all" {
		t.Errorf("%q was read", got)
	}
}

// TestEarlyAnswer has the server answer in full before the body has come.
func TestEarlyAnswer(t *testing.T) {
	err := withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		s.WriteHead(status(413), true)
	}, func(p *peer, _ *h2conn.Server) {
		p.ask(1, false)
		p.wantHeard("HEADERS 1 :status=413", "END 1", "RST 1 NO_ERROR")
		p.fr.WriteData(1, false, []byte("what was under way")) // is no fault
		p.headers(1, true, "a=b")
		p.ask(3, true)
		p.wantHeard("HEADERS 3 :status=413", "END 3")
	})
	if err != nil {
		t.Error(err)
	}
}

// TestHandlerEndsNothing resets what a handler leaves open.
func TestHandlerEndsNothing(t *testing.T) {
	withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		if q, _ := s.Head(); q.Method == "POST" {
			s.WriteHead(status(200), false)
		}
	}, func(p *peer, _ *h2conn.Server) {
		p.ask(1, true)
		p.wantHeard("RST 1 INTERNAL_ERROR")
		p.ask(3, false)
		p.wantHeard("HEADERS 3 :status=200", "RST 3 INTERNAL_ERROR")
	})
}

// TestConcurrency refuses what is over the limit, and only that.
func TestConcurrency(t *testing.T) {
	var release chan struct{}
	err := withServer(t, h2conn.Limits{Streams: 2}, func(s *h2conn.ServerStream) {
		<-release
		s.WriteHead(status(200), true)
		<-release // a stream that has ended makes room before its handler is through
	}, func(p *peer, v *h2conn.Server) {
		release = make(chan struct{})
		for i := range 3 {
			p.ask(uint32(2*i+1), true)
		}
		p.wantHeard("RST 5 REFUSED_STREAM")
		release <- struct{}{}
		if got := p.heard(); len(got) != 2 {
			t.Errorf("heard %q", got)
		}
		p.ask(7, true)
		p.wantHeard()
		if v.Streams() != 3 {
			t.Errorf("%d handlers run", v.Streams())
		}
		close(release)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestShutdown lets what has begun come to its end.
func TestShutdown(t *testing.T) {
	var release chan struct{}
	err := withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		<-release
		io.Copy(io.Discard, s.Body())
		s.WriteHead(status(200), true)
	}, func(p *peer, v *h2conn.Server) {
		release = make(chan struct{})
		p.ask(1, false)
		synctest.Wait()
		v.Shutdown()
		v.Shutdown()
		p.wantHeard("GOAWAY 1 NO_ERROR")
		p.ask(3, false) // was under way
		p.fr.WriteData(3, false, []byte("x"))
		p.headers(3, true, "a=b")
		p.wantHeard()
		close(release)
		p.fr.WriteData(1, true, []byte("x"))
		p.wantHeard("HEADERS 1 :status=200", "END 1")
		time.Sleep(2 * time.Second)
		if synctest.Wait(); p.err == nil {
			t.Error("the connection goes on")
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestClose wakes everybody.
func TestClose(t *testing.T) {
	ended := 0
	err := withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		switch q, _ := s.Head(); q.Method {
		case "POST":
			_, err := s.Body().Read(make([]byte, 1))
			wantRefusal(t, err, codes.BodyTruncated)
		default:
			s.WriteHead(status(200), false)
			for {
				if _, err := s.Write(make([]byte, 1000)); err != nil {
					break
				}
			}
		}
		<-s.Done()
		ended++
	}, func(p *peer, v *h2conn.Server) {
		p.ask(1, true)
		p.ask(3, false)
		synctest.Wait()
		v.Close()
		v.Close()
		if log := p.heard(); log[len(log)-1] != "GOAWAY 3 NO_ERROR" {
			t.Errorf("heard %q", log)
		}
	})
	if err != nil || ended != 2 {
		t.Errorf("%d handlers ended, %v", ended, err)
	}
}

// TestPeerThatDoesNotRead cannot keep a connection from being closed.
func TestPeerThatDoesNotRead(t *testing.T) {
	err := withServer(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		s.WriteHead(status(200), false)
		for {
			if _, err := s.Write(make([]byte, 1000)); err != nil {
				break
			}
		}
	}, func(p *peer, v *h2conn.Server) {
		p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		p.fr.WriteWindowUpdate(0, 1<<30)
		synctest.Wait()
		stop := make(chan struct{})
		p.mu.Lock()
		p.pause = stop
		p.mu.Unlock()
		p.ask(1, true)
		synctest.Wait()
		v.Close()
		time.Sleep(2 * time.Second)
		if synctest.Wait(); v.Streams() != 0 {
			t.Error("the handler is left")
		}
		close(stop)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestServerSaysFarewell ends what the server will not look at, and lets the
// rest end well.
func TestServerSaysFarewell(t *testing.T) {
	err := withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
		first, _ := k.Open(request("GET"), "https", "/", true)
		second, _ := k.Open(request("GET"), "https", "/", true)
		synctest.Wait()
		p.fr.WriteGoAway(1, http2.ErrCodeNo, nil)
		synctest.Wait()
		if _, err := k.Open(request("GET"), "https", "/", true); !errors.Is(err, h2conn.ErrGone) || k.Usable() {
			t.Errorf("opening gave %v", err)
		}
		var head httpwire.Response
		if err := second.ReadHead(&head); !errors.Is(err, h2conn.ErrGone) || !h2conn.NotProcessed(err) {
			t.Errorf("the second request ended with %v", err)
		}
		<-second.Done()
		p.reply(1, false)
		p.fr.WriteData(1, true, []byte("x"))
		if err := first.ReadHead(&head); err != nil || head.Status != 200 {
			t.Errorf("the first request ended with %v", err)
		}
		if got, err := io.ReadAll(first.Body()); string(got) != "x" || err != nil {
			t.Errorf("its body was %q, %v", got, err)
		}
		<-k.Done()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestServerRefuses tells what was not processed from what may have been.
func TestServerRefuses(t *testing.T) {
	for code, not := range map[http2.ErrCode]bool{http2.ErrCodeRefusedStream: true, http2.ErrCodeInternal: false} {
		withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
			s, _ := k.Open(request("GET"), "https", "/", true)
			synctest.Wait()
			p.fr.WriteRSTStream(1, code)
			var head httpwire.Response
			if err := s.ReadHead(&head); h2conn.NotProcessed(err) != not || s.Err() != err {
				t.Errorf("after %s: %v", code, err)
			}
		})
	}
}

// TestFull counts the streams that the server allows.
func TestFull(t *testing.T) {
	withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
		p.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		synctest.Wait()
		s, err := k.Open(request("GET"), "https", "/", true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Open(request("GET"), "https", "/", true); !errors.Is(err, h2conn.ErrFull) || k.Usable() {
			t.Errorf("opening a second stream gave %v", err)
		}
		s.Reset(http2.ErrCodeCancel)
		if !k.Usable() || k.Streams() != 0 {
			t.Error("the first stream is left")
		}
		p.wantHeard("HEADERS 1 :method=GET :scheme=https :authority=h :path=/", "END 1", "RST 1 CANCEL")
	})
}

// TestMalformedResponses end their streams, and the reader hears why.
func TestMalformedResponses(t *testing.T) {
	for name, c := range map[string]struct {
		send func(p *peer)
		code codes.Code // of the head, or where that is good of the body
		body bool
	}{
		"no status":                 {func(p *peer) { p.headers(1, true, "a=b") }, codes.ProtocolError, false},
		"a line break in a value":   {func(p *peer) { p.reply(1, true, "a=b\nc: d") }, codes.HeaderInvalid, false},
		"a transfer-encoding":       {func(p *peer) { p.reply(1, false, "transfer-encoding=chunked") }, codes.FramingInvalid, false},
		"a head over the limit":     {func(p *peer) { p.reply(1, true, "a="+strings.Repeat("a", 20_000)) }, codes.HeadTooLarge, false},
		"an interim one at the end": {func(p *peer) { p.headers(1, true, ":status=103") }, codes.FramingInvalid, false},
		"a body that is too short": {func(p *peer) {
			p.reply(1, false, "content-length=5")
			p.fr.WriteData(1, true, []byte("abc"))
		}, codes.FramingInvalid, true},
		"a body that is too long": {func(p *peer) {
			p.reply(1, false, "content-length=5")
			p.fr.WriteData(1, false, []byte("abcdef"))
		}, codes.FramingInvalid, true},
		"a body where there is none": {func(p *peer) {
			p.headers(1, false, ":status=204")
			p.fr.WriteData(1, true, []byte("abc"))
		}, codes.FramingInvalid, true},
		"trailers that are none": {func(p *peer) {
			p.reply(1, false)
			p.headers(1, true, ":status=200")
		}, codes.ProtocolError, true},
		"a second head": {func(p *peer) {
			p.reply(1, false)
			p.reply(1, false)
		}, codes.ProtocolError, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := withClient(t, h2conn.Limits{Wire: httpwire.Limits{Head: 16 << 10}}, func(p *peer, k *h2conn.Client) {
				s, _ := k.Open(request("GET"), "https", "/", false)
				s.Flush()
				synctest.Wait()
				p.heard()
				c.send(p)
				p.wantHeard("RST 1 PROTOCOL_ERROR")
				var head httpwire.Response
				err := s.ReadHead(&head)
				if c.body && err == nil {
					_, err = io.ReadAll(s.Body())
				}
				wantRefusal(t, err, c.code)
				if k.Streams() != 0 {
					t.Error("a stream is left")
				}
				other, _ := k.Open(request("GET"), "https", "/", true)
				synctest.Wait()
				p.reply(3, true)
				if err := other.ReadHead(&head); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConnectionEndsInside tells the end of a body from the end of the
// connection.
func TestConnectionEndsInside(t *testing.T) {
	var s *h2conn.ClientStream
	err := withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
		s, _ = k.Open(request("GET"), "https", "/", true)
		synctest.Wait()
		p.reply(1, false)
		p.fr.WriteData(1, false, []byte("half"))
		synctest.Wait()
		p.nc.Close()
		synctest.Wait()
		var head httpwire.Response
		if err := s.ReadHead(&head); err != nil {
			t.Error("the head that came is lost", err)
		}
		_, err := io.ReadAll(s.Body())
		wantRefusal(t, err, codes.BodyTruncated)
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the connection ended with %v", err)
	}
}

// TestPushIsRefused, as it was never allowed.
func TestPushIsRefused(t *testing.T) {
	err := withClient(t, h2conn.Limits{}, func(p *peer, k *h2conn.Client) {
		s, _ := k.Open(request("GET"), "https", "/", true)
		synctest.Wait()
		p.fr.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true, BlockFragment: p.block(":method=GET")})
		var head httpwire.Response
		if err := s.ReadHead(&head); err == nil {
			t.Error("the stream goes on")
		}
	})
	wantConnError(t, err, codes.ProtocolError, http2.ErrCodeProtocol)
}

// TestStranger is somebody who does not speak HTTP/2.
func TestStranger(t *testing.T) {
	for name, says := range map[string]string{
		"HTTP/1.1":                  "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a preface and then a head": http2.ClientPreface + "\x00\x00\x00\x01\x05\x00\x00\x00\x01",
		"an acknowledgement first":  http2.ClientPreface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			err := withStranger(t, h2conn.Limits{}, drainBody, func(p *peer, _ *h2conn.Server) {
				p.raw([]byte(says))
				p.wantHeard("GOAWAY 0 PROTOCOL_ERROR")
			})
			wantConnError(t, err, codes.ProtocolError, http2.ErrCodeProtocol)
		})
	}
}

// TestLongHeads go in more than one frame, both ways.
func TestLongHeads(t *testing.T) {
	long := make([]byte, 20_000)
	rand.Read(long)
	value := fmt.Sprintf("%x", long)
	lim := h2conn.Limits{Wire: httpwire.Limits{Head: 128 << 10, Extra: 64 << 10}}
	t.Run("to another house", func(t *testing.T) {
		addr := serveH2(t, lim, func(s *h2conn.ServerStream) {
			q, _ := s.Head()
			v, _ := q.Fields.Get("x-long")
			s.WriteHead(status(200, "x-long", v), false)
			s.End(httpwire.Fields{{Name: "x-after", Value: v}})
		})
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://h/", nil)
		req.Header.Set("X-Long", value)
		resp, err := transport(t, addr).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.Header.Get("X-Long") != value || resp.Trailer.Get("X-After") != value {
			t.Error("what came back is something else")
		}
	})
	t.Run("from another house", func(t *testing.T) {
		addr := listen(t, func(nc net.Conn) {
			(&http2.Server{}).ServeConn(nc, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Long", r.Header.Get("X-Long"))
				w.Header().Set(http.TrailerPrefix+"X-After", r.Header.Get("X-Long"))
				w.Write([]byte("x"))
			})})
		})
		s, err := dialH2(t, addr, lim).Open(request("GET", "x-long", value), "https", "/", true)
		if err != nil {
			t.Fatal(err)
		}
		var p httpwire.Response
		if err := s.ReadHead(&p); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, s.Body())
		v, _ := p.Fields.Get("x-long")
		after, _ := s.Body().Trailers().Get("x-after")
		if v != value || after != value {
			t.Error("what came back is something else")
		}
	})
}

// TestHeadersGoWithTheBody counts the writes of a small answer.
func TestHeadersGoWithTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		counted := &countedConn{Conn: a}
		v := h2conn.NewServer(counted, h2conn.Limits{}, func(s *h2conn.ServerStream) {
			s.WriteHead(status(200), false)
			for range 10 {
				s.Write(bytes.Repeat([]byte("x"), 100))
			}
			s.End(nil)
		})
		go v.Serve()
		p := wire(t, b)
		go p.read()
		p.raw([]byte(http2.ClientPreface))
		p.fr.WriteSettings()
		synctest.Wait()
		before := counted.n
		p.ask(1, true)
		p.wantHeard("HEADERS 1 :status=200", "DATA 1", "END 1")
		if n := counted.n - before; n != 1 || p.received(1) != 1000 {
			t.Errorf("%d writes", n)
		}
		p.nc.Close()
		synctest.Wait()
	})
}

type countedConn struct {
	net.Conn
	n int
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.n++
	return c.Conn.Write(p)
}
