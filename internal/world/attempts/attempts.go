// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attempts holds ways in which a program may try to carry data out of
// its place. Tests run them with and without Bawn; the demonstration shows
// some of them. Each is a few lines of Python, run by the system's own
// interpreter, so that the very same bytes are tried everywhere.
package attempts

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"bawn/internal/world"
)

//go:embed attempts.py
var script string

// A Result is what came of one attempt, as far as the program that tried can
// tell. Whether anything arrived is for the attacker's own count.
type Result struct {
	Attempt string `json:"attempt"`
	Tried   string `json:"tried"` // what the attempt is
	What    string `json:"what"`  // what happened
	Code    string `json:"code"`  // the code of the refusal, if the program was told one
}

// Direct are the attempts that need no proxy; without Bawn each of those that
// [Reaching] lists arrives at the attacker, the LAN or the metadata address.
func Direct() []string {
	return []string{
		"dns_tunnel", "dns_libc", "dns_direct", "tcp", "tcp_tls", "udp", "icmp", "ipv6", "udp6",
		"metadata", "lan", "raw_ip", "packet_socket", "sctp",
	}
}

// Reaching are the direct attempts that need no right beyond a user's.
func Reaching() []string {
	return []string{"dns_tunnel", "dns_libc", "dns_direct", "tcp", "tcp_tls", "udp", "icmp", "ipv6", "udp6", "metadata", "lan"}
}

// Proxied are the attempts by way of the proxy that the environment names.
func Proxied() []string {
	return []string{
		"name", "ip_literal", "other_port", "sni_front", "host_front", "plain",
		"metadata_proxy", "metadata_name", "redirect",
	}
}

// All are all attempts.
func All() []string { return append(Direct(), Proxied()...) }

// Argv is the command that tries each of names in turn and prints one line
// each, for [Parse].
func Argv(names ...string) []string {
	n := world.AllNames()
	places := strings.Join([]string{
		n.Evil, world.AttackerAddr, world.AttackerAddr6, n.API, n.Meta, world.MetadataAddr, world.LANAddr,
	}, ",")
	return append([]string{"/usr/bin/python3", "-c", script, places}, names...)
}

// Parse reads what the command printed. Lines of anybody else are left out.
func Parse(output string) ([]Result, error) {
	var out []Result
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, `{"attempt"`) {
			continue
		}
		var r Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return out, fmt.Errorf("reading result %q: %w", line, err)
		}
		out = append(out, r)
	}
	return out, nil
}
