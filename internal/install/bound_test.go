// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

// mostNetd is netd's bound. Its unit says what keeps it from less.
const mostNetd = 6.3
