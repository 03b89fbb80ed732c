// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

// MakeBackup asks for admin's part of a backup, which is an archive of its own.
type MakeBackup struct {
	Journals bool `json:"journals,omitempty"` // with admin's journal
}
