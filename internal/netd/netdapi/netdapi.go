// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netdapi is the language that netd, Bawn's root helper, speaks on
// netd.sock, and the two clients for it: [Client] for admin and [Feed] for the
// proxy.
//
// The socket is SOCK_SEQPACKET: one packet is one JSON object, and descriptors
// ride with it as SCM_RIGHTS. Whoever connects is known by SO_PEERCRED and may
// use the verbs of that account only. Both ends read strictly: unknown,
// doubled or oddly spelled keys, trailing data and oversized packets end the
// connection, since the two ends are always of one build.
//
// A [Client] may be used by many goroutines. A [Feed] belongs to one.
package netdapi

import (
	"fmt"
	"net/netip"
	"time"

	"bawn/internal/doctor"
	"bawn/internal/ids"
	"bawn/internal/netplan"
)

// A Verb is one thing that netd can be asked to do.
type Verb string

// The verbs. Listeners and ListenerAck are the proxy's; the others are
// admin's.
const (
	VerbStatus        Verb = "status"         // no arguments -> Status
	VerbWatch         Verb = "watch"          // no arguments; exits come as events from now on, also those that nobody has seen yet
	VerbAccountCreate Verb = "account_create" // Account
	VerbAccountRemove Verb = "account_remove" // Account
	VerbStart         Verb = "start"          // StartSpec + descriptors -> Started + descriptors
	VerbSignal        Verb = "signal"         // SignalArgs
	VerbStop          Verb = "stop"           // SessionRef
	VerbDial          Verb = "dial"           // DialArgs -> descriptor of a connected TCP socket
	VerbCounters      Verb = "counters"       // SessionRef -> Counters
	VerbReach         Verb = "reach"          // Reach
	VerbLures         Verb = "lures"          // no arguments -> Lures + descriptors, which hold them open
	VerbExamine       Verb = "examine"        // no arguments -> Examined

	VerbListeners   Verb = "listeners"    // no arguments; listeners come as events, the existing ones first
	VerbListenerAck Verb = "listener_ack" // ListenerAck
)

// A Code says what kind of failure an [Error] is.
type Code string

// The codes.
const (
	CodeBadRequest   Code = "bad_request"   // the arguments make no sense; the message says which
	CodeNotPermitted Code = "not_permitted" // the caller's account may not use this verb, or the uid is not Bawn's
	CodeNotFound     Code = "not_found"     // no such session or account
	CodeExists       Code = "exists"        // account, session, slot or address is taken
	CodeAddressTaken Code = "address_taken" // somebody of the host listens where the slot's proxy should: another slot may do
	CodeUnavailable  Code = "unavailable"   // something that must stand does not: proxy absent, firewall lost, kernel feature missing
	CodeUnreachable  Code = "unreachable"   // dial: nobody listens on that port
	CodeFailed       Code = "failed"        // anything else that went wrong; the message says what
)

// An Error is netd's refusal or failure of one request.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error gives the message; the code is for programs.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// An Account names an agent's Linux account: bawn-AGENT with that uid (and gid).
type Account struct {
	Agent string `json:"agent"`
	UID   uint32 `json:"uid"`
}

// A StartSpec describes one session: who it is, how it is held and what runs.
// Mounts name descriptors by their place among those that come with the packet.
//
// Operator is one end of a socket pair, on which the kernel names the account
// that made it. netd shows only that account's files to the agent as its own,
// so that a fault in admin cannot open one person's files to another's agents.
type StartSpec struct {
	Identity  ids.Identity  `json:"identity"`
	Placement ids.Placement `json:"placement"`
	UID       uint32        `json:"uid"` // inside Bawn's range, and the account of Identity.Agent
	Argv      []string      `json:"argv,omitempty"`
	Env       []string      `json:"env,omitempty"` // KEY=VALUE; netd adds nothing
	Dir       string        `json:"dir,omitempty"` // working directory inside the view; empty: the workspace
	TTY       bool          `json:"tty,omitempty"`
	Rows      uint16        `json:"rows,omitempty"`
	Cols      uint16        `json:"cols,omitempty"`
	Work      *Mount        `json:"work,omitempty"`     // the operator's directory, read and write; nil: agents/NAME/work
	Repo      *Mount        `json:"repo,omitempty"`     // a repository to clone from, read-only
	Lends     []Mount       `json:"lends,omitempty"`    // directories lent read-only, at their own path
	Operator  *int          `json:"operator,omitempty"` // place of the operator's socket; needed with any directory
	Exec      []string      `json:"exec,omitempty"`     // instead of Argv: Bawn's own binary with these arguments (doctor)
	Limits    Limits        `json:"limits"`
}

// A Mount is an operator's directory, proved by a descriptor that the operator
// opened.
type Mount struct {
	FD       int    `json:"fd"`        // place among the packet's descriptors, from 0
	Path     string `json:"path"`      // where the agent sees it, absolute
	OwnerUID uint32 `json:"owner_uid"` // shown to the agent as its own uid
	// OwnerGID is the owner's own group, which netd takes from the operator's socket
	// and from nobody's word; 0: none.
	OwnerGID uint32 `json:"-"`
}

// Limits bounds what one session may use.
type Limits struct {
	PIDs        int   `json:"pids,omitempty"`         // processes and threads; 0 is netd's default, never unlimited
	MemoryBytes int64 `json:"memory_bytes,omitempty"` // bytes, swap not included; 0 is netd's default, never unlimited
	CPUPercent  int   `json:"cpu_percent,omitempty"`  // of one processor: 200 is two; 0 is unlimited
}

// Started answers start. With TTY one descriptor comes along: the terminal's
// master. Otherwise three: where to write stdin, where to read stdout and
// stderr.
type Started struct {
	Session string `json:"session"`
}

// A SessionRef names a running session.
type SessionRef struct {
	Session string `json:"session"`
}

// SignalArgs asks for a signal to the session's program. Only the signals that a
// terminal or a service manager would send are accepted, by number.
type SignalArgs struct {
	Session string `json:"session"`
	Signal  int    `json:"signal"`
}

// DialArgs asks for a connection to a port on the session's own loopback.
type DialArgs struct {
	Session string `json:"session"`
	Port    uint16 `json:"port"`
}

// An Exit event says that a session has ended and that nothing of it is left.
type Exit struct {
	Session string `json:"session"`
	Status  int    `json:"status"`          // the program's exit status; 128+n where signal n ended it
	Fault   string `json:"fault,omitempty"` // set where Bawn could not run the program, and why
}

// Reach says what the proxy may connect to besides public addresses, so that the
// kernel refuses the rest as the proxy does.
type Reach struct {
	Resolvers []netip.AddrPort  `json:"resolvers,omitempty"` // name servers that it asks
	Private   []netip.Prefix    `json:"private,omitempty"`   // special-purpose ranges that some rule names
	Parents   []netplan.Service `json:"parents,omitempty"`   // where its parent proxy can be
}

// MaxReach bounds each list of a [Reach].
const MaxReach = 512

// Lures are listeners of the host for the self-test to find. They answer nobody;
// the datagram sockets are read by nobody.
type Lures struct {
	TCP      []netip.AddrPort `json:"tcp"`
	UDP      []netip.AddrPort `json:"udp"`
	Abstract []string         `json:"abstract"` // names without the leading NUL
}

// Examined is what netd saw of the host from outside an agent's place.
type Examined struct {
	Findings []doctor.Finding `json:"findings"`
}

// Counters are packets and bytes by the name of the counter (package netplan).
type Counters map[string]Counter

// A Counter counts what a rule has met.
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Status is what netd holds at the moment.
type Status struct {
	Version  string    `json:"version"`
	Since    time.Time `json:"since"`
	Proxy    bool      `json:"proxy"`    // a proxy is connected and has taken over every listener
	Firewall Firewall  `json:"firewall"` // the host table for the uid placement
	Sessions []Session `json:"sessions"`
	Building int       `json:"building,omitempty"` // sessions that are being put together, and hold their slots already
	Limits   []string  `json:"limits,omitempty"`   // limits that this machine cannot hold (cgroup controllers missing)
	Warnings []string  `json:"warnings,omitempty"`
}

// Firewall is the state of the host's table and second lock.
type Firewall struct {
	State    string    `json:"state"`            // standing, lost, absent (never set up; uid placement is refused)
	Why      string    `json:"why,omitempty"`    // what is missing
	Losses   int       `json:"losses,omitempty"` // how often it was lost and put back since netd started
	LastLoss time.Time `json:"last_loss,omitzero"`
	Counters Counters  `json:"counters,omitempty"`
}

// A Session is one running session.
type Session struct {
	Identity  ids.Identity  `json:"identity"`
	Placement ids.Placement `json:"placement"`
	UID       uint32        `json:"uid"`
	PID       int           `json:"pid"`
	Since     time.Time     `json:"since"`
	Frozen    bool          `json:"frozen,omitempty"` // held still until the firewall stands again
}

// A SlotAdded event hands the listeners of one slot to the proxy. The packet's
// descriptors are those of Sockets, in the same order. The proxy answers with
// [ListenerAck] once it accepts on all of them.
type SlotAdded struct {
	Seq       uint64        `json:"seq"`
	Identity  ids.Identity  `json:"identity"`
	Placement ids.Placement `json:"placement"`
	UID       uint32        `json:"uid"` // uid placement: who must own the peer's socket
	Sockets   []Socket      `json:"sockets"`
}

// A Socket is one listener of a slot.
type Socket struct {
	Arrival netplan.Arrival `json:"arrival"` // explicit, transparent, dns
	Network string          `json:"network"` // tcp: listening; udp: bound
	Addr    netip.AddrPort  `json:"addr"`
}

// A SlotRemoved event says that the slot's lease has ended: close its
// listeners and cut its connections.
type SlotRemoved struct {
	Slot int            `json:"slot"`
	Gen  ids.Generation `json:"gen"`
}

// ListenerAck says that the proxy serves the slot that came with Seq.
type ListenerAck struct {
	Seq uint64 `json:"seq"`
}

// The events. Replayed comes once after the slots that existed when the proxy
// connected.
const (
	EventExit        = "exit"         // Exit
	EventSlotAdded   = "slot_added"   // SlotAdded + descriptors
	EventSlotRemoved = "slot_removed" // SlotRemoved
	EventReplayed    = "replayed"     // no body
)
