// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verdict holds the answer that every decision gives.
//
// A refusal is a value with a code, never a bare error. The zero Verdict is a
// denial without a code: whatever forgets to decide has denied.
package verdict

import (
	"fmt"

	"bawn/internal/codes"
)

// An Effect is what a decision does. The zero value is [Deny].
type Effect uint8

// The effects.
const (
	Deny  Effect = iota // refuse
	Allow               // let through
	Ask                 // hold until a person has answered
)

// String gives the word that records and case files use.
func (e Effect) String() string {
	switch e {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	default:
		return "deny"
	}
}

// MarshalText gives the word of [Effect.String].
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the word of [Effect.String]. Anything else is an error
// and leaves [Deny].
func (e *Effect) UnmarshalText(text []byte) error {
	switch string(text) {
	case "allow":
		*e = Allow
	case "ask":
		*e = Ask
	case "deny":
		*e = Deny
	default:
		*e = Deny
		return fmt.Errorf("reading verdict %q: not one of allow, ask, deny", text)
	}
	return nil
}

// A Verdict is one decision: its effect, the stage and rule that made it and,
// for a refusal, the code. Detail is for the operator's record only; it may
// hold bytes that the agent sent, so whoever shows it must treat it as hostile.
type Verdict struct {
	Effect Effect
	Code   codes.Code
	Rule   string // id of the deciding rule, empty where no rule decided
	Stage  string // accept, name, tls, head, guard, body, authority, budget, journal, resolve, dial, upstream
	Detail string
}

// Refuse returns a denial with its code, made by stage.
func Refuse(stage string, code codes.Code, detail string) Verdict {
	return Verdict{Effect: Deny, Code: code, Stage: stage, Detail: detail}
}

// Allowed reports whether v lets the request through.
func (v Verdict) Allowed() bool { return v.Effect == Allow }

// Why returns the code of a refusal, and internal_error for a refusal that
// nobody gave a code: undecided is deny.
func (v Verdict) Why() codes.Code {
	if v.Code == "" && v.Effect != Allow {
		return codes.InternalError
	}
	return v.Code
}
