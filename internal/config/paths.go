// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// Paths says where everything of one installation lives. All of it is under
// Root, which is "/" unless --root names another directory.
type Paths struct{ Root string }

// Etc is the operator's directory; agents see none of it.
func (p Paths) Etc() string { return filepath.Join(p.Root, "etc/bawn") }

// ConfigFile is read at every start of a process.
func (p Paths) ConfigFile() string { return filepath.Join(p.Etc(), "config.yaml") }

// Lib holds the state of all processes and agents.
func (p Paths) Lib() string { return filepath.Join(p.Root, "var/lib/bawn") }

// State is the private state directory of one process: admin, proxy.
func (p Paths) State(process string) string { return filepath.Join(p.Lib(), process) }

// Journal is the decision log of one plane.
func (p Paths) Journal(plane string) string { return filepath.Join(p.State(plane), "journal") }

// Database is the store that only admin opens.
func (p Paths) Database() string { return filepath.Join(p.State("admin"), "bawn.db") }

// Checkpoints holds the signed checkpoints of all journals, which admin writes.
func (p Paths) Checkpoints() string { return filepath.Join(p.State("admin"), "checkpoints") }

// AuditKey is the key that signs checkpoints, outside of any database.
func (p Paths) AuditKey() string { return filepath.Join(p.State("admin"), "audit.key") }

// AuditPub is its public half.
func (p Paths) AuditPub() string { return filepath.Join(p.Public(), "audit.pub") }

// Index is the audit index, which can be made anew from the journals.
func (p Paths) Index() string { return filepath.Join(p.State("admin"), "index.db") }

// Public holds what everybody may read: the CA certificate, the bundle and the
// key that checks checkpoints.
func (p Paths) Public() string { return filepath.Join(p.Lib(), "public") }

// CACert is the root certificate that agents trust.
func (p Paths) CACert() string { return filepath.Join(p.Public(), "ca.crt") }

// Bundle is the system's roots, the operator's and Bawn's, for variables that replace the
// roots of a tool.
func (p Paths) Bundle() string { return filepath.Join(p.Public(), "bundle.crt") }

// JavaStore is the bundle as Java reads it, which agents' views put over Java's
// own.
func (p Paths) JavaStore() string { return filepath.Join(p.Public(), "cacerts.jks") }

// Agents holds a directory for each agent: home, work and tmp.
func (p Paths) Agents() string { return filepath.Join(p.Lib(), "agents") }

// Run holds the sockets and the lock.
func (p Paths) Run() string { return filepath.Join(p.Root, "run/bawn") }

// AdminSock is where operators and planes ask admin.
func (p Paths) AdminSock() string { return filepath.Join(p.Run(), "admin.sock") }

// NetdSock is where admin and the proxy ask netd.
func (p Paths) NetdSock() string { return filepath.Join(p.Run(), "netd.sock") }

// HandoverSock is where the proxy asks for what only root may read, if a
// service manager started it.
func (p Paths) HandoverSock() string { return filepath.Join(p.Run(), "handover.sock") }

// Lock is held by the supervisor for as long as it runs, or by netd where a
// service manager supervises.
func (p Paths) Lock() string { return filepath.Join(p.Run(), "up.lock") }

// Mark names what this installation makes in the kernel (cgroups), so that a
// start takes apart what its own last run left, and nothing else: "bawn" for
// the root directory, "bawn-" and 8 hex digits for any other.
func (p Paths) Mark() string {
	if filepath.Clean(p.Root) == "/" {
		return "bawn"
	}
	sum := sha256.Sum256([]byte(filepath.Clean(p.Root)))
	return "bawn-" + hex.EncodeToString(sum[:4])
}
