// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"bawn/internal/netplan"
)

// TestI5AnAnswerAheadOfItsRequestIsNoAnswer: a server that sends one response
// more than it was asked for, in one segment, answers nothing with it.
func TestI5AnAnswerAheadOfItsRequestIsNoAnswer(t *testing.T) {
	r := newRig(t, basic)
	r.script(apiHost, apiAddr, 443, func(c net.Conn, br *bufio.Reader) {
		for readHead(br) != "" {
			cork(t, c, 1) // two records of TLS, one segment
			for _, body := range []string{"asked", "ahead"} {
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%s", body)
			}
			cork(t, c, 0)
		}
	})
	client := r.client(r.listen(netplan.Explicit))
	for i := range 3 {
		res, err := client.Get("https://" + apiHost + "/v1/x")
		must(t, err)
		body, err := io.ReadAll(res.Body)
		must(t, err)
		res.Body.Close()
		if string(body) != "asked" {
			t.Errorf("request %d was answered with %q", i, body)
		}
		r.journal.lastOutcome(t, i+1)
	}
	if r.net.dials() != 3 {
		t.Errorf("dialled %d times, want 3", r.net.dials())
	}
}

// cork keeps what is written to c from being sent, or sends it.
func cork(t *testing.T, c net.Conn, on int) {
	raw, err := c.(*tls.Conn).NetConn().(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, on) })
	}
	if err != nil {
		t.Error(err)
	}
}
