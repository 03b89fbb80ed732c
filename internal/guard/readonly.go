// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bawn/internal/codes"
)

// ReadOnly lets through what is safe by the definition of RFC 9110 section
// 9.2.1 and carries nothing but its head: GET, HEAD and OPTIONS without a body.
// TRACE is safe too, but sends back what it was sent.
//
// What stands in the path and the query still reaches the receiver; keeping
// data out of those is not what this guard is for.
type ReadOnly struct{}

var _ Guard = ReadOnly{}

// Head judges by method and framing. A method override in a header field would
// make a write of a read for some frameworks.
func (ReadOnly) Head(r *Request) Verdict {
	switch r.Method {
	case "GET", "HEAD", "OPTIONS":
	default:
		return Refuse(codes.MethodNotAllowed, "method "+r.Method+" is not GET, HEAD or OPTIONS")
	}
	if r.HasBody {
		return Refuse(codes.BodyNotAllowed, "a request that only reads has no body")
	}
	for _, name := range []string{"x-http-method-override", "x-http-method", "x-method-override"} {
		if _, ok := r.Header.Get(name); ok {
			return Refuse(codes.HeaderInvalid, "field "+name+" asks for another method")
		}
	}
	return Verdict{Answer: Allow}
}

// Body refuses: Head never asks for it.
func (ReadOnly) Body(*Request) Verdict {
	return Refuse(codes.BodyNotAllowed, "a request that only reads has no body")
}
