// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ids holds the words for who asks: the identity that every decision,
// record and limit is bound to.
//
// An [Identity] is filled from the kernel (which listener accepted, which uid
// owns the peer's socket), never from anything that an agent sends. Slots and
// addresses are used again; the pair (Slot, Gen) never is.
package ids

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Generation numbers the leases of a host. It never repeats: Epoch grows by
// one at each start of the process that hands out slots, Count at each lease.
type Generation struct {
	Epoch uint64
	Count uint64
}

// String gives the form that records carry: "EPOCH.COUNT".
func (g Generation) String() string {
	return strconv.FormatUint(g.Epoch, 10) + "." + strconv.FormatUint(g.Count, 10)
}

// IsZero reports whether g was never assigned.
func (g Generation) IsZero() bool { return g == Generation{} }

// MarshalText gives the form of [Generation.String].
func (g Generation) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads the form of [Generation.String].
func (g *Generation) UnmarshalText(text []byte) error {
	epoch, count, ok := strings.Cut(string(text), ".")
	if !ok {
		return fmt.Errorf("reading generation %q: no dot", text)
	}
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("reading generation %q: %w", text, err)
	}
	c, err := strconv.ParseUint(count, 10, 64)
	if err != nil {
		return fmt.Errorf("reading generation %q: %w", text, err)
	}
	*g = Generation{Epoch: e, Count: c}
	return nil
}

// An Identity says on whose behalf something happens: the lease of a slot, the
// session that holds it, and the agent and user behind the session.
type Identity struct {
	Slot    int        `json:"slot"`
	Gen     Generation `json:"gen"`
	Session string     `json:"session"`
	Agent   string     `json:"agent"`
	User    string     `json:"user"`
}

// A Placement is how an agent is held.
type Placement string

// The placements; the zero value is none.
const (
	PlacementNetns Placement = "netns" // own account in its own network slot
	PlacementUID   Placement = "uid"   // own account in the host's network, behind a uid-scoped firewall
)

// ParsePlacement reads the name of a placement.
func ParsePlacement(s string) (Placement, error) {
	switch p := Placement(s); p {
	case PlacementNetns, PlacementUID:
		return p, nil
	}
	return "", fmt.Errorf("placement %q: not one of netns, uid", s)
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,25}[a-z0-9]$|^[a-z]$`)

// errName is what CheckName reports. Linux account names have at most 32 bytes
// (useradd(8)), and an agent's has "bawn-" in front.
var errName = errors.New("names are 1 to 27 of a-z, 0-9 and '-', begin with a letter and do not end with '-'")

// CheckName reports why s cannot name an agent or a profile.
func CheckName(s string) error {
	if !nameForm.MatchString(s) {
		return fmt.Errorf("name %q: %w", s, errName)
	}
	return nil
}

// NewAgent returns a fresh id for an agent's registration: "a-" and 16 hex
// digits. Names of agents are used again, their ids are not.
func NewAgent() string { return "a-" + random(8) }

// NewSession returns a fresh session id: "s-" and 16 hex digits from the
// system's random source.
func NewSession() string { return "s-" + random(8) }

// NewRequest returns a fresh request id: "r-" and 16 hex digits.
func NewRequest() string { return "r-" + random(8) }

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}
