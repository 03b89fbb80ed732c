// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"bawn/internal/addr"
	"bawn/internal/audit"
	"bawn/internal/ca"
	"bawn/internal/dnsclient"
	"bawn/internal/egress"
	"bawn/internal/ids"
	"bawn/internal/netplan"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// egressRoot is the file of the root that the peer egress mints under.
const egressRoot = "root.crt"

// egressMain is Bawn's egress plane alone, wired to policy, journal and CA as
// the proxy wires it, without the processes around it. It can be profiled; what
// is compared with others is Bawn as an operator runs it.
func egressMain(args []string) error {
	fs := flag.NewFlagSet("egress", flag.ContinueOnError)
	listen := fs.String("listen", "", "address to listen on")
	dir := fs.String("dir", "", "directory for state")
	roots := fs.String("roots", "", "roots of the upstream")
	profileTo := fs.String("profile", "", "directory for profiles")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	server, journal, err := newEgress(*dir, *roots)
	if err != nil {
		return err
	}
	defer journal.Close()
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	end, err := profile(*profileTo)
	if err != nil {
		return err
	}
	defer end()
	fmt.Println("ready")
	return server.Serve(ctx, ln, egress.Source{Identity: benchIdentity, Arrival: netplan.Explicit})
}

var benchIdentity = ids.Identity{
	Slot: 1, Gen: ids.Generation{Epoch: 1, Count: 1}, Session: "s-0123456789abcdef", Agent: agentName(0), User: "bench",
}

func newEgress(dir, roots string) (*egress.Server, *audit.Journal, error) {
	minter, err := newMinter(dir)
	if err != nil {
		return nil, nil, err
	}
	pool, err := loadRoots(roots)
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Load([]byte(benchPolicy(agentName(0))), policy.Known{AnyAgent: true})
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	journal, err := audit.OpenJournal(dir, audit.Options{Plane: "proxy", Log: log, AgentFlow: -1})
	if err != nil {
		return nil, nil, err
	}
	return egress.New(egress.Config{
		Policies: fixedPolicy{p}, Recorder: journal, Minter: minter, Roots: pool, Log: log,
		Limits:   egress.Limits{Connections: descriptors()},
		Resolver: dnsclient.New(dnsclient.Options{Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}}),
		Vet:      func() addr.Vet { return addr.Vet{Never: []netip.Prefix{netplan.Synthetic, netplan.UIDProxies}} },
	}), journal, nil
}

func newMinter(dir string) (*ca.Minter, error) {
	root, err := ca.OpenRoot(dir, nil)
	if err != nil {
		return nil, err
	}
	if err := ca.WriteFile(filepath.Join(dir, egressRoot), root.Certificate(), 0o644); err != nil {
		return nil, err
	}
	req, err := ca.NewRequest("Bawn egress intermediate")
	if err != nil {
		return nil, err
	}
	chain, err := root.SignIntermediate(req.CSR())
	if err != nil {
		return nil, err
	}
	issuer, err := req.Complete(chain, time.Now())
	if err != nil {
		return nil, err
	}
	return ca.NewMinter(issuer, nil)
}

// fixedPolicy is a policy that never changes.
type fixedPolicy struct{ p *policy.Policy }

func (f fixedPolicy) Current() (*policy.Policy, uint64, verdict.Verdict) {
	return f.p, 1, verdict.Verdict{Effect: verdict.Allow}
}

func (fixedPolicy) Changed() <-chan struct{} { return nil }

const benchAgent = "bench"

// benchPolicy is of the size that an agent's policy has: some thirty rules,
// among them those that let the bench through, which methods and paths narrow.
// Messages of the WebSocket rows must be JSON.
func benchPolicy(agents ...string) string {
	var b strings.Builder
	b.WriteString("version: 1\nprofiles:\n  coder:\n    rules:\n")
	for i := range 30 {
		fmt.Fprintf(&b, "      - {host: service-%d.example.net, methods: [GET, POST], paths: [\"/api/v%d/**\"]}\n", i, i)
	}
	for _, host := range []string{originHost, originH2} {
		fmt.Fprintf(&b, "      - {host: %s, methods: [GET, POST], paths: [\"%s**\"], addresses: [%s/32], websocket: true}\n", host, allowedPath, originAddr)
	}
	for _, row := range []string{"ws-echo", "ws-echo-deflate"} { // each message is judged there
		fmt.Fprintf(&b, "      - {host: %s, methods: [GET], paths: [\"%s%s/**\"], addresses: [%s/32], websocket: true, guard: json}\n", originHost, allowedPath, row, originAddr)
	}
	fmt.Fprintf(&b, "      - {host: %s, inspect: sni, addresses: [%s/32]}\n", spliceHost, originAddr)
	b.WriteString("      - deny: {host: files.example.net}\nagents:\n")
	for _, a := range agents {
		fmt.Fprintf(&b, "  %s: {profile: coder}\n", a)
	}
	return b.String()
}

// profile writes profiles into a directory: of the CPU until the returned
// function is called, which costs about one part in a hundred, and of the heap
// where it was largest. Without a directory it does nothing.
func profile(dir string) (end func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	go largestHeap(filepath.Join(dir, "heap.pprof"))
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// largestHeap looks once a second.
func largestHeap(name string) {
	var largest uint64
	for range time.Tick(time.Second) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapInuse+m.StackInuse <= largest+largest/10 {
			continue
		}
		largest = m.HeapInuse + m.StackInuse
		f, err := os.Create(name)
		if err != nil {
			return
		}
		pprof.WriteHeapProfile(f) //nolint:errcheck // a profile less
		f.Close()
		fmt.Fprintf(os.Stderr, "egress: heap %d MB, stacks %d MB, %d goroutines\n", m.HeapInuse>>20, m.StackInuse>>20, runtime.NumGoroutine())
	}
}
