// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import "strings"

// passedOn keeps of the supervisor's environment what children may see: only
// Bawn's own switches. A loader variable or a proxy setting of the operator's
// shell must not reach a process that decides.
func passedOn(env []string) []string {
	var kept []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "BAWN_") {
			kept = append(kept, kv)
		}
	}
	return kept
}
