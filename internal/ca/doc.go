// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ca makes the certificates that agents see.
//
// Admin keeps a [Root] for ten years. Each proxy makes a key and a request
// ([NewRequest]), which the root signs for a few days ([Root.SignIntermediate]);
// with the resulting [Intermediate] a [Minter] mints a leaf for each host name
// that an agent asks for. The intermediate's key and the leaves' key never
// touch a disk.
//
// Agents trust the root: [Bundle] puts its certificate beside the system's own
// roots, since most variables that name a bundle replace the system's.
//
// # Concurrency
//
// A Root and a Minter may be used by many goroutines.
package ca
