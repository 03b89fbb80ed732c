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
	"slices"
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
	return slices.Concat(p.networkTrials(), p.serviceTrials(), p.gateTrials(), p.abstracts(), kernelTrials(), protocolTrials(), p.rightsTrials())
}

// networkTrials aim at what the network place must not reach.
func (p *prober) networkTrials() (list []trial) {
	add := func(t ...trial) { list = append(list, t...) }
	for _, a := range p.TCP {
		add(p.tcp(CheckTCP, a))
	}
	for _, a := range p.UDP {
		add(p.udp(CheckUDP, a))
	}
	for _, a := range p.Ping {
		add(p.ping(a, true), p.ping(a, false))
	}
	for _, a := range p.otherResolvers() {
		add(p.ask(CheckDNS, "udp", a), p.ask(CheckDNS, "tcp", a))
	}
	for _, a := range p.Metadata {
		at := netip.AddrPortFrom(a, 80)
		add(p.tcp(CheckMetadata, at), p.byProxy(CheckProxy, "GET", "http://"+at.String()+"/latest/meta-data/", at.String()))
	}
	for _, a := range p.Loopback {
		if a != p.Proxy {
			add(p.tcp(CheckLoopback, a))
		}
	}
	for _, a := range p.Datagrams {
		add(p.udp(CheckLoopback, a))
	}
	return append(list, p.sourceTrials()...)
}

// serviceTrials aim at what the file system must not show.
func (p *prober) serviceTrials() (list []trial) {
	for _, path := range p.Services {
		list = append(list, p.local(CheckServices, path))
	}
	for _, path := range p.Own {
		list = append(list, p.local(CheckOwn, path))
	}
	for _, path := range p.Files {
		list = append(list, ownFile(path))
	}
	return append(list, p.certificate(p.CA), p.certificate(p.Bundle))
}

// gateTrials ask for the canary, on every path that there is.
func (p *prober) gateTrials() []trial {
	list := []trial{
		p.canary(p.byProxy(CheckProxy, "CONNECT", p.Canary+":443", p.Canary+":443")),
		p.canary(p.byProxy(CheckProxy, "GET", "http://"+p.Canary+"/", p.Canary)),
		p.byProxy(CheckProxy, "CONNECT", "192.0.2.1:443", "192.0.2.1:443"),
		p.byProxy(CheckProxy, "GET", "http://192.0.2.1/", "192.0.2.1"),
	}
	for _, a := range p.Nameservers {
		list = append(list, p.canary(p.ask(CheckResolver, "udp", a)), p.canary(p.ask(CheckResolver, "tcp", a)))
	}
	if p.Placement == ids.PlacementNetns {
		for _, port := range []uint16{443, 80} { // a greeting with the canary's name, and a Host field
			list = append(list, p.tcp(CheckTransparent, netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, 7}), port)))
		}
	}
	return list
}

// canary marks a try that names the canary.
func (p *prober) canary(try trial) trial {
	return func(ctx context.Context) Try {
		t := try(ctx)
		t.Canary = true
		return t
	}
}
