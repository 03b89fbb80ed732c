// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnsclient

import (
	"context"
	"net/netip"
	"sync"

	"bawn/internal/dnswire"
	"bawn/internal/names"
)

// checked is a name that cannot exist (RFC 6761): resolvers answer for it by
// themselves.
const checked = "resolver-check.bawn.invalid"

// A Health is how one server did.
type Health struct {
	Server netip.AddrPort
	Err    error // nil: it answers
}

// Check asks every server, each by itself, for a name that cannot exist. That
// it does not is an answer.
func (c *Client) Check(ctx context.Context) []Health {
	list := make([]Health, len(c.opt.Servers))
	h, err := names.Parse(checked)
	var all sync.WaitGroup
	for i, server := range c.opt.Servers {
		list[i] = Health{Server: server, Err: err}
		if err != nil {
			continue
		}
		all.Go(func() { _, list[i].Err = c.exchange(ctx, server, h, dnswire.TypeA) })
	}
	all.Wait()
	return list
}
