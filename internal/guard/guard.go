// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guard looks into requests further than rules can: at what a request
// would make its receiver do.
//
// A [Guard] judges twice at most. Head sees everything before the body, and is
// called for every request. If it answers [NeedBody], the caller reads the whole
// body within its limits, decodes it, and calls Body; nothing has been forwarded
// until then. A request that no guard asked the body of is streamed.
//
// A request that opens a WebSocket is let through only by guards that judge what
// follows on it: a [MessageGuard] is handed each message of the agent, whole,
// before any of it is sent on.
//
// A [Chain] is the guards of one request in the order of [List], which is the
// one place where the order stands. The first refusal ends it. Everything that
// is not a clear Allow is a refusal: the zero value, an answer that makes no
// sense, and in the caller's hands a panic.
//
// Guards are pure: no clock, no socket, no state. A provider's guard is a
// package of its own below this one and becomes one line of List. Each may be
// used by many goroutines.
package guard

import (
	"bawn/internal/codes"
	"bawn/internal/httpwire"
	"bawn/internal/names"
	"bawn/internal/verdict"
)

// An Arrival is how a request came to the proxy.
type Arrival uint8

// The arrivals; the zero value is none.
const (
	ArrivalNone        Arrival = iota
	ArrivalConnect             // through a CONNECT tunnel
	ArrivalAbsolute            // as a request with an absolute target
	ArrivalTransparent         // by redirection of the connection
)

// TLSInfo is what the client's TLS said. The zero value is none: plain HTTP.
type TLSInfo struct {
	ServerName names.Host // zero when the client sent none
	ALPN       string     // the protocol agreed on, "" for none
}

// A Request is a request as guards see it. It has passed the rules and the
// strict parser; what is judged here is, byte for byte, what will be sent.
type Request struct {
	Arrival  Arrival
	Name     names.Host
	Port     uint16
	TLS      TLSInfo
	Method   string
	Path     string // canonical
	Query    string // as sent, from the question mark on; empty for none
	Header   httpwire.Fields
	HasBody  bool   // framing announces a body, even an empty one of unknown length
	Body     []byte // decoded; only in Body
	Revision uint64 // of the policy that let it come this far

	WebSocket bool // it opens one; it has no body then
}

// A Message is one message that the agent sends on a WebSocket. It is put
// together from its fragments and decompressed; a text is valid UTF-8.
type Message struct {
	Request *Request // that opened the WebSocket
	Binary  bool
	Data    []byte // not to be changed or kept
}

// An Answer is what a guard says.
type Answer uint8

// The answers. The zero value is Deny.
const (
	Deny     Answer = iota
	Allow           // nothing against it
	NeedBody        // nothing against the head; Body decides
)

// A Verdict is the answer of a guard with the reason for a refusal. Detail is
// for the record only and may hold bytes that the agent sent.
type Verdict struct {
	Answer Answer
	Code   codes.Code
	Detail string
}

// Refuse returns a refusal.
func Refuse(code codes.Code, detail string) Verdict {
	return Verdict{Answer: Deny, Code: code, Detail: detail}
}

// A Guard judges requests.
type Guard interface {
	// Head judges everything but the body.
	Head(*Request) Verdict
	// Body judges the whole request. It is called only if Head answered
	// NeedBody, and may not answer NeedBody again.
	Body(*Request) Verdict
}

// A MessageGuard is a guard that can judge WebSockets. One that is not refuses
// them: it would not see what they carry.
type MessageGuard interface {
	Guard
	// Message judges one message of a WebSocket whose request Head let
	// through. It may not answer NeedBody.
	Message(*Message) Verdict
}

// A Step is one guard of a chain under its name.
type Step struct {
	Name  string
	Guard Guard
	order int // place in List
}

// List is every guard that a policy can name, in the order in which they judge:
// what is cheap and decides on the head alone comes first.
func List() []Step {
	list := []Step{
		{Name: "read-only", Guard: ReadOnly{}},
		{Name: "json", Guard: JSON{}},
	}
	for i := range list {
		list[i].order = i
	}
	return list
}

// Named returns the guard that a policy calls name.
func Named(name string) (Step, bool) {
	for _, s := range List() {
		if s.Name == name {
			return s, true
		}
	}
	return Step{}, false
}

// A Chain is the guards that judge a request, in order. The empty chain allows:
// no rule asked for a guard.
type Chain []Step

// With returns c and more merged in the order of [List], each guard once.
// Neither chain is changed.
func (c Chain) With(more Chain) Chain {
	if len(more) == 0 {
		return c
	}
	if len(c) == 0 {
		return more
	}
	merged := make(Chain, 0, len(c)+len(more))
	for len(c) > 0 || len(more) > 0 {
		switch {
		case len(more) == 0 || len(c) > 0 && c[0].order < more[0].order:
			merged, c = append(merged, c[0]), c[1:]
		case len(c) == 0 || more[0].order < c[0].order:
			merged, more = append(merged, more[0]), more[1:]
		default:
			merged, c, more = append(merged, c[0]), c[1:], more[1:]
		}
	}
	return merged
}

// Head asks every guard about the head. If the verdict allows, needBody is the
// guards that have to see the body before anything is sent, nil for none.
func (c Chain) Head(r *Request) (v verdict.Verdict, needBody Chain) {
	for i := range c {
		if _, judges := c[i].Guard.(MessageGuard); r.WebSocket && !judges {
			return c[i].refused("guard", Refuse(codes.WebSocketUninspectable, "cannot judge messages")), nil
		}
		switch answer := c[i].Guard.Head(r); answer.Answer {
		case Allow:
		case NeedBody:
			needBody = append(needBody, c[i])
		default:
			return c[i].refused("guard", answer), nil
		}
	}
	return verdict.Verdict{Effect: verdict.Allow, Stage: "guard"}, needBody
}

// Body asks every guard of c about the whole request.
func (c Chain) Body(r *Request) verdict.Verdict {
	for i := range c {
		if answer := c[i].Guard.Body(r); answer.Answer != Allow {
			return c[i].refused("body", answer)
		}
	}
	return verdict.Verdict{Effect: verdict.Allow, Stage: "body"}
}

// Message asks every guard of c about a message.
func (c Chain) Message(m *Message) verdict.Verdict {
	for i := range c {
		answer := Refuse(codes.WebSocketUninspectable, "cannot judge messages")
		if g, judges := c[i].Guard.(MessageGuard); judges {
			answer = g.Message(m)
		}
		if answer.Answer != Allow {
			return c[i].refused("message", answer)
		}
	}
	return verdict.Verdict{Effect: verdict.Allow, Stage: "message"}
}

// refused makes the verdict of a refusal. A guard that gave no code, or asked
// for the body twice, has a fault: verdict.Why then answers internal_error.
func (s Step) refused(stage string, v Verdict) verdict.Verdict {
	if v.Answer != Deny {
		v = Refuse(codes.InternalError, "an answer that has no meaning here")
	}
	return verdict.Refuse(stage, v.Code, "guard "+s.Name+": "+v.Detail)
}
