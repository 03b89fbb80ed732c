// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/parent"
)

// parentPatience is how long the self-test waits for the proxy to have tried its
// parent. It is longer than one try.
const parentPatience = parent.CheckTime + 3*time.Second

// parentLines says whether the parent proxy can be reached, where there is one.
// No placement depends on it: without it nothing gets out.
func (s *Server) parentLines(ctx context.Context) []apitype.DoctorLine {
	if _, ok := s.o.Config.Parent(); !ok {
		return nil
	}
	line := apitype.DoctorLine{
		Check: "the parent proxy answers",
		Fix:   "look at parent_proxy in the configuration, and whether this host may reach " + s.o.Config.ParentProxy.Address,
	}
	ctx, cancel := context.WithTimeout(ctx, parentPatience)
	defer cancel()
	h, ok := s.freshHealth(ctx)
	switch {
	case !ok:
		line.Detail = "the proxy has not said so"
	case h.Error != "":
		line.Detail = h.Error
	default:
		line.OK = true
	}
	return []apitype.DoctorLine{line}
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
