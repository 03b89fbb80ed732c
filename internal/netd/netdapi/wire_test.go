// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netdapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/netd/netdapi"
)

// pair returns the two ends of one netd.sock connection.
func pair(t *testing.T) (client, server *netdapi.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netd.sock")
	ln, err := net.Listen("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, server = netdapi.NewConn(c.(*net.UnixConn)), netdapi.NewConn(s.(*net.UnixConn))
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestDecodeRefusesWhatStructDecodersOverlook(t *testing.T) {
	for name, in := range map[string]string{
		"unknown key":          `{"id":1,"verb":"status","user":"root"}`,
		"key in another case":  `{"ID":1,"verb":"status"}`,
		"key that folds":       "{\"id\":1,\"ver\u212a\":\"status\"}",
		"doubled key":          `{"id":1,"verb":"status","verb":"start"}`,
		"doubled key below":    `{"id":1,"verb":"start","args":{"a":{"uid":1,"uid":2}}}`,
		"trailing value":       `{"id":1,"verb":"status"}{}`,
		"trailing bytes":       `{"id":1,"verb":"status"} x`,
		"array":                `[{"id":1}]`,
		"nothing":              ``,
		"null":                 `null`,
		"cut off":              `{"id":1,`,
		"negative id":          `{"id":-1,"verb":"status"}`,
		"nested without bound": `{"args":` + strings.Repeat(`{"a":`, 50) + `1` + strings.Repeat(`}`, 51),
		"arrays without bound": `{"args":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			var r netdapi.Request
			if err := netdapi.Decode([]byte(in), &r); err == nil {
				t.Errorf("accepted as %+v", r)
			}
		})
	}
}

func TestDecodeReadsARequest(t *testing.T) {
	var r netdapi.Request
	if err := netdapi.Decode([]byte(`{"id":7,"verb":"dial","args":{"session":"s-1","port":8080}}`), &r); err != nil {
		t.Fatal(err)
	}
	var d netdapi.DialArgs
	if err := netdapi.Decode(r.Args, &d); err != nil {
		t.Fatal(err)
	}
	if r.ID != 7 || r.Verb != netdapi.VerbDial || d.Session != "s-1" || d.Port != 8080 {
		t.Errorf("read %+v with %+v", r, d)
	}
}

func TestPacketsCarryDescriptors(t *testing.T) {
	client, server := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := client.Send(netdapi.Request{ID: 1, Verb: netdapi.VerbStart}, w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got netdapi.Request
	files, err := server.Receive(&got)
	if err != nil || len(files) != 1 {
		t.Fatalf("received %d descriptors, %v", len(files), err)
	}
	files[0].WriteString("through")
	files[0].Close()
	text, _ := io.ReadAll(r)
	if string(text) != "through" {
		t.Errorf("read %q", text)
	}
}

func TestReceiveBoundsPackets(t *testing.T) {
	client, server := pair(t)
	big := netdapi.Request{ID: 1, Verb: netdapi.VerbStart, Args: json.RawMessage(`"` + strings.Repeat("x", netdapi.MaxPacket) + `"`)}
	if err := client.Send(big); err == nil {
		t.Error("Send took a packet above the bound")
	}
	// A peer that does not keep to the bound.
	client.Unwrap().SetWriteBuffer(1 << 20)
	raw := bytes.Repeat([]byte(" "), netdapi.MaxPacket+100)
	copy(raw, `{"id":1,"verb":"status"}`)
	if _, err := client.Unwrap().Write(raw); err != nil {
		t.Skipf("the kernel does not take such a packet: %v", err)
	}
	var r netdapi.Request
	if _, err := server.Receive(&r); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Receive of an oversized packet: %v", err)
	}
}

func TestLargestPacketGoesThrough(t *testing.T) {
	client, server := pair(t)
	arg := `{"argv":["` + strings.Repeat("x", 256<<10) + `"]}`
	if err := client.Send(netdapi.Request{ID: 1, Verb: netdapi.VerbStart, Args: json.RawMessage(arg)}); err != nil {
		t.Fatal(err)
	}
	var r netdapi.Request
	if _, err := server.Receive(&r); err != nil || len(r.Args) != len(arg) {
		t.Fatalf("received %d bytes, %v", len(r.Args), err)
	}
}

// FuzzDecode: whatever Decode accepts means the same to a generic decoder and
// survives a round trip.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"identity":{"slot":1,"gen":"1.2","session":"s","agent":"a","user":"u"},"placement":"netns","uid":1900000000,"argv":["ls"],"work":{"fd":0,"path":"/w","owner_uid":0},"limits":{"pids":5}}`))
	f.Add([]byte(`{"uid":1,"uid":2}`))
	f.Add([]byte(`{"UID":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first netdapi.StartSpec
		if netdapi.Decode(data, &first) != nil {
			return
		}
		var generic map[string]any
		if err := json.Unmarshal(data, &generic); err != nil {
			t.Fatalf("a generic decoder refuses what was accepted: %v", err)
		}
		if uid, ok := generic["uid"].(float64); ok && uid != float64(first.UID) {
			t.Fatalf("uid %v read as %d", uid, first.UID)
		}
		out, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		var second netdapi.StartSpec
		if err := netdapi.Decode(out, &second); err != nil {
			t.Fatalf("own output refused: %v", err)
		}
		again, _ := json.Marshal(second)
		if !bytes.Equal(out, again) {
			t.Fatalf("round trip: %s, then %s", out, again)
		}
	})
}
