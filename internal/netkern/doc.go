// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netkern applies the plans of package netplan to the kernel.
//
// # Namespaces
//
// [Build] makes an agent's network namespace, held by a descriptor and by
// nothing else: no name, no mount, so that nothing is left when the process
// that holds it ends. A socket belongs to the namespace in which it was made;
// that is how the proxy, outside, serves listeners that are inside.
//
// Whatever must run inside a namespace runs on an operating-system thread of
// its own, which ends afterwards. A thread that has been in another namespace
// is never given back: goroutines that know nothing of it would run there.
//
// # The host's firewall
//
// [Firewall] keeps agents of the uid placement to their own proxies, by three
// locks that do not depend on one another: a table, a routing rule for their
// uids, and programs on their cgroups. It watches over the first two, which
// others can take away, and tells its owner when they are lost.
//
// # Concurrency
//
// Everything may be used by many goroutines at once.
package netkern
