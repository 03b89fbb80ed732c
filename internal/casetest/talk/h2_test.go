// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package talk_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"bawn/internal/casetest/talk"
)

func get(path string, more ...talk.Field) talk.Request {
	return talk.Request{Fields: append([]talk.Field{
		{":method", "GET"}, {":scheme", "http"}, {":authority", "ok.example"}, {":path", path},
	}, more...)}
}

// listen serves connections on the loopback until the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// nethttp is a server that nobody here wrote.
func nethttp(t *testing.T) string {
	t.Helper()
	ln := listen(t)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/no" {
				w.Header().Set("Bawn-Code", "path_not_allowed")
				w.WriteHeader(http.StatusForbidden)
			}
			w.Header().Set("X-Got", strconv.FormatInt(n, 10))
			io.WriteString(w, "got "+strconv.FormatInt(n, 10))
		}),
		Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

func dial(t *testing.T, to string) talk.Conn {
	t.Helper()
	c, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c.(*net.TCPConn)
}

func TestH2AgainstNetHTTP(t *testing.T) {
	to := nethttp(t)
	big := get("/big")
	big.Fields[0].Value, big.Body = "POST", bytes.Repeat([]byte("x"), 3<<20)
	report := talk.H2(dial(t, to), []talk.Request{
		get("/"), get("/no"), big, get("/", talk.Field{"Upper", "case"}), get("/last"),
	})
	want := []talk.Answer{
		{1, "200", "", "", true},
		{3, "403", "path_not_allowed", "", true},
		{5, "200", "", "", true},
		{7, "", "", "PROTOCOL_ERROR", false},
		{9, "200", "", "", true},
	}
	if len(report.Answers) != len(want) || report.Fault != "" {
		t.Fatalf("report %+v", report)
	}
	for i := range want {
		if report.Answers[i] != want[i] {
			t.Errorf("answer %d: %+v, want %+v", i, report.Answers[i], want[i])
		}
	}
	if report.Judged() != 4 {
		t.Errorf("%d judged", report.Judged())
	}
}

// recorded is what the client writes for some requests.
func recorded(t *testing.T, requests ...talk.Request) []byte {
	t.Helper()
	tee := &teeConn{Conn: dial(t, nethttp(t))}
	talk.H2(tee, requests)
	return tee.sent.Bytes()
}

type teeConn struct {
	talk.Conn
	sent bytes.Buffer
}

func (c *teeConn) Write(b []byte) (int, error) {
	c.sent.Write(b)
	return c.Conn.Write(b)
}

// TestH2Raw sends the same bytes again, and hears the same.
func TestH2Raw(t *testing.T) {
	raw := recorded(t, get("/"), get("/no"), get("/", talk.Field{"Upper", "case"}))
	report := talk.H2(dial(t, nethttp(t)), []talk.Request{{Raw: raw}})
	if len(report.Answers) != 3 || report.Answers[1].Code != "path_not_allowed" || report.Answers[2].Reset != "PROTOCOL_ERROR" {
		t.Errorf("report %+v", report)
	}
	report = talk.H2(dial(t, nethttp(t)), []talk.Request{{Raw: append(raw, "\x00\x00\x01\x03\x00\x00\x00\x00\x01x"...)}})
	if report.GoAway != "FRAME_SIZE_ERROR" && report.GoAway != "PROTOCOL_ERROR" {
		t.Errorf("a connection with a malformed frame: %+v", report)
	}
}

// TestServeH2 is asked by a client that nobody here wrote.
func TestServeH2(t *testing.T) {
	ln := listen(t)
	var kept []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		talk.ServeH2(c, c, talk.Server{
			Answer: []byte("HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Created\r\nX-A: b\r\n\r\nbody"),
			Keep:   func(raw []byte) { kept = append(kept, string(raw)) },
			Part:   func(raw []byte) { t.Errorf("part %q", raw) },
			Fault:  func(what string) { t.Error(what) },
		})
	}()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
	}}
	client := &http.Client{Transport: transport}
	for _, method := range []string{"POST", "HEAD"} {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://ok.example/a?b", strings.NewReader(map[string]string{"POST": "hello"}[method]))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", "x")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 201 || resp.Header.Get("X-A") != "b" || string(body) != map[string]string{"POST": "body"}[method] {
			t.Errorf("%s: %v %v %q", method, resp, err, body)
		}
	}
	transport.CloseIdleConnections()
	<-done
	want := ":authority: ok.example\r\n:method: POST\r\n:path: /a?b\r\n:scheme: http\r\n"
	if len(kept) != 2 || !strings.HasPrefix(kept[0], want) || !strings.Contains(kept[0], "\r\nuser-agent: x\r\n") || !strings.HasSuffix(kept[0], "\r\n\r\nhello") || !strings.HasPrefix(kept[1], ":authority: ok.example\r\n:method: HEAD\r\n") {
		t.Errorf("kept %q", kept)
	}
}

// TestServeH2ReadsBack: from the bytes that a client sent, what it asked for can
// be told without a connection.
func TestServeH2ReadsBack(t *testing.T) {
	post := get("/up", talk.Field{"a", "b"})
	post.Fields[0].Value, post.Body = "POST", []byte("hello")
	raw := recorded(t, get("/"), post)
	var kept, parts, faults []string
	read := func(raw []byte) {
		kept, parts, faults = nil, nil, nil
		talk.ServeH2(bytes.NewReader(raw), io.Discard, talk.Server{
			Keep:  func(raw []byte) { kept = append(kept, string(raw)) },
			Part:  func(raw []byte) { parts = append(parts, string(raw)) },
			Fault: func(what string) { faults = append(faults, what) },
		})
	}
	read(raw)
	if len(kept) != 2 || kept[1] != ":method: POST\r\n:scheme: http\r\n:authority: ok.example\r\n:path: /up\r\na: b\r\n\r\nhello" || len(faults) > 0 {
		t.Errorf("kept %q, faults %q", kept, faults)
	}
	at := bytes.Index(raw, []byte("hello"))
	if read(raw[:at-9]); len(kept) != 1 || len(parts) != 1 || len(faults) > 0 {
		t.Errorf("cut short: kept %q, parts %q, faults %q", kept, parts, faults)
	}
	if read([]byte("GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n")); len(faults) != 1 {
		t.Errorf("no HTTP/2: faults %q", faults)
	}
	if read(append(raw, "\x00\x00\x01\x00\x00\x00\x00\x00\x63x"...)); len(faults) != 1 {
		t.Errorf("DATA of no stream: faults %q", faults)
	}
	if read(append(raw, "\x00\x00\x01\x01\x05\x00\x00\x00\x07\x82"...)); len(faults) != 3 {
		t.Errorf("a head without a path: faults %q", faults)
	}
}
