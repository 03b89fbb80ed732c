// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"bawn/internal/ids"
)

// A prober knows what its tries need.
type prober struct {
	Config
	enclosed bool // no link leads anywhere: every TCP connection ends at Bawn's own listener
	links    Try
}

// A trial is one thing to try.
type trial func(ctx context.Context) Try

// concurrency bounds the tries in flight: they share one place's limits.
const concurrency = 64

// Run makes all tries, a few dozen at once, and writes each as a line of JSON
// when it is through. It takes little longer than the slowest try.
func Run(ctx context.Context, c Config, out io.Writer) error {
	p := &prober{Config: c}
	p.lookAtLinks()
	trials := p.trials()
	done := make(chan Try)
	places := make(chan struct{}, concurrency)
	var all sync.WaitGroup
	for _, try := range trials {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			limited, cancel := context.WithTimeout(ctx, c.Timeout)
			defer cancel()
			done <- try(limited)
		})
	}
	go func() {
		all.Wait()
		close(done)
	}()
	enc := json.NewEncoder(out)
	err := enc.Encode(p.links)
	for t := range done {
		if err == nil {
			err = enc.Encode(t)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the probe's lines: %w", err)
	}
	return ctx.Err()
}

// lookAtLinks looks whether anything but the loopback is there.
func (p *prober) lookAtLinks() {
	p.links = Try{Check: CheckLinks, Target: "links", Outcome: Blocked, Detail: "lo alone"}
	links, err := net.Interfaces()
	if err != nil {
		p.links.Outcome, p.links.Detail = GotOut, err.Error()
		return
	}
	for _, l := range links {
		if l.Flags&net.FlagLoopback == 0 {
			p.links.Outcome, p.links.Detail = GotOut, l.Name
			return
		}
	}
	p.enclosed = p.Placement == ids.PlacementNetns
}

// trials lists everything to try.
func (p *prober) trials() []trial {
	var list []trial
	add := func(t ...trial) { list = append(list, t...) }
	for _, a := range p.TCP {
		add(p.tcp(CheckTCP, a))
	}
	for _, a := range p.UDP {
		add(p.udp(a))
	}
	for _, a := range p.Ping {
		add(p.ping(a, true), p.ping(a, false))
	}
	for _, a := range p.otherResolvers() {
		add(p.ask(CheckDNS, "udp", a), p.ask(CheckDNS, "tcp", a))
	}
	for _, a := range p.Nameservers {
		add(p.ask(CheckResolver, "udp", a), p.ask(CheckResolver, "tcp", a))
	}
	for _, a := range p.Metadata {
		add(p.tcp(CheckMetadata, netip.AddrPortFrom(a, 80)))
		add(p.byProxy("GET", "http://"+netip.AddrPortFrom(a, 80).String()+"/latest/meta-data/", netip.AddrPortFrom(a, 80).String()))
	}
	for _, a := range p.Loopback {
		if a != p.Proxy {
			add(p.tcp(CheckLoopback, a))
		}
	}
	for _, path := range p.Services {
		add(p.local(CheckServices, path))
	}
	for _, path := range p.Own {
		add(p.local(CheckOwn, path))
	}
	add(p.abstracts()...)
	add(kernelTrials()...)
	add(
		p.byProxy("CONNECT", p.Canary+":443", p.Canary+":443"),
		p.byProxy("GET", "http://"+p.Canary+"/", p.Canary),
		p.byProxy("CONNECT", "1.1.1.1:443", "1.1.1.1:443"),
		p.certificate(p.CA), p.certificate(p.Bundle),
	)
	return list
}
