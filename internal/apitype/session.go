// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import "bawn/internal/ids"

// SessionProtocol is what POST /v1/sessions upgrades to: after the 101 both
// sides speak framed JSON with descriptors (package fdpass). The client's first
// frame holds Start; admin's first holds Started, or Failed.
const SessionProtocol = "bawn-session/1"

// A ClientFrame goes from the CLI to admin; exactly one field is set.
type ClientFrame struct {
	Start  *StartSession `json:"start,omitempty"`
	Signal string        `json:"signal,omitempty"` // SIGINT, SIGTERM, ...
	Dial   *Dial         `json:"dial,omitempty"`
}

// A ServerFrame goes from admin to the CLI; exactly one field is set.
type ServerFrame struct {
	Started *Started `json:"started,omitempty"` // with the terminal's or the three pipes' descriptors
	Failed  *Error   `json:"failed,omitempty"`
	Exit    *Exit    `json:"exit,omitempty"`
	Dialled *Dialled `json:"dialled,omitempty"` // with the socket's descriptor, unless Error is set
}

// StartSession describes the program. Directories come as descriptors with the
// frame, which proves that the caller could open them.
type StartSession struct {
	Agent     string        `json:"agent"`
	Placement ids.Placement `json:"placement,omitempty"` // empty: the agent's own
	Argv      []string      `json:"argv"`
	Env       []string      `json:"env,omitempty"` // KEY=VALUE that the operator named, and TERM and locale
	TTY       bool          `json:"tty,omitempty"`
	Rows      uint16        `json:"rows,omitempty"`
	Cols      uint16        `json:"cols,omitempty"`
	Work      *Directory    `json:"work,omitempty"`
	Repo      *Directory    `json:"repo,omitempty"`
	Lends     []Directory   `json:"lends,omitempty"`
	Proof     *int          `json:"proof,omitempty"` // place of what package lending signs; needed with any directory
	Ports     []uint16      `json:"ports,omitempty"` // ports of the agent that Dial may ask for
}

// A Directory is one of the operator's, by the place of its descriptor in the
// frame. Path is where the agent sees it.
type Directory struct {
	File int    `json:"file"`
	Path string `json:"path"`
}

// Started says that the program runs.
type Started struct {
	ids.Identity
	Notices []string `json:"notices,omitempty"`
}

// Exit says that the program has ended.
type Exit struct {
	Status int    `json:"status"`          // the command's; 128+n where signal n ended it
	Fault  string `json:"fault,omitempty"` // Bawn could not run it, and why
}

// Dial asks for a connection to a port of the agent's own loopback.
type Dial struct {
	ID   uint64 `json:"id"`
	Port uint16 `json:"port"`
}

// Dialled answers Dial.
type Dialled struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
}
