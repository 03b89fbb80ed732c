// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command server is gRPC's own interoperability server over TLS:
// server ADDRESS:PORT CERTIFICATE KEY.
package main

import (
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	creds, err := credentials.NewServerTLSFromFile(os.Args[2], os.Args[3])
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.Creds(creds), grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	return s.Serve(ln)
}
