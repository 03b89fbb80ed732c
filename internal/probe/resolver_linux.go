// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// otherResolvers are the configured ones and those that resolv.conf names, but
// for Bawn's own.
func (p *prober) otherResolvers() []netip.Addr {
	list := slices.Clone(p.DNS)
	if f, err := os.Open("/etc/resolv.conf"); err == nil {
		defer f.Close()
		list = append(list, nameservers(f)...)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(a netip.Addr) bool { return slices.Contains(p.Nameservers, a) })
}

// nameservers reads the addresses out of a resolv.conf.
func nameservers(r io.Reader) (list []netip.Addr) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			list = append(list, a.WithZone(""))
		}
	}
	return list
}

// The extended error's option (RFC 8914).
const extendedError = 15

// question is a query for the canary's address, with room for an extended
// error.
func question(name string) []byte {
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 0xba3f, RecursionDesired: true}}
	n, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err != nil {
		return nil
	}
	q.Questions = []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
	var opt dnsmessage.ResourceHeader
	if opt.SetEDNS0(1232, dnsmessage.RCodeSuccess, false) == nil {
		q.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}}
	}
	b, err := q.Pack()
	if err != nil {
		return nil
	}
	return b
}

// codeOf reads Bawn's code out of an extended error: its text up to the first
// character that no code has.
func codeOf(m dnsmessage.Message) string {
	for _, r := range m.Additionals {
		opt, ok := r.Body.(*dnsmessage.OPTResource)
		if !ok {
			continue
		}
		for _, o := range opt.Options {
			if o.Code != extendedError || len(o.Data) < 2 {
				continue
			}
			text := string(o.Data[2:])
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }); i >= 0 {
				text = text[:i]
			}
			return text
		}
	}
	return ""
}

// ask asks a resolver for the canary. Bawn's own must refuse; any other must
// not answer at all, not even that there is no such name.
func (p *prober) ask(check Check, network string, server netip.Addr) trial {
	return func(ctx context.Context) Try {
		to := netip.AddrPortFrom(server, 53).String()
		t := Try{Check: check, Target: "dns " + network + " " + to, Outcome: Blocked}
		c, err := dial(ctx, network, to)
		if err != nil {
			t.Detail, t.Silent = reason(err), silent(err)
			return t
		}
		defer c.Close()
		answer, err := lookUp(c, network, question(p.Canary))
		if err != nil {
			t.Detail, t.Silent = reason(err), silent(err)
			return t
		}
		t.Outcome, t.Detail = GotOut, "an answer"
		var m dnsmessage.Message
		if m.Unpack(answer) == nil {
			t.Detail = m.RCode.GoString()
			if check == CheckResolver && m.RCode == dnsmessage.RCodeRefused && len(m.Answers) == 0 {
				t.Outcome, t.Code = Answered, codeOf(m)
			}
		}
		return t
	}
}

// lookUp sends a query and reads one message.
func lookUp(c net.Conn, network string, query []byte) ([]byte, error) {
	if network == "udp" {
		answer := make([]byte, 4096)
		if _, err := c.Write(query); err != nil {
			return nil, err
		}
		n, err := c.Read(answer)
		return answer[:n], err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, fmt.Errorf("cut: %w", err)
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(c, answer)
	return answer, err
}
