// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"bawn/internal/names"
)

// A dnsLine is one line of the dns section.
type dnsLine struct {
	name  names.Host
	addr  netip.Addr // valid, or
	alias names.Host // not zero, or
	fail  bool       // the server fails
}

func parseDNSLine(line string) (dnsLine, error) {
	words := strings.Fields(line)
	bad := fmt.Errorf("line %q is none of NAME ADDRESS, NAME CNAME NAME, NAME FAIL", line)
	if len(words) < 2 || len(words) > 3 {
		return dnsLine{}, bad
	}
	name, err := names.Parse(words[0])
	if err != nil {
		return dnsLine{}, err
	}
	d := dnsLine{name: name}
	switch {
	case len(words) == 3 && words[1] == "CNAME":
		d.alias, err = names.Parse(words[2])
		return d, err
	case len(words) == 2 && words[1] == "FAIL":
		d.fail = true
		return d, nil
	case len(words) == 2:
		if d.addr, err = netip.ParseAddr(words[1]); err == nil {
			return d, nil
		}
	}
	return dnsLine{}, bad
}

// publicAddress is what every name resolves to that a case says nothing of.
var publicAddress = netip.MustParseAddr("93.184.215.14")

// A pretendResolver answers from the dns section and keeps which names it was
// asked for.
type pretendResolver struct {
	lines []dnsLine

	mu    sync.Mutex
	asked []string
}

var errPretend = errors.New("the pretend resolver fails this name")

// Lookup answers as a resolver would that follows aliases itself.
func (r *pretendResolver) Lookup(_ context.Context, h names.Host) ([]netip.Addr, error) {
	r.mu.Lock()
	r.asked = append(r.asked, h.String())
	r.mu.Unlock()
	for range 8 { // the length of chain that the real client follows at most
		addrs, alias, err := r.look(h)
		if err != nil || alias.IsZero() {
			return addrs, err
		}
		h = alias
	}
	return nil, fmt.Errorf("resolving %s: too many aliases", h)
}

func (r *pretendResolver) look(h names.Host) (addrs []netip.Addr, alias names.Host, err error) {
	known := false
	for _, d := range r.lines {
		if d.name != h {
			continue
		}
		known = true
		switch {
		case d.fail:
			return nil, names.Host{}, errPretend
		case !d.alias.IsZero():
			return nil, d.alias, nil
		default:
			addrs = append(addrs, d.addr)
		}
	}
	if !known {
		addrs = []netip.Addr{publicAddress}
	}
	return addrs, names.Host{}, nil
}

// names lists what was asked for.
func (r *pretendResolver) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}
