// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"io"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// ParseHead is parseHead.
func ParseHead(head []byte) (status int, code string) { return parseHead(head) }

// Nameservers is nameservers.
func Nameservers(r io.Reader) []netip.Addr { return nameservers(r) }

// AbstractNames is abstractNames.
func AbstractNames(r io.Reader) []string { return abstractNames(r) }

// AbstractChoice is abstractChoice.
func AbstractChoice(given, seen []string) []string { return abstractChoice(given, seen) }

// Question is question.
func Question(name string) []byte { return question(name) }

// CodeOf is codeOf.
func CodeOf(m dnsmessage.Message) string { return codeOf(m) }
