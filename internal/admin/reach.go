// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"bawn/internal/apitype"
	"bawn/internal/lease"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
)

// reachOf is what the kernel must let the proxy connect to under the policy of
// each of snaps. A policy that cannot be compiled lets nothing through, and so
// needs nothing.
func (s *Server) reachOf(snaps ...apitype.Snapshot) netdapi.Reach {
	var r netdapi.Reach
	for _, n := range s.resolvers {
		r.Resolvers = append(r.Resolvers, netip.AddrPortFrom(n.Addr().WithZone(""), n.Port()))
	}
	r.Parents = s.parents()
	for _, snap := range snaps {
		if p, err := lease.Compile(snap); err == nil {
			r.Private = append(r.Private, p.Private()...)
		}
	}
	slices.SortFunc(r.Private, netip.Prefix.Compare)
	r.Private = slices.Compact(r.Private)
	return r
}

// parents are where the parent proxy can be besides at a public address.
func (s *Server) parents() []netplan.Service {
	p, ok := s.o.Config.Parent()
	if !ok {
		return nil
	}
	var list []netplan.Service
	if p.Addr.IsValid() {
		list = append(list, netplan.Service{Prefix: netip.PrefixFrom(p.Addr, p.Addr.BitLen()), Port: p.Port})
	}
	for _, r := range p.Addresses {
		list = append(list, netplan.Service{Prefix: r, Port: p.Port})
	}
	return list
}

// widen opens the kernel's bounds for what is in force and for next; narrow
// closes them to what is in force, once no plane judges by anything else.
func (s *Server) widen(ctx context.Context, next apitype.Snapshot) error {
	return s.reach(ctx, s.reachOf(s.planes.snapshot(), next))
}

func (s *Server) narrow(ctx context.Context) error {
	return s.reach(ctx, s.reachOf(s.planes.snapshot()))
}

// reach tells netd. Without a netd there is no agent, and the next one is told
// when it connects.
func (s *Server) reach(ctx context.Context, r netdapi.Reach) error {
	c, err := s.netd.client()
	if err != nil {
		return nil
	}
	if err := c.Reach(ctx, r); err != nil {
		return fmt.Errorf("bounding the proxy: %w", err)
	}
	return nil
}
