// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package uptls

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"bawn/internal/codes"
)

// An Error says why the other end of a connection is not to be talked to.
type Error struct {
	Code   codes.Code
	Detail string // for the operator; quotes what the server sent
	err    error
}

// Error gives the detail.
func (e *Error) Error() string { return e.Detail }

// Unwrap gives the error of the TLS library, if there was one.
func (e *Error) Unwrap() error { return e.err }

// What the TLS library calls the alerts that say more than "no"; the alerts
// themselves have no exported type. The test of codes has a server for each.
const (
	alertHandshakeFailure = "tls: handshake failure"
	alertProtocolVersion  = "tls: protocol version not supported"
	alertInsufficient     = "tls: insufficient security level"
	alertUnrecognizedName = "tls: unrecognized name"
	alertCertRequired     = "tls: certificate required"

	oldVersion = "tls: server selected unsupported protocol version"
)

// classify gives the error of a handshake its code.
func (h *handshake) classify(err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if alert, ok := alertOf(err); ok {
		return h.refusedBy(alert, err)
	}
	if broken(err) {
		return err
	}
	code := codes.UpstreamTLSInvalid
	if strings.HasPrefix(err.Error(), oldVersion) {
		code = codes.UpstreamTLSWeak
	}
	return &Error{Code: code, Detail: err.Error(), err: err}
}

// alertOf returns the alert by which the server ended the connection.
func alertOf(err error) (string, bool) {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return e.Err.Error(), true
	}
	return "", false
}

// refusedBy says what a server meant by an alert.
func (h *handshake) refusedBy(alert string, err error) *Error {
	e := &Error{Code: codes.UpstreamTLSInvalid, Detail: "the server ended the handshake: " + alert, err: err}
	switch {
	case alert == alertUnrecognizedName:
		e.Code, e.Detail = codes.UpstreamTLSWrongHost, "the server does not know the name: "+alert
	case alert == alertProtocolVersion, alert == alertInsufficient, alert == alertHandshakeFailure && !h.accepted:
		e.Code, e.Detail = codes.UpstreamTLSWeak, "the server shares neither a version nor a suite with what is offered: "+alert
	case h.presented:
		e.Detail = "the server refused the certificate that it was shown: " + alert
	case h.asked:
		e.Detail = wantsCertificate + alert
	}
	return e
}

// Late says what the failure of a verified connection means, if it is the
// server's word: with TLS 1.3 a server judges a certificate, or that there is
// none, only after the handshake.
func Late(err error) (*Error, bool) {
	alert, ok := alertOf(err)
	if !ok {
		return nil, false
	}
	e := &Error{Code: codes.UpstreamTLSInvalid, Detail: "the server ended the connection: " + alert, err: err}
	if alert == alertCertRequired {
		e.Detail = wantsCertificate + alert
	}
	return e, true
}

const wantsCertificate = "the server wants a certificate, and the rule has no credential: "

// broken reports whether a handshake failed because the connection did.
func broken(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, is := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}
