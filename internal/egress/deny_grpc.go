// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"fmt"
	"strconv"
	"strings"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
	"bawn/internal/verdict"
)

// callsGRPC reports whether a request of HTTP/2 is a call of gRPC, whose client
// reads the outcome in grpc-status and shows nothing of another answer: one with
// that content type and te: trailers, which every client of gRPC sends. Anything
// else might take the 200 of such an answer for success.
func callsGRPC(q *httpwire.Request) bool {
	te, _ := q.Fields.Get("te")
	return te == "trailers" && q.Method == "POST" && isGRPC(q.Fields)
}

// grpcDenial makes the refusal of a call of gRPC, as its client understands it: a
// header list that is the trailers as well ("Trailers-Only", gRPC over HTTP2),
// with HTTP status 200 and in it the status of the call.
func (x *exchange) grpcDenial(v verdict.Verdict, why, agent string) *httpwire.Response {
	says := fmt.Sprintf("%s: %s %s (asked: %s; request %s)", v.Why(), why, agent, x.asked(), x.rec.Request)
	return &httpwire.Response{Status: 200, Reason: "OK", Fields: httpwire.Fields{
		{Name: "Content-Type", Value: "application/grpc"},
		{Name: "Grpc-Status", Value: strconv.Itoa(codes.GRPCStatusOf(v.Why()))},
		{Name: "Grpc-Message", Value: grpcMessage(says)},
		{Name: "Bawn-Code", Value: string(v.Why())},
	}}
}

// grpcMessage encodes s as gRPC has it: what is not printable ASCII, and the
// percent sign, as percent and two hexadecimal digits.
func grpcMessage(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
