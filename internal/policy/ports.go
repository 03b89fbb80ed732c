// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// A Port is one entry of a rule's ports.
type Port struct {
	Number uint16
	Plain  bool // HTTP without TLS; otherwise TLS, or any TCP where nothing is inspected
}

// String gives the canonical form: "443", "80", "8080/http".
func (p Port) String() string {
	s := strconv.Itoa(int(p.Number))
	if p.Plain && p.Number != 80 {
		return s + "/http"
	}
	return s
}

// parsePort reads an entry that fits portPattern.
func parsePort(s string) (Port, error) {
	number, suffix, _ := strings.Cut(s, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return Port{}, fmt.Errorf("port %s: not from 1 to 65535", show(s))
	}
	if n == 80 && suffix == "tcp" {
		return Port{}, fmt.Errorf("port 80/tcp: port 80 is always HTTP without TLS")
	}
	return Port{Number: uint16(n), Plain: n == 80 || suffix == "http"}, nil
}
