// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"bawn/internal/probe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

func TestOnlyARefusalHasACode(t *testing.T) {
	for head, want := range map[string]string{
		"HTTP/1.1 403 Forbidden\r\nBawn-Code: host_not_allowed\r\n\r\n":               "host_not_allowed",
		"HTTP/1.1 403 Forbidden\r\nX: y\r\nbawn-code:   policy_unavailable  \r\n\r\n": "policy_unavailable",
		"HTTP/1.1 503 x\r\nBawn-Code: lease_lapsed\r\n\r\n":                           "lease_lapsed",
		"HTTP/1.1 200 OK\r\nBawn-Code: host_not_allowed\r\n\r\n":                      "",
		"HTTP/1.1 403 Forbidden\r\n\r\nBawn-Code: in_the_body":                        "",
		"HTTP/1.1 403 Forbidden\nBawn-Code: bare_newline\n\n":                         "",
		"SSH-2.0-x\r\nBawn-Code: x\r\n":                                               "",
		"Bawn-Code: x\r\n\r\n":                                                        "",
		"HTTP/1.1\r\nBawn-Code: x\r\n\r\n":                                            "",
		"HTTP/1.1 9z9\r\nBawn-Code: x\r\n\r\n":                                        "",
		"":                                                                            "",
	} {
		if _, got := probe.ParseHead([]byte(head)); got != want {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 403 Forbidden\r\nBawn-Code: host_not_allowed\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 403 Forbidden\r\nBawn-Code: a\r\n\r\nBawn-Code: b\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		status, code := probe.ParseHead(head)
		if code == "" {
			return
		}
		if status < 400 {
			t.Errorf("a code with status %d", status)
		}
		// Oracle: where net/http reads a response, it reads the same code.
		r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), nil)
		if err != nil {
			return
		}
		r.Body.Close()
		if got := fmt.Sprint(r.Header.Values("Bawn-Code")); !strings.Contains(got, code) || r.StatusCode != status {
			t.Errorf("%d %q, net/http reads %d %s", status, code, r.StatusCode, got)
		}
	})
}

func TestResolversOfResolvConf(t *testing.T) {
	got := fmt.Sprint(probe.Nameservers(strings.NewReader("# nameserver 9.9.9.9\nnameserver 192.0.2.1 x\n nameserver fe80::1%eth0\nnameserver\nnameserver x\nsearch y\n")))
	if got != "[192.0.2.1 fe80::1]" {
		t.Error(got)
	}
}

func TestListeningAbstractSockets(t *testing.T) {
	got := probe.AbstractNames(strings.NewReader(`Num       RefCount Protocol Flags    Type St Inode Path
000000001e7e9347: 00000002 00000000 00010000 0001 01 540430 @/tmp/.X11-unix/X0
000000001e7e9348: 00000003 00000000 00000000 0001 03 540431 @connected
000000001e7e9349: 00000002 00000000 00010000 0001 01 540432 /run/x.sock
000000001e7e9350: 00000002 00000000 00010000 0001 01 540433
x
`))
	if diff := cmp.Diff([]string{"/tmp/.X11-unix/X0"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheQuestionIsOne(t *testing.T) {
	var m dnsmessage.Message
	if err := m.Unpack(probe.Question("canary.bawn.invalid")); err != nil || len(m.Questions) != 1 || m.Questions[0].Name.String() != "canary.bawn.invalid." {
		t.Errorf("%v %+v", err, m)
	}
	if probe.Question(strings.Repeat("x", 300)) != nil {
		t.Error("an impossible name was asked")
	}
}

func FuzzCodeOf(f *testing.F) {
	f.Add([]byte("\x00\x12host_not_allowed: ask"), uint16(15))
	f.Add([]byte("\x00"), uint16(15))
	f.Add([]byte("\x00\x00\x1b[2J"), uint16(10))
	f.Fuzz(func(t *testing.T, data []byte, option uint16) {
		m := dnsmessage.Message{Additionals: []dnsmessage.Resource{{Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: option, Data: data}}}}}}
		code := probe.CodeOf(m)
		// Oracle: a code's characters, the beginning of an extended error's text, and of no other option.
		if strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || code != "" && (option != 15 || !bytes.HasPrefix(data[2:], []byte(code))) {
			t.Errorf("%q of %q, option %d", code, data, option)
		}
	})
}

// TestPlantedSocketsDoNotHideWhatIsLaidOut: an agent in placement uid can make as
// many abstract sockets as it likes, under names that come first.
func TestPlantedSocketsDoNotHideWhatIsLaidOut(t *testing.T) {
	var seen []string
	for i := range 1000 {
		seen = append(seen, fmt.Sprintf("!%03d", i))
	}
	got := probe.AbstractChoice([]string{"lure"}, append(seen, "lure", "lure"))
	if !slices.Contains(got, "lure") || len(got) != 64 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 64 {
		t.Errorf("%d are tried: %v", len(got), got)
	}
}
