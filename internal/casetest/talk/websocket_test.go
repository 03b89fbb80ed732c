// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package talk_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"bawn/internal/casetest/talk"
	"bawn/internal/httpwire"
)

const key = "dGhlIHNhbXBsZSBub25jZQ=="

const handshake = "GET /chat HTTP/1.1\r\nHost: ok.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + "\r\n"

// echoes is a server that nobody here wrote. It sends each message back and
// keeps it.
func echoes(t *testing.T, got chan<- string) string {
	t.Helper()
	ln := listen(t)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionNoContextTakeover, CompressionThreshold: 1})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, data, err := c.Read(context.Background())
			if err != nil {
				got <- websocket.CloseStatus(err).String()
				return
			}
			got <- string(data)
			if err := c.Write(context.Background(), kind, data); err != nil {
				return
			}
		}
	})}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

func TestWebSocketAgainstAnotherServer(t *testing.T) {
	for name, offer := range map[string]string{"plain": "", "compressed": "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n"} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 8)
			c := dial(t, echoes(t, got))
			io.WriteString(c, handshake+offer+"\r\n")
			r := bufio.NewReader(c)
			p, err := httpwire.ReadResponse(r, "GET", httpwire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			agreed, err := talk.Upgraded(p, key)
			if err != nil || agreed.Deflate != (offer != "") {
				t.Fatalf("agreed on %+v, %v", agreed, err)
			}
			masked := "\x81\x83\x00\x00\x00\x00raw"
			bye := talk.WebSocket(c, r, agreed, []talk.Frame{{Message: `{"a":1}`}, {Raw: []byte(masked)}, {Message: strings.Repeat("long ", 1000)}})
			if bye.Status != 1000 || bye.Fault != "" {
				t.Errorf("farewell %+v", bye)
			}
			for _, want := range []string{`{"a":1}`, "raw", strings.Repeat("long ", 1000), "StatusNormalClosure"} {
				if have := <-got; have != want {
					t.Errorf("the server got %.40q, want %.40q", have, want)
				}
			}
		})
	}
}

func TestWebSocketThatBreaksTheRules(t *testing.T) {
	got := make(chan string, 8)
	c := dial(t, echoes(t, got))
	io.WriteString(c, handshake+"\r\n")
	r := bufio.NewReader(c)
	p, err := httpwire.ReadResponse(r, "GET", httpwire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	agreed, err := talk.Upgraded(p, key)
	if err != nil {
		t.Fatal(err)
	}
	if bye := talk.WebSocket(c, r, agreed, []talk.Frame{{Raw: []byte("\x83\x80\x00\x00\x00\x00")}}); bye.Status != 1002 {
		t.Errorf("farewell %+v", bye)
	}
	if _, err := talk.Upgraded(p, "another"); err == nil {
		t.Error("an accept value for another key was taken")
	}
}

// TestServeWebSocket is asked by a client that nobody here wrote, and reads back
// from the bytes alone what it was sent.
func TestServeWebSocket(t *testing.T) {
	ln := listen(t)
	var live, back []string
	var sent bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		head, err := readHead(r)
		if err != nil {
			t.Error(err)
			return
		}
		k, ok := talk.IsUpgrade([]byte(head))
		if !ok {
			t.Errorf("no upgrade: %q", head)
		}
		answer, deflate := talk.Switch([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n\r\n"), k)
		c.Write(answer)
		talk.ServeWebSocket(bufio.NewReader(io.TeeReader(r, &sent)), c, deflate, server(t, &live))
	}()
	c, _, err := websocket.Dial(t.Context(), "ws://ok.example/", &websocket.DialOptions{
		CompressionMode: websocket.CompressionNoContextTakeover, CompressionThreshold: 1,
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Write(t.Context(), websocket.MessageText, []byte(`{"a":1}`))
	c.Write(t.Context(), websocket.MessageText, []byte("two\nlines"))
	c.Write(t.Context(), websocket.MessageBinary, []byte("\x00"))
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	<-done
	talk.ServeWebSocket(bufio.NewReader(&sent), io.Discard, true, server(t, &back))
	want := []string{`{"a":1}`, `text "two\nlines"`, `binary "\x00"`}
	if !slices.Equal(live, want) || !slices.Equal(back, want) {
		t.Errorf("got %q, read back %q", live, back)
	}
}

func server(t *testing.T, got *[]string) talk.WebSocketServer {
	return talk.WebSocketServer{
		Keep:  func(m talk.Message) { *got = append(*got, m.Notation()) },
		Fault: func(what string) { t.Error(what) },
	}
}

func readHead(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for !strings.HasSuffix(b.String(), "\r\n\r\n") {
		c, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

func TestSwitch(t *testing.T) {
	for in, want := range map[string]string{
		"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n":                                "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
		"HTTP/1.1 101 X\r\nsec-websocket-accept: other\r\nUpgrade: websocket\r\n\r\n": "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
	} {
		if got, _ := talk.Switch([]byte(in), key); string(got) != want {
			t.Errorf("%q became %q", in, got)
		}
	}
	if got, _ := talk.Switch([]byte("HTTP/1.1 101 X\r\nSec-WebSocket-Accept: wrong\r\n\r\n"), key); strings.Contains(string(got), "s3pPLMBiTxaQ9kYGzzhZRbK") {
		t.Errorf("a wrong answer became %q", got)
	}
	if _, ok := talk.IsUpgrade([]byte("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n")); ok {
		t.Error("an upgrade that Connection does not name")
	}
}
