// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/doctor"
	"bawn/internal/names"
	"bawn/internal/parent"
	"bawn/internal/policy"
)

// parentPatience is how long the self-test waits for the proxy to have tried its
// parent. It is longer than one try.
const parentPatience = parent.CheckTime + 3*time.Second

// parentFinding says whether the parent proxy can be reached, where there is
// one. No placement depends on it: without it nothing gets out.
func (s *Server) parentFinding(ctx context.Context) doctor.Finding {
	if _, ok := s.o.Config.Parent(); !ok {
		return doctor.Finding{Name: doctor.Parent, State: doctor.NotApplicable, Seen: "there is none"}
	}
	f := doctor.Finding{
		Name: doctor.Parent, State: doctor.Fail,
		Fix: "look at parent_proxy in the configuration, and whether this host may reach " + s.o.Config.ParentProxy.Address,
	}
	ctx, cancel := context.WithTimeout(ctx, parentPatience)
	defer cancel()
	h, ok := s.freshHealth(ctx)
	switch {
	case !ok:
		f.Seen = "the proxy has not said so"
	case h.Error != "":
		f.Seen = h.Error
	default:
		f.State = doctor.OK
	}
	return f
}

// parentWarnings are about rules that the parent proxy makes useless: nobody
// could hold it to addresses, so their requests are refused.
func (s *Server) parentWarnings(p *policy.Policy) []string {
	c, ok := s.o.Config.Parent()
	if !ok {
		return nil
	}
	var list []string
	for _, a := range p.Addressed() {
		if !slices.ContainsFunc(c.Bypass, func(b names.Pattern) bool { return b.Covers(a.Host) }) {
			list = append(list, fmt.Sprintf("line %d: %s: what names addresses is refused behind a parent proxy, which chooses them itself (put %s under bypass of parent_proxy in the configuration)", a.Line, a.Rule, a.Host))
		}
	}
	return list
}

// freshHealth waits for a report that is not old.
func (s *Server) freshHealth(ctx context.Context) (apitype.ParentHealth, bool) {
	for {
		h := s.planes.parentHealth()
		if !h.At.IsZero() && s.o.Now().Sub(h.At) < 3*parent.CheckEvery {
			return h, true
		}
		select {
		case <-ctx.Done():
			return h, false
		case <-time.After(100 * time.Millisecond):
		}
	}
}
