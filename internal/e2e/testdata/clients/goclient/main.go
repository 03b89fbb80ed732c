// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command goclient gets one address with net/http and prints what comes as it
// comes: goclient VERSION ADDRESS, where VERSION is the one of HTTP that must be
// spoken. For HTTP/2 the client is as it comes; for HTTP/1.1, HTTP/2 is left
// out, as its manual says.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
)

func main() {
	if os.Args[1] == "-version" {
		fmt.Println(runtime.Version())
		return
	}
	if err := get(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func get(version, address string) error {
	if t, ok := http.DefaultTransport.(*http.Transport); ok && version == "HTTP/1.1" {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	res, err := http.Get(address)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.Proto != version {
		return fmt.Errorf("spoke %s, want %s", res.Proto, version)
	}
	_, err = io.Copy(os.Stdout, res.Body)
	return err
}
