// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net/http"

	"bawn/internal/peercred"
)

// discard is an answer that nobody reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func peerOf(uid uint32) peercred.Peer { return peercred.Peer{UID: uid, PID: 1} }
