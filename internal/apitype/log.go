// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import (
	"time"

	"bawn/internal/ids"
)

// The heads of an answer to GET /v1/log.
const (
	// HeadMore is the place of the page before this one; absent: there is none.
	HeadMore = "Bawn-More"
	// HeadNote says in which way the answer is not all that there is, or where it
	// comes from instead of the index.
	HeadNote = "Bawn-Note"
)

// A Total is what a group of requests comes to. Of the first five fields those
// are set that were grouped by.
type Total struct {
	Agent    string     `json:"agent,omitempty"`
	User     string     `json:"user,omitempty"`
	Host     string     `json:"host,omitempty"`
	Code     string     `json:"code,omitempty"`
	Hour     *time.Time `json:"hour,omitempty"`
	Requests int64      `json:"requests"`           // let through, as budgets count them
	Denied   int64      `json:"denied"`             // refusals of requests, CONNECTs, connections, questions and messages
	DNS      int64      `json:"dns"`                // questions to the resolver, refused ones included
	Messages int64      `json:"messages,omitempty"` // of WebSockets, that were judged, refused ones included
	Up       int64      `json:"bytes_up"`
	Down     int64      `json:"bytes_down"`
}

// Totals answers GET /v1/log/totals and GET /v1/usage.
type Totals struct {
	Totals []Total    `json:"totals"`
	Since  *time.Time `json:"since,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	Note   string     `json:"note,omitempty"` // in which way the answer is not all that there is
}

// Who answers GET /v1/who.
type Who struct {
	Address string    `json:"address"`
	At      time.Time `json:"at"`
	Side    string    `json:"side"`    // what the address is: client, local (Bawn's end) or server
	Certain bool      `json:"certain"` // one session, and no other, was behind it
	Why     string    `json:"why"`     // in words
	Found   []Suspect `json:"found"`   // those that most speaks for first
	Note    string    `json:"note,omitempty"`
}

// A Suspect is one session that may have been behind an address.
type Suspect struct {
	ids.Identity
	Certainty string     `json:"certainty"` // carried, between, earlier, later
	Request   string     `json:"request"`   // that speaks for it
	What      string     `json:"what"`
	Verdict   string     `json:"verdict"`
	Code      string     `json:"code,omitempty"`
	Client    string     `json:"client,omitempty"`
	Local     string     `json:"local,omitempty"`
	Upstream  string     `json:"upstream,omitempty"`
	From      time.Time  `json:"from"`
	To        *time.Time `json:"to,omitempty"` // absent: it goes on, or its end was lost
}

// Report answers GET /v1/report: what agents did in a time, and what of it they
// did not do in the time of the same length before.
type Report struct {
	Since   time.Time     `json:"since"`
	Until   time.Time     `json:"until"`
	Before  time.Time     `json:"before"` // the beginning of the time that it is compared with
	Agents  []AgentReport `json:"agents"`
	Own     *Total        `json:"own,omitempty"` // of Bawn's own attacks on itself, which are in nothing else
	Damages uint64        `json:"damages"`       // places where a journal could not be read
	Note    string        `json:"note,omitempty"`
}

// An AgentReport is about one agent.
type AgentReport struct {
	Total
	New    bool     `json:"new,omitempty"` // nothing is on record of it in the time before
	Users  []string `json:"users"`
	Hosts  []Total  `json:"hosts"`            // that it reached, the most used first
	Fresh  []string `json:"fresh,omitempty"`  // of these, not asked for in the time before
	Codes  []Denial `json:"denials"`          // by code
	Asked  []Total  `json:"refused_hosts"`    // that it was refused
	Before *Total   `json:"before,omitempty"` // what it did in the time before
}

// A Denial is how often a code refused an agent, and what an operator can do.
type Denial struct {
	Code     string `json:"code"`
	Count    int64  `json:"count"`
	New      bool   `json:"new,omitempty"`
	Guidance string `json:"guidance,omitempty"`
}
