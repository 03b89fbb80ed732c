// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command goclient gets one address with net/http as it comes.
package main

import (
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
	res, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer res.Body.Close()
	if _, err := io.Copy(os.Stdout, res.Body); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
