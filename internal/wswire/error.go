// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import (
	"fmt"

	"bawn/internal/codes"
)

// An Error is a stream that the codec refuses. Nothing more can be read of it:
// close it with Status.
type Error struct {
	Code   codes.Code
	Status Status // of the close frame that says so to the peer
	Detail string // for the record
}

// Error gives the code and the detail.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// A Closed is the end of a stream by the peer's close frame.
type Closed struct {
	Status Status // [StatusNone] if the frame had none
	Reason string // valid UTF-8 that the peer wrote
}

// Error says how the peer closed.
func (e *Closed) Error() string {
	if e.Status == StatusNone {
		return "the peer closed the WebSocket"
	}
	return fmt.Sprintf("the peer closed the WebSocket with %d", e.Status)
}

func violation(detail string) *Error {
	return &Error{Code: codes.WebSocketProtocolError, Status: StatusProtocolError, Detail: detail}
}

func invalid(detail string) *Error {
	return &Error{Code: codes.WebSocketProtocolError, Status: StatusInvalid, Detail: detail}
}

func tooBig(detail string) *Error {
	return &Error{Code: codes.BodyTooLarge, Status: StatusTooBig, Detail: detail}
}
