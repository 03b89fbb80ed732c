// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

var (
	// ErrFull says that the server allows no more streams for now, or has not
	// taken the heads of those before.
	ErrFull = errors.New("the server allows no more streams for now")
	// ErrGone says that the connection takes no more streams. A stream that
	// ends with it was not processed by the server.
	ErrGone = errors.New("the connection takes no more requests")
	// ErrReset is what remains of a stream after a Reset from this side.
	ErrReset = errors.New("the stream was reset from this side")

	errClosed = errors.New("the connection was closed from this side")
	errEnded  = errors.New("the stream has been written to its end")
)

// A ConnError is what a peer did that ends the connection.
type ConnError struct {
	Code   codes.Code
	HTTP2  http2.ErrCode // as it was said to the peer
	Detail string
}

// Error gives the codes and the detail.
func (e *ConnError) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.Code, e.Detail, e.HTTP2)
}

// violation makes the error for a breach of the protocol.
func violation(code http2.ErrCode, detail string) *ConnError {
	return &ConnError{Code: codes.ProtocolError, HTTP2: code, Detail: detail}
}

// flood makes the error for a peer that asks for too much of something.
func flood(what string) *ConnError {
	return &ConnError{Code: codes.RateLimited, HTTP2: http2.ErrCodeEnhanceYourCalm, Detail: "too many " + what}
}

// A ResetError is a stream that the peer has reset.
type ResetError struct{ Code http2.ErrCode }

// Error gives the peer's code.
func (e *ResetError) Error() string { return "the peer reset the stream: " + e.Code.String() }

// NotProcessed reports whether err says that the server did nothing about the
// request: the stream was refused, or opened after the server's last.
func NotProcessed(err error) bool {
	if errors.Is(err, ErrGone) {
		return true
	}
	e, ok := errors.AsType[*ResetError](err)
	return ok && e.Code == http2.ErrCodeRefusedStream
}

// truncated says of a body that it ended before its end, and why.
func truncated(why error) *httpwire.Error {
	if e, ok := errors.AsType[*httpwire.Error](why); ok {
		return e
	}
	return httpwire.Refuse(codes.BodyTruncated, why.Error())
}
