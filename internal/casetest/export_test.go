// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bawn/internal/audit"
	"bawn/internal/codes"
)

func refusedDecision() audit.Decision {
	return audit.Decision{Request: "r-1", Code: codes.HostNotAllowed}
}
