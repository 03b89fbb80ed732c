// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package h2head turns the header lists of HTTP/2 into the heads that the rest
// of the boundary knows, and back.
//
// A head that came by HTTP/2 may leave by HTTP/1.1, where a line break in a
// value is a field of its own and a second length is a second request. So the
// list is held to the rules of both: to RFC 9113 section 8 for what HTTP/2
// forbids, and to package httpwire for everything that it would refuse in the
// same head as text. What [Request] and [Response] accept reads the same when
// httpwire writes it; the fuzz targets hold them to that.
//
// Nothing is left out as malformed, with one exception: in responses the blanks
// around a value go, since servers send them and clients must not see them.
//
// Where the framing is Chunked no field says so: HTTP/2 has none. Who sends
// such a head by HTTP/1.1 calls SetFraming first.
package h2head
