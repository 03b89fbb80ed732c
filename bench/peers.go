// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"bawn/internal/world/operator"
)

// A bench is what all runs share.
type bench struct {
	s      settings
	place  *place
	pki    pki
	origin *part
	op     *operator.Operator // of Bawn, once it has run
	agents int                // of Bawn, that there are
}

// A peer is a proxy that runs.
type peer struct {
	name  string
	pid   int          // of the process above all of its processes; 0: it has none
	end   func() error // stops it
	proxy string       // address for clients
	roots string       // file of those that clients are to trust
	// lines counts what the peer has put on record of units whose path or host
	// holds a word; nil: it records nothing.
	lines func(word string) (int64, error)
	// client prepares the n-th client process; nil: it runs beside the peer.
	client func(ctx context.Context, n int, argv ...string) *exec.Cmd
	// connsEach bounds the connections of one client process; 0: as many as
	// there are.
	connsEach int
}

// A maker starts peers, and says what they cannot do.
type maker struct {
	name  string
	start func(ctx context.Context, b *bench) (*peer, error)
	// cannot returns why a row is none for the peer, or "".
	cannot func(r *row) string
	// descriptors is how many an idle connection of each kind takes in one
	// process of the peer.
	descriptors map[string]int
}

// makers are in the order in which they are measured.
var makers = []maker{
	{"direct", startDirect, onlyLatency, nil},
	{"floor", startFloor, floorCannot, map[string]int{"idle": 2, "idlews": 2, "idlesplice": 6}},
	{"bawn", startBawn, bawnCannot, map[string]int{"idle": 1, "idlews": 2, "idlesplice": 2}},
	{"egress", startEgress, bawnCannot, map[string]int{"idle": 1, "idlews": 2, "idlesplice": 2}},
	{"squid", startSquid, squidCannot, map[string]int{"idle": 2, "idlesplice": 2}},
	{"goproxy", startGoproxy, goproxyCannot, map[string]int{"idle": 1, "idlesplice": 6}},
	{"mitmproxy", startMitmproxy, mitmproxyCannot, map[string]int{"idle": 2, "idlesplice": 2}},
}

func makerOf(name string) *maker {
	for i := range makers {
		if makers[i].name == name {
			return &makers[i]
		}
	}
	return nil
}

// Where peers listen.
const (
	floorAddr   = "127.0.0.1:3101"
	squidAddr   = "127.0.0.1:3102"
	goproxyAddr = "127.0.0.1:3103"
	mitmAddr    = "127.0.0.1:3104"
	egressAddr  = "127.0.0.1:3105"
)

func startDirect(context.Context, *bench) (*peer, error) {
	return &peer{name: "direct", end: func() error { return nil }, roots: benchDir + "/origin-root.pem"}, nil
}

func onlyLatency(r *row) string {
	switch {
	case !r.open:
		return "no peer: what latencies are measured from"
	case r.half():
		return "measured at the rate of each peer"
	}
	return ""
}

func startFloor(ctx context.Context, b *bench) (*peer, error) {
	return b.startRole(ctx, "floor", floorAddr, b.pki.peerRoot, "floor", "-listen", floorAddr, "-pair", b.pki.peerPair, "-roots", b.pki.originRoot)
}

func floorCannot(r *row) string {
	if r.kind == "deny" {
		return "judges nothing"
	}
	return ""
}

func startGoproxy(ctx context.Context, b *bench) (*peer, error) {
	dir, err := b.place.freshDir("goproxy")
	if err != nil {
		return nil, err
	}
	log := dir + "/access.log"
	p, err := b.startRole(ctx, "goproxy", goproxyAddr, b.pki.peerRoot, "goproxy", "-listen", goproxyAddr, "-ca", b.pki.peerCA, "-roots", b.pki.originRoot, "-log", log)
	if err == nil {
		p.lines = countLines(b.place.outside(log))
	}
	return p, err
}

func goproxyCannot(r *row) string {
	switch {
	case r.proto == "h2":
		return "with AllowHTTP2 it relays frames that its handlers never see: nothing is judged or logged"
	case r.proto == "ws":
		return "copies octets after the 101, unread"
	}
	return ""
}

// startRole starts a peer that is a role of this program.
func (b *bench) startRole(ctx context.Context, name, addr, roots string, args ...string) (*peer, error) {
	p, err := b.startSelf(ctx, args...)
	if err != nil {
		return nil, err
	}
	return &peer{name: name, pid: p.cmd.Process.Pid, end: p.stop, proxy: addr, roots: roots}, nil
}

func startEgress(ctx context.Context, b *bench) (*peer, error) {
	dir, err := b.place.freshDir("egress")
	if err != nil {
		return nil, err
	}
	args := []string{"egress", "-listen", egressAddr, "-dir", dir, "-roots", b.pki.originRoot}
	if b.s.profiles != "" {
		args = append(args, "-profile", dir)
	}
	p, err := b.startRole(ctx, "egress", egressAddr, dir+"/"+egressRoot, args...)
	if err != nil {
		return nil, err
	}
	p.lines = countDecisions(b.place.outside(dir))
	if b.s.profiles == "" {
		return p, nil
	}
	stop := p.end
	p.end = func() error {
		err := errors.Join(stop(), os.MkdirAll(b.s.profiles, 0o755))
		for _, what := range []string{"cpu", "heap"} {
			to := filepath.Join(b.s.profiles, filepath.Base(dir)+"."+what+".pprof")
			err = errors.Join(err, copyFile(b.place.outside(dir+"/"+what+".pprof"), to))
		}
		return err
	}
	return p, nil
}

// A part is a process of the bench.
type part struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startSelf starts one of this program's roles in the place.
func (b *bench) startSelf(ctx context.Context, args ...string) (*part, error) {
	return start(b.place.command(ctx, append([]string{benchFile}, args...)...), "ready")
}

// start starts a process and waits for a line on its standard output. The end
// of its standard input is its end.
func start(cmd *exec.Cmd, ready string) (*part, error) {
	name := nameOf(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &part{cmd, in, bufio.NewScanner(out)}
	for p.out.Scan() {
		if strings.Contains(p.out.Text(), ready) {
			return p, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("starting %s: it ended", name), cmd.Wait())
}

// nameOf leaves out how a command gets into its place.
func nameOf(cmd *exec.Cmd) string {
	argv := cmd.Args
	for i, a := range argv {
		if a == benchFile {
			argv = argv[i:]
			break
		}
	}
	text := strings.Join(argv, " ")
	return text[max(0, len(text)-300):]
}

// ask sends a line and returns the one that answers.
func (p *part) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return "", fmt.Errorf("asking %s: %w", nameOf(p.cmd), err)
	}
	if !p.out.Scan() {
		return "", fmt.Errorf("%s has ended", nameOf(p.cmd))
	}
	return p.out.Text(), nil
}

// stop ends the process and waits for it.
func (p *part) stop() error {
	p.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case <-ended: // how it ends does not matter any more
		return nil
	case <-time.After(15 * time.Second):
		return errors.Join(fmt.Errorf("%s did not end", nameOf(p.cmd)), p.cmd.Cancel())
	}
}
