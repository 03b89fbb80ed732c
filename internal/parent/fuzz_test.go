// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzAnswer reads what a parent says, and has net/http read it as well: a
// tunnel begins behind a head whose status line both take for one of success.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\n\r\nhello", "HTTP/1.0 200\r\n\r\n", "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 299 X\nA: b\n\nx",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReader(bytes.NewReader(text))
		if readAnswer(r, false) != nil {
			return
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		// The last head: interim ones end in an empty line each.
		head := strings.TrimSuffix(string(text[:len(text)-len(rest)]), "\r\n\r\n")
		if i := strings.LastIndex(head, "\r\n\r\n"); i >= 0 {
			head = head[i+4:]
		}
		// Fields that are malformed are left out, as they are by the reader.
		line, _, _ := strings.Cut(strings.TrimLeft(head, "\r\n"), "\r\n")
		a, err := http.ReadResponse(bufio.NewReader(strings.NewReader(line+"\r\n\r\n")), &http.Request{Method: "CONNECT"})
		if err != nil || a.StatusCode/100 != 2 {
			t.Errorf("a tunnel behind %q, of which net/http says %v, %v", head, a, err)
		}
	})
}
