// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"

	"golang.org/x/net/dns/dnsmessage"
)

// serveDNS answers queries for the upstream's IPv4 address, and that other
// types have no records.
func serveDNS(pc net.PacketConn) {
	address := [4]byte(net.ParseIP(originAddr).To4())
	buf := make([]byte, 512)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.Authoritative, m.RecursionAvailable = true, true, true
		m.Additionals = nil
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 3600},
				Body:   &dnsmessage.AResource{A: address},
			}}
		}
		if out, err := m.Pack(); err == nil {
			pc.WriteTo(out, from)
		}
	}
}
