// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world builds a small internet for tests and for the demonstration.
//
// Everything lives in network namespaces that have no link to the machine's
// interfaces, so no packet of a test can leave the machine, and the programs
// in it are real: a real resolver protocol, TLS under a test root, real git,
// real package registries.
//
//	host      192.168.50.2, 2606:2800:220:50::2   where Bawn runs
//	internet  93.184.216.0/24                     router, resolver, servers
//	attacker  93.184.217.0/24, 2606:2800:220:2::  counts whatever reaches it
//	lan       10.0.0.5                            a private service
//	metadata  169.254.169.254                     a cloud's metadata address
//
// The host has its own process ids, mounts and cgroups: a private copy of
// /etc, an empty /var, /home, /run, /tmp and /opt, and everything else
// read-only. Accounts made in it, files written in it and processes started
// in it end with it.
//
// # Order
//
// A program that uses the package calls [Main] first thing in main (a test:
// in TestMain), since the world starts copies of the program, one in each
// namespace. Then [Open] or, in a test, [New].
//
// # Concurrency
//
// A World may be used by many goroutines, and a program may open many Worlds:
// they share nothing.
//
// # End
//
// [World.Close] takes everything apart and then looks whether anything is
// left. Should the program be killed before that, its namespaces and processes
// end by themselves; the next Open removes the files and cgroups.
package world
