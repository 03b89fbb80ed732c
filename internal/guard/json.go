// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"strings"

	"bawn/internal/codes"
	"bawn/internal/strictjson"
)

// JSON lets through what is one JSON document that every reader reads alike:
// each body, which has to say that it is JSON, and each WebSocket message, which
// has to be a text. It does not judge what the document says, nor requests
// without a body.
type JSON struct{}

var _ MessageGuard = JSON{}

// Head judges the type of the body and asks for it.
func (JSON) Head(r *Request) Verdict {
	if !r.HasBody {
		return Verdict{Answer: Allow}
	}
	declared, ok := r.Header.Get("content-type")
	if !ok || !isJSON(declared) {
		return Refuse(codes.ContentTypeDenied, "Content-Type "+declared)
	}
	return Verdict{Answer: NeedBody}
}

// Body judges the document.
func (JSON) Body(r *Request) Verdict { return document(r.Body) }

// Message judges a message, which is one document.
func (JSON) Message(m *Message) Verdict {
	if m.Binary {
		return Refuse(codes.WebSocketUninspectable, "a binary message where texts are expected")
	}
	return document(m.Data)
}

func document(data []byte) Verdict {
	err := strictjson.Check(data, strictjson.Limits{})
	if err == nil {
		return Verdict{Answer: Allow}
	}
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		return Refuse(e.Code, err.Error())
	}
	return Refuse(codes.BodyNotJSON, err.Error())
}

// isJSON reports whether a Content-Type is application/json or one of its kind
// (RFC 6839 section 3.1), in the one encoding that JSON has.
func isJSON(value string) bool {
	media, params, more := strings.Cut(strings.ToLower(value), ";")
	media = strings.TrimSpace(media)
	kind, ok := strings.CutPrefix(media, "application/")
	if !ok || kind != "json" && (!strings.HasSuffix(kind, "+json") || strings.ContainsAny(kind, " \t,\"")) {
		return false
	}
	params = strings.TrimSpace(params)
	return !more || params == "charset=utf-8" || params == `charset="utf-8"`
}
