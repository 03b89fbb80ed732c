// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apitype holds the words of the HTTP/JSON API on admin.sock, version
// 1. Fields are added, never renamed; a reader refuses fields that it does not
// know, so both ends must be of one build or the reader the newer.
package apitype

import (
	"time"

	"bawn/internal/ids"
)

// Prefix is the version part of every path.
const Prefix = "/v1"

// An Error is the body of every answer that is not a success.
type Error struct {
	Code    string `json:"code,omitempty"`   // from the catalogue, where one fits
	Message string `json:"message"`          // what went wrong, naming the thing
	Hint    string `json:"hint,omitempty"`   // what to do about it
	Status  int    `json:"status,omitempty"` // HTTP status; also where the answer is a frame of a session
}

// Error makes an Error usable as an error.
func (e *Error) Error() string { return e.Message }

// An Agent is a registered identity.
type Agent struct {
	Name      string        `json:"name"`
	User      string        `json:"user"`
	Profile   string        `json:"profile,omitempty"`
	Placement ids.Placement `json:"placement"`
	UID       uint32        `json:"uid"`
	Created   time.Time     `json:"created"`
	Sessions  int           `json:"sessions"` // running now
	// Warnings come with a new agent, such as that the policy in force has no
	// such profile.
	Warnings []string `json:"warnings,omitempty"`
}

// CreateAgent asks for a new agent: POST /v1/agents.
type CreateAgent struct {
	Name      string        `json:"name"`
	User      string        `json:"user"`
	Profile   string        `json:"profile,omitempty"`
	Placement ids.Placement `json:"placement,omitempty"`
}

// A Revision is one applied policy.
type Revision struct {
	Number  uint64    `json:"number"`
	At      time.Time `json:"at"`
	UID     uint32    `json:"uid"` // who applied it, from the kernel
	Account string    `json:"account,omitempty"`
	Why     string    `json:"why,omitempty"`
	YAML    string    `json:"yaml,omitempty"`
}

// ApplyPolicy asks for a new revision: POST /v1/policy.
type ApplyPolicy struct {
	YAML string `json:"yaml"`
	Why  string `json:"why,omitempty"`
	// Base, when not 0, is the revision that the writer saw; another current
	// one refuses the request.
	Base uint64 `json:"base,omitempty"`
}

// RollbackPolicy makes an old revision the newest again: POST /v1/policy/rollback.
type RollbackPolicy struct {
	Revision uint64 `json:"revision"`
	Why      string `json:"why,omitempty"`
}

// Applied answers ApplyPolicy and RollbackPolicy. When it arrives no new
// request is judged by an older revision.
type Applied struct {
	Revision uint64   `json:"revision"`
	Planes   []Plane  `json:"planes"`
	Warnings []string `json:"warnings,omitempty"`
}

// A Plane is one process that enforces policy.
type Plane struct {
	Name     string    `json:"name"`
	PID      int32     `json:"pid"`
	Revision uint64    `json:"revision"` // acknowledged
	Asked    time.Time `json:"asked"`    // last beat
	Live     bool      `json:"live"`     // holds a lease
}

// ExplainPolicy asks how one request would be judged: POST /v1/policy/explain.
type ExplainPolicy struct {
	Agent  string `json:"agent"`
	Method string `json:"method"`
	URL    string `json:"url"`
	All    bool   `json:"all,omitempty"` // rules for other hosts as well
}

// Explained is the answer, as text for a person and by the same code that
// enforces.
type Explained struct {
	Effect   string `json:"effect"`
	Code     string `json:"code,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Revision uint64 `json:"revision"`
	Text     string `json:"text"`
}

// Text carries a text for a person, such as the effective policy.
type Text struct {
	Revision uint64 `json:"revision,omitempty"`
	Text     string `json:"text"`
}

// Status is the state of the installation: GET /v1/status.
type Status struct {
	Version  string    `json:"version"`
	Ready    bool      `json:"ready"` // agents are handed out
	Why      string    `json:"why,omitempty"`
	Revision uint64    `json:"revision"`
	Parts    []Part    `json:"parts"`
	Planes   []Plane   `json:"planes"`
	Agents   int       `json:"agents"`
	Sessions []Session `json:"sessions"`
	Doctor   *Doctor   `json:"doctor,omitempty"` // newest run
	// Journals says how far the record is proven.
	Journals []JournalState `json:"journals,omitempty"`
}

// A Part is one process of Bawn as admin sees it.
type Part struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// A Session is one run of an agent.
type Session struct {
	ids.Identity
	Placement ids.Placement `json:"placement"`
	Argv      []string      `json:"argv"`
	Started   time.Time     `json:"started"`
}
