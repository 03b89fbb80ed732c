// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// Version is the version of the record format, the "v" of each line.
const Version = 1

// The kinds of record, the "kind" of each line.
const (
	KindFile     = "file"     // [FileHead]: the first record of each file
	KindDecision = "decision" // [Decision]
	KindOutcome  = "outcome"  // [Outcome]
	KindDial     = "dial"     // [Dial]
	KindSummary  = "summary"  // [Summary]
	KindGap      = "gap"      // [Gap]
)

// A Decision says what was asked and what was decided, before anything was
// done about it. Empty fields do not apply. Strings beyond the bounds in
// encode.go are cut and Clipped is set.
type Decision struct {
	Seq          uint64         `json:"seq"`               // set by the journal
	Time         time.Time      `json:"time"`              // microseconds, UTC; zero: the journal's clock
	Request      string         `json:"request"`           // request id, joins the outcome
	Message      int64          `json:"message,omitempty"` // number, from 1, of a message on the WebSocket that the request opened
	ids.Identity                // who, from the kernel
	Revision     uint64         `json:"revision"`          // of the policy that judged
	Plane        string         `json:"plane"`             // empty: the journal's plane
	Arrival      string         `json:"arrival,omitempty"` // explicit, transparent
	Client       string         `json:"client,omitempty"`  // the agent's end, address and port as its own network has them
	Proto        string         `json:"proto,omitempty"`   // http/1.1, websocket, tls, tcp, dns
	Method       string         `json:"method,omitempty"`
	Scheme       string         `json:"scheme,omitempty"`
	Asked        string         `json:"asked,omitempty"` // host as the agent wrote it, where it differs from Host
	Host         string         `json:"host,omitempty"`  // canonical host
	Port         uint16         `json:"port,omitempty"`
	SNI          string         `json:"sni,omitempty"`
	ALPN         string         `json:"alpn,omitempty"`
	Path         string         `json:"path,omitempty"`  // canonical, without the query
	Query        string         `json:"query,omitempty"` // [QueryHash] of the query
	Verdict      verdict.Effect `json:"verdict"`
	Code         codes.Code     `json:"code,omitempty"`
	Stage        string         `json:"stage,omitempty"`      // which stage decided
	Rule         string         `json:"rule,omitempty"`       // id of the deciding rule
	Inspect      string         `json:"inspect,omitempty"`    // full, sni, none
	Detail       string         `json:"detail,omitempty"`     // for the operator
	Sensitive    bool           `json:"sensitive,omitempty"`  // a rule says that its records are, or a credential is used
	Credential   string         `json:"credential,omitempty"` // name of what the request uses
	Vetted       string         `json:"vetted,omitempty"`     // by whom addresses are, where that is not Bawn: parent
	Clipped      bool           `json:"clipped,omitempty"`    // a field was cut
}

// An Outcome says what came of an allowed request.
type Outcome struct {
	Seq          uint64     `json:"seq"`
	Time         time.Time  `json:"time"`    // of the end
	Request      string     `json:"request"` // request id of the decision
	ids.Identity            // as in the decision
	Revision     uint64     `json:"revision"`
	Plane        string     `json:"plane"`
	Status       int        `json:"status,omitempty"`      // HTTP status sent to the agent; of a refused call of gRPC, which is sent 200, that of its code
	BytesUp      int64      `json:"bytes_up,omitempty"`    // agent to upstream, on Bawn's upstream leg, heads included
	BytesDown    int64      `json:"bytes_down,omitempty"`  // upstream to agent
	MessagesUp   int64      `json:"messages_up,omitempty"` // of a WebSocket, from the agent
	MessagesDown int64      `json:"messages_down,omitempty"`
	Close        int        `json:"close,omitempty"`       // status with which the WebSocket was closed; 1005 for none, 1006 for no close
	Upstream     string     `json:"upstream,omitempty"`    // address and port dialled
	Local        string     `json:"local,omitempty"`       // Bawn's end of the upstream connection: what the server, or a NAT in front of it, sees
	Reused       bool       `json:"reused,omitempty"`      // an upstream connection that stood already
	Presented    string     `json:"presented,omitempty"`   // name of the client certificate that a new connection showed
	Certificate  string     `json:"certificate,omitempty"` // SHA-256 of the server's, in hex
	Queue        Span       `json:"queue_us,omitempty"`    // that it waited for a connection that others share
	DNS          Span       `json:"dns_us,omitempty"`
	Dial         Span       `json:"dial_us,omitempty"`
	TLS          Span       `json:"tls_us,omitempty"`
	TTFB         Span       `json:"ttfb_us,omitempty"` // from the request's last upstream write to the first response byte
	Total        Span       `json:"total_us,omitempty"`
	Code         codes.Code `json:"code,omitempty"`  // what ended it, where that has a code
	Error        string     `json:"error,omitempty"` // for the operator
	Cut          string     `json:"cut,omitempty"`   // why it ended early: policy, lease, limit, budget, session (it ended), shutdown
	Clipped      bool       `json:"clipped,omitempty"`
}

// A Dial says that a new upstream connection stands, so that a flow can be found
// while it goes on. It comes between the decision and the outcome of the request
// that the connection was made for.
type Dial struct {
	Seq          uint64    `json:"seq"`
	Time         time.Time `json:"time"`
	Request      string    `json:"request"`
	ids.Identity           // as in the decision
	Plane        string    `json:"plane"`
	Local        string    `json:"local"`    // Bawn's end, address and port
	Upstream     string    `json:"upstream"` // the other end
}

// A Summary stands for denials beyond an agent's record budget, of one second
// at most. What is let through is never summed.
type Summary struct {
	Seq          uint64    `json:"seq"`
	Time         time.Time `json:"time"` // of writing
	ids.Identity           // whose denials these were
	Plane        string    `json:"plane"`
	From         time.Time `json:"from"`    // first denial that has no record of its own
	To           time.Time `json:"to"`      // last one
	Denials      uint64    `json:"denials"` // how many
	Revision     uint64    `json:"revision"`
	// Codes counts the denials by code, in at most maxSummaryCodes codes; the
	// rest are under "other".
	Codes map[codes.Code]uint64 `json:"codes"`
}

// A Gap is written when a journal works again after it could not be written.
type Gap struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Plane   string    `json:"plane"`
	From    time.Time `json:"from"`              // first failed write
	Refused uint64    `json:"refused,omitempty"` // decisions that could not be written, all refused
	Lost    uint64    `json:"lost,omitempty"`    // outcomes and summaries lost
	Error   string    `json:"error"`             // why the first write failed
}

// A FileHead is the first record of each file.
type FileHead struct {
	Seq   uint64    `json:"seq"`
	Time  time.Time `json:"time"`
	Plane string    `json:"plane"`
	File  string    `json:"file"`            // this file's name
	After string    `json:"after,omitempty"` // file that holds the record before this one
	Torn  []Torn    `json:"torn,omitempty"`  // what crashes left behind that record
}

// A Torn is what a crash left at the end of a file: bytes that are no whole
// record.
type Torn struct {
	File  string `json:"file"`
	From  int64  `json:"from"`  // offset of the first byte
	Bytes int64  `json:"bytes"` // how many; none for a file that a crash left empty
}

// A Span is a duration that records carry in whole microseconds.
type Span time.Duration

// MarshalJSON gives whole microseconds.
func (s Span) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(s).Microseconds(), 10), nil
}

// UnmarshalJSON reads whole microseconds.
func (s *Span) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return err
	}
	*s = Span(time.Duration(n) * time.Microsecond)
	return nil
}

// QueryHash gives the form in which records hold a query: the first 16 hex
// digits of its SHA-256, since queries carry secrets. No query gives "".
func QueryHash(query string) string {
	if query == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:8])
}
