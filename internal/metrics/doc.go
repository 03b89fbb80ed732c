// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics counts, and writes down what was counted in the text format of
// Prometheus.
//
// [Families] lists every metric with its labels, and of each label every value:
// codes, planes, verdicts, stages, never a host, an agent's name or a path. What an
// agent does can so make no series that is not there already. A sample that is not
// of the list is refused by [Check], whoever reports it.
//
// A plane holds a [Proxy] and counts in it; an event costs an atomic addition, and
// one that is timed two. Once a second it reports what it has ([Proxy.Samples]) to
// admin, which adds its own and writes all of it with [Write].
package metrics
