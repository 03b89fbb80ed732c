// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import "time"

// The times of a lease. A plane counts the time to live from the moment at
// which it asked, on CLOCK_BOOTTIME, so neither a slow answer nor a suspended
// machine lengthens it.
const (
	LeaseBeat = 1 * time.Second // admin answers an ask after this at the latest
	LeaseTTL  = 3 * time.Second // what was asked for then is void
)

// LeaseAsk is one beat of a plane: POST /v1/plane/lease. Admin answers at once
// when the plane does not have the newest revision or the newest list of
// agents, else after LeaseBeat; either way it has read the database in between.
type LeaseAsk struct {
	Plane string `json:"plane"` // proxy
	Have  string `json:"have"`  // Tag of the snapshot that the plane enforces
	// Parent is how the parent proxy did last, where there is one.
	Parent *ParentHealth `json:"parent,omitempty"`
	// Resolvers are how the resolvers did when they were last asked for it.
	Resolvers *ResolverReport `json:"resolvers,omitempty"`
}

// A ResolverReport answers [LeaseAnswer.Check] of the same number.
type ResolverReport struct {
	Check  uint64   `json:"check"`
	Asked  int      `json:"asked"`
	Failed []string `json:"failed,omitempty"` // "ADDRESS: error"
}

// A ParentHealth is how the parent proxy did when it was used or tried last.
type ParentHealth struct {
	At    time.Time `json:"at"`    // zero: it has not been yet
	Error string    `json:"error"` // empty: it did what it should
}

// LeaseAnswer extends the lease. Snapshot is absent where Have is the newest.
type LeaseAnswer struct {
	Tag      string    `json:"tag"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Check asks for a [ResolverReport], if it is another number than the last.
	Check uint64 `json:"check,omitempty"`
	// Through names, for a series of the plane's journal, the file in front of
	// which nothing is needed any more: indexed, and covered by a checkpoint.
	Through map[string]string `json:"through,omitempty"`
}

// A Snapshot is all that a plane needs to judge.
type Snapshot struct {
	Tag      string          `json:"tag"` // names revision, agents and grants together
	Revision uint64          `json:"revision"`
	YAML     string          `json:"yaml"` // empty: no policy yet, everything is denied
	Agents   []SnapshotAgent `json:"agents"`
	Grants   []SnapshotGrant `json:"grants,omitempty"` // also such as ended lately
}

// A SnapshotAgent is a registered agent as policy sees it.
type SnapshotAgent struct {
	Name    string `json:"name"`
	ID      string `json:"id"` // of this registration: names come again, it does not
	Profile string `json:"profile,omitempty"`
}

// SignIntermediate asks for a certificate: POST /v1/plane/intermediate. The
// key never leaves the plane.
type SignIntermediate struct {
	CSR []byte `json:"csr"` // DER
}

// Signed answers SignIntermediate.
type Signed struct {
	Chain []byte `json:"chain"` // PEM: the intermediate and the root
}
