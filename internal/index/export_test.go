// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import "time"

// SetPageTime changes how long a page is looked for.
func (x *Index) SetPageTime(d time.Duration) { x.pageTime = d }
