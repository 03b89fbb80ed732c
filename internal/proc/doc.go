// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proc starts agents and holds them.
//
// [Start] runs one program as an agent: under its account, in its network
// namespace, in a view of the file system made for it, with no capability, no
// way to a new namespace and a short list of system calls. [Cgroups] bounds
// what a session may use, and freezes or kills it whole.
//
// # How a program starts
//
// Start clones Bawn's own binary with the verb [Verb] as the first process of
// new PID, mount, IPC and UTS namespaces. That process ([Stage]) waits until it
// is in the session's cgroups, builds the view, gives up everything that root
// may do and executes itself again. What runs from then on is the agent's
// account: it starts the command, reaps what the command leaves behind,
// passes signals on and reports how the command ended.
//
// The process that starts an agent must be root and must call [Stage] when it
// is run with that verb (see [MaybeStage] for tests).
//
// # Who ends what
//
// A session ends with its command: the end of process 1 is the end of every
// process in its PID namespace. It also ends when the process that started it
// ends, however that happens.
//
// # Concurrency
//
// Everything may be used by many goroutines at once.
package proc
