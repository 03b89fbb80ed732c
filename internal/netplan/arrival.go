// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan

// An Arrival says how a connection came to a listener, and so how it says
// where it wants to go.
type Arrival string

// The arrivals.
const (
	Explicit    Arrival = "explicit"    // the client knows that it talks to a proxy: CONNECT or absolute-form
	Transparent Arrival = "transparent" // redirected on its way to another address (SO_ORIGINAL_DST)
	DNS         Arrival = "dns"         // a query to the resolver
)
