// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import "time"

// A JournalState says how far a journal is covered by signed checkpoints.
type JournalState struct {
	Series string    `json:"series"`
	Record uint64    `json:"record"`         // number of the last record that is covered
	File   string    `json:"file,omitempty"` // that holds it; those before are covered to their end
	Signed time.Time `json:"signed,omitzero"`
	// Waiting is how many records were read and are not covered yet.
	Waiting int64 `json:"waiting,omitempty"`
	// Broken says that the journal is not what was written, and where. It stays
	// for a week.
	Broken   string    `json:"broken,omitempty"`
	BrokenAt time.Time `json:"broken_at,omitzero"`
	Fault    string    `json:"fault,omitempty"` // why nothing can be signed now
}

// Anchors are the newest checkpoints of all series, to be kept elsewhere:
// GET /v1/audit/anchors.
type Anchors struct {
	Key   string   `json:"key"`   // that checks them
	Notes []string `json:"notes"` // signed notes
}

// ExportAudit asks for records with their proof: POST /v1/audit/export. The
// answer is a multipart stream of files, and its last part says whether it is
// whole.
type ExportAudit struct {
	Format string    `json:"format"` // whole, jsonl, ocsf, cef
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Agent  string    `json:"agent,omitempty"`
	User   string    `json:"user,omitempty"`
}

// ExportEnd is the last part of an export.
type ExportEnd struct {
	Records uint64 `json:"records"`
	Error   string `json:"error,omitempty"` // the export is not whole
}
