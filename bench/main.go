// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures what a request through Bawn costs, beside its peers.
//
// The scenario: 1 KB answers over connections that stay open, through CONNECT
// and TLS that the proxy ends on both sides. Every peer serves the same client
// and the same upstream, over lo of a host of its own; the
// requests are counted at the upstream, and the cost is the CPU time of all
// processes of the peer, from /proc. Bawn runs as it does for an operator, with
// policy, inspection and journal; squid with an ACL and its access log. All of
// it runs on the host of the tests' world.
//
//	bench -bawn ../bin/bawn
//
// It needs root, squid-openssl and iproute2. This module is apart from Bawn's
// own so that what the peers need does not become Bawn's dependency.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bawn/internal/world"
)

// settings are what the flags say.
type settings struct {
	bawn     string        // binary under test; empty: without Bawn as it is run
	peers    []string      // which, in this order
	runs     int           // of each peer, interleaved
	warm     time.Duration // before each measurement
	measure  time.Duration // each
	conns    int           // that stay open
	results  string        // directory for the report
	profiles string        // directory for CPU profiles of the bare egress plane; empty: none
}

func main() {
	world.Main()
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			exit(role(os.Args[2:]))
		}
	}
	s, err := parseFlags(os.Args[1:])
	if err != nil {
		os.Exit(2) // the flag package has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, s))
}

// roles are the processes that the bench starts of itself.
var roles = map[string]func(args []string) error{
	"origin":  originMain,
	"load":    loadMain,
	"floor":   floorMain,
	"goproxy": goproxyMain,
	"egress":  egressMain,
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parseFlags(args []string) (settings, error) {
	var s settings
	var peers string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&s.bawn, "bawn", "", "`path` of the bawn binary")
	fs.StringVar(&peers, "peers", "floor,bawn,squid,goproxy", "peers to run, in this order; there is egress as well: Bawn's egress plane alone")
	fs.IntVar(&s.runs, "runs", 3, "runs of each peer")
	fs.DurationVar(&s.warm, "warm", 2*time.Second, "time before each measurement")
	fs.DurationVar(&s.measure, "measure", 6*time.Second, "time of each measurement")
	fs.IntVar(&s.conns, "conns", 32, "connections")
	fs.StringVar(&s.results, "results", "results", "`directory` for the report")
	fs.StringVar(&s.profiles, "profiles", "", "`directory` for CPU profiles of the peer egress")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	for _, p := range strings.Split(peers, ",") {
		if !slices.Contains(peerNames(), p) {
			err := fmt.Errorf("peer %q is none of %s", p, strings.Join(peerNames(), ", "))
			fmt.Fprintln(os.Stderr, "bench:", err)
			return s, err
		}
		if p == "bawn" && s.bawn == "" {
			continue
		}
		s.peers = append(s.peers, p)
	}
	for _, p := range []*string{&s.bawn, &s.results, &s.profiles} { // the place is elsewhere
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return s, err
		}
		*p = abs
	}
	return s, nil
}
