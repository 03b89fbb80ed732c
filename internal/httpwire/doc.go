// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpwire reads and writes HTTP/1.1 messages, strictly, in both
// directions.
//
// The boundary judges what it parsed and sends what it judged. That only works
// if there is one way to read the bytes, so the reader refuses whatever two
// implementations could read differently, and the writer writes from the
// parsed form and never copies a head. net/http is too forgiving for this: it
// hides a Content-Length beside a Transfer-Encoding, bare line feeds, folded
// lines and trailers.
//
// # Use
//
// [Request.Read] and [Response.Read] read one head from a buffered reader and
// leave the reader at the first byte of the body, which a [Body] then reads.
// The values may be used again for the next message of the connection; their
// strings stay valid, their Fields slice does not. [AppendRequest] and
// [AppendResponse] write a head, a [BodyWriter] the body.
//
// After Read the fields and the framing agree: a Content-Length field holds
// plain digits, a Transfer-Encoding field holds "chunked", and neither is
// there without the other part. Change the framing by SetFraming only.
//
// # What is refused
//
// The table of refused forms, with the section of RFC 9112 or RFC 9110 that
// each follows from, is in refused_test.go: one row, one test.
//
// Two classes of malformed field are dropped instead of refused, when the
// field is not one that the boundary or the framing depends on: a name with
// blanks or control bytes around it, and a value with control bytes other than
// NUL, CR and LF. The field is neither judged nor sent, so both ends still see
// one message. [Request.Dropped] counts them.
//
// # Concurrency
//
// Nothing here is safe for use by more than one goroutine at a time, and
// nothing starts one.
package httpwire
