// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command client runs gRPC's own interoperability cases against HOST:PORT, all
// on one connection, and prints the name of each that passed. What fails ends
// the program. With a second argument it calls that one method and prints the
// status that came back.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func main() {
	if os.Args[1] == "-version" {
		fmt.Println(grpc.Version)
		return
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(target string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(credentials.NewTLS(nil)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.MaxCallSendMsgSize(16<<20)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if len(os.Args) > 2 {
		err := conn.Invoke(ctx, os.Args[2], &testpb.Empty{}, &testpb.Empty{})
		fmt.Printf("%s: %s\n", status.Code(err), status.Convert(err).Message())
		return nil
	}
	client := testgrpc.NewTestServiceClient(conn)
	if _, err := client.EmptyCall(ctx, &testpb.Empty{}); err != nil {
		return err // before interop's cases, which say less
	}
	for _, c := range []struct {
		name string
		run  func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)
	}{
		{"empty_unary", interop.DoEmptyUnaryCall},
		{"large_unary", interop.DoLargeUnaryCall},
		{"client_streaming", interop.DoClientStreaming},
		{"server_streaming", interop.DoServerStreaming},
		{"ping_pong", interop.DoPingPong},
		{"empty_stream", interop.DoEmptyStream},
		{"timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer},
		{"cancel_after_begin", interop.DoCancelAfterBegin},
		{"cancel_after_first_response", interop.DoCancelAfterFirstResponse},
		{"custom_metadata", interop.DoCustomMetadata},
		{"status_code_and_message", interop.DoStatusCodeAndMessage},
		{"special_status_message", interop.DoSpecialStatusMessage},
	} {
		c.run(ctx, client)
		fmt.Println(c.name)
	}
	interop.DoUnimplementedMethod(ctx, conn)
	fmt.Println("unimplemented_method")
	return own(ctx, client)
}

// own are cases that interop has not.
func own(ctx context.Context, client testgrpc.TestServiceClient) error {
	const size = 8 << 20
	reply, err := client.UnaryCall(ctx, &testpb.SimpleRequest{
		ResponseSize: size, Payload: &testpb.Payload{Body: make([]byte, size)},
	})
	if err != nil {
		return fmt.Errorf("8 MiB both ways: %w", err)
	}
	if n := len(reply.GetPayload().GetBody()); n != size {
		return fmt.Errorf("8 MiB both ways: %d bytes came back", n)
	}
	fmt.Println("8_mib_both_ways")
	var trailer metadata.MD
	const key = "x-grpc-test-echo-trailing-bin"
	out := metadata.AppendToOutgoingContext(ctx, key, "\xab\xab\xab")
	if _, err := client.UnaryCall(out, &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: int32(codes.NotFound), Message: "none"}}, grpc.Trailer(&trailer)); status.Code(err) != codes.NotFound {
		return fmt.Errorf("a status: %w", err)
	}
	if got := trailer.Get(key); len(got) != 1 || got[0] != "\xab\xab\xab" {
		return fmt.Errorf("trailers: %v", trailer)
	}
	fmt.Println("status_with_trailers")
	return nil
}
