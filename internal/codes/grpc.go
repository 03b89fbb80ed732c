// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package codes

// The status codes of gRPC that refusals have (the gRPC specification, "Status
// codes and their use in gRPC", doc/statuscodes.md).
const (
	grpcPermissionDenied  = 7
	grpcResourceExhausted = 8
	grpcInternal          = 13
	grpcUnavailable       = 14
)

// byGRPC says which status of gRPC stands for the HTTP status of a refusal. It is
// that of the gRPC specification ("HTTP to gRPC Status Code Mapping",
// doc/http-grpc-status-mapping.md) where that has one, but for these: a budget or
// rate is RESOURCE_EXHAUSTED, as in doc/statuscodes.md, and so is what is too
// large; UNAVAILABLE would tell clients to try again at once.
var byGRPC = map[int]int{
	400: grpcInternal,
	403: grpcPermissionDenied,
	413: grpcResourceExhausted,
	429: grpcResourceExhausted,
	431: grpcResourceExhausted,
	500: grpcInternal,
	502: grpcUnavailable,
	503: grpcUnavailable,
}

// GRPCStatusOf returns the status of gRPC of a refusal with code: never 0, which
// is success.
func GRPCStatusOf(code Code) int {
	if s, ok := byGRPC[StatusOf(code)]; ok {
		return s
	}
	return grpcPermissionDenied
}
