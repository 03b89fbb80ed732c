// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import "bawn/internal/codes"

// An Error is a message that the codec refuses. After it the position in the
// stream is uncertain: answer if there is somebody to answer, then close.
type Error struct {
	Code   codes.Code
	Status int    // the HTTP status that says so to a client
	Detail string // for the record; may hold bytes that the peer sent
}

// Error gives the code and the detail.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

func refuse(code codes.Code, detail string) *Error {
	status := 400
	if code == codes.HeadTooLarge {
		status = 431
	}
	return &Error{Code: code, Status: status, Detail: detail}
}
