// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/httpwire"
	"bawn/internal/ids"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// heard is a guard that asks for the body and remembers it.
type heard struct{ body []byte }

func (*heard) Head(*guard.Request) guard.Verdict { return guard.Verdict{Answer: guard.NeedBody} }

func (h *heard) Body(r *guard.Request) guard.Verdict {
	h.body = r.Body
	if bytes.Contains(r.Body, []byte("evil")) {
		return guard.Refuse(codes.FieldNotAllowed, "evil")
	}
	return guard.Verdict{Answer: guard.Allow}
}

type noPolicies struct{}

func (noPolicies) Current() (*policy.Policy, uint64, verdict.Verdict) {
	return nil, 0, verdict.Verdict{}
}
func (noPolicies) Changed() <-chan struct{} { return nil }

type noRecorder struct{}

func (noRecorder) Decide(*audit.Decision) error { return nil }
func (noRecorder) Outcome(*audit.Outcome) error { return nil }
func (noRecorder) Dial(*audit.Dial) error       { return nil }
func (noRecorder) SyncNow() error               { return nil }

func zipped(clear string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	io.WriteString(z, clear)
	z.Close()
	return b.String()
}

// TestGuardReadsBody: a guard that asks for the body sees all of it, or the
// request is refused; what goes up is what it saw.
func TestGuardReadsBody(t *testing.T) {
	const start = "POST / HTTP/1.1\r\nHost: h\r\n"
	for name, c := range map[string]struct {
		in   string
		code codes.Code
		body string
		up   string // the framing that goes up
	}{
		"by length":        {start + "Content-Length: 5\r\n\r\nhello", "", "hello", "Content-Length: 5"},
		"chunked":          {start + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "", "hello", "Content-Length: 5"},
		"empty":            {start + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", "", "Content-Length: 0"},
		"over two parts":   {start + "Transfer-Encoding: chunked\r\n\r\n2\r\nev\r\n2\r\nil\r\n0\r\n\r\n", codes.FieldNotAllowed, "evil", ""},
		"too long":         {start + "Content-Length: 41\r\n\r\nhello world", codes.BodyTooLarge, "", ""},
		"too many parts":   {start + "Transfer-Encoding: chunked\r\n\r\n29\r\n" + strings.Repeat("hello wo ", 5)[:41] + "\r\n0\r\n\r\n", codes.BodyTooLarge, "", ""},
		"compressed badly": {start + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", codes.BodyUndecodable, "", ""},
		"compressed": {start + "Content-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(len(zipped("hello"))) + "\r\n\r\n" + zipped("hello"),
			"", "hello", "Content-Length: " + strconv.Itoa(len(zipped("hello")))},
		"compressed in parts": {start + "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n%s\r\n1\r\n%s\r\n0\r\n\r\n", len(zipped("evil"))-1, zipped("evil")[:len(zipped("evil"))-1], zipped("evil")[len(zipped("evil"))-1:]),
			codes.FieldNotAllowed, "evil", ""},
		"compressed, and too long": {start + "Content-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(len(zipped(strings.Repeat("o", 100)))) + "\r\n\r\n" + zipped(strings.Repeat("o", 100)),
			codes.BodyTooLarge, "", ""},
		"cut short": {start + "Content-Length: 5\r\n\r\nhell", codes.BodyTruncated, "", ""},
		"asked for": {start + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", "", "hello", "Content-Length: 5"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Policies: noPolicies{}, Recorder: noRecorder{}, Limits: Limits{GuardBody: 40}})
			near, far := net.Pipe()
			defer near.Close()
			go io.Copy(io.Discard, far)
			conn := s.newConn(t.Context(), near, Source{}, s.enterTenant(ids.Identity{}), func() {})
			defer s.live.remove(conn.flow)
			conn.r = bufio.NewReader(strings.NewReader(c.in))
			x := &conn.x
			if err := x.q.Read(conn.r, httpwire.Limits{}); err != nil {
				t.Fatal(err)
			}
			x.begin()
			var h heard
			x.d.Guards = guard.Chain{{Name: "heard", Guard: &h}}
			if v := x.guards(); v.Code != c.code || v.Allowed() != (c.code == "") {
				t.Fatalf("got %+v, want code %q", v, c.code)
			}
			if string(h.body) != c.body {
				t.Errorf("the guard saw %q, want %q", h.body, c.body)
			}
			up := string(httpwire.AppendRequest(nil, &x.q, "/"))
			if c.up != "" && (!strings.Contains(up, "\r\n"+c.up+"\r\n") || strings.Contains(up, "chunked") || strings.Contains(up, "Expect")) {
				t.Errorf("goes up as %q", up)
			}
		})
	}
}
