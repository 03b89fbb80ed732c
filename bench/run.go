// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A sample is one measurement of one peer.
type sample struct {
	peer     string
	requests int64
	cpu      time.Duration // of the peer's processes
	took     time.Duration
}

// perRequest is the CPU time of one request.
func (s sample) perRequest() time.Duration { return s.cpu / time.Duration(max(s.requests, 1)) }

// perSecond is the rate that the machine reached, client and upstream included.
func (s sample) perSecond() float64 { return float64(s.requests) / s.took.Seconds() }

// run makes all measurements and reports.
func run(ctx context.Context, s settings) (err error) {
	b := &bench{s: s}
	if b.place, err = openPlace(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.place.w.Close()) }()
	if b.pki, err = makePKI(b.place, benchDir); err != nil {
		return err
	}
	origin, err := b.startSelf(ctx, "origin", b.pki.originPair)
	if err != nil {
		return err
	}
	b.origin = origin
	defer origin.stop()
	samples, err := b.all(ctx)
	if err != nil {
		return err
	}
	return report(s, samples)
}

func (b *bench) all(ctx context.Context) ([]sample, error) {
	var samples []sample
	for n := range b.s.runs {
		for _, name := range b.s.peers {
			got, err := b.measure(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("measuring %s: %w", name, err)
			}
			fmt.Fprintf(os.Stderr, "run %d %-8s %7d requests, %6.1f us CPU each, %6.0f/s\n",
				n+1, name, got.requests, us(got.perRequest()), got.perSecond())
			samples = append(samples, got)
		}
	}
	return samples, nil
}

// measure starts a peer, loads it, and takes one sample.
func (b *bench) measure(ctx context.Context, name string) (_ sample, err error) {
	p, err := starters[name](ctx, b)
	if p != nil {
		defer func() { err = errors.Join(err, p.end()) }()
	}
	if err != nil {
		return sample{}, err
	}
	if p.load == nil {
		p.load = b.place.command
	}
	load, err := start(p.load(ctx, benchFile, "load", "-proxy", p.proxy, "-roots", p.roots, "-conns", strconv.Itoa(b.s.conns)), "ready")
	if err != nil {
		return sample{}, err
	}
	got, err := b.sample(ctx, name, p)
	load.in.Close()
	return got, errors.Join(err, load.cmd.Wait())
}

func (b *bench) sample(ctx context.Context, name string, p *peer) (sample, error) {
	if err := sleep(ctx, b.s.warm); err != nil {
		return sample{}, err
	}
	before, err := b.read(p)
	if err != nil {
		return sample{}, err
	}
	if err := sleep(ctx, b.s.measure); err != nil {
		return sample{}, err
	}
	after, err := b.read(p)
	if err != nil {
		return sample{}, err
	}
	got := sample{
		peer: name, requests: after.requests - before.requests,
		cpu: after.cpu - before.cpu, took: after.at.Sub(before.at),
	}
	if got.requests == 0 {
		return got, errors.New("no request reached the upstream")
	}
	return got, nil
}

// A reading is the counters at one moment.
type reading struct {
	requests int64
	cpu      time.Duration
	at       time.Time
}

func (b *bench) read(p *peer) (reading, error) {
	if _, err := fmt.Fprintln(b.origin.in); err != nil {
		return reading{}, err
	}
	if !b.origin.out.Scan() {
		return reading{}, errors.New("the upstream has ended")
	}
	n, err := strconv.ParseInt(b.origin.out.Text(), 10, 64)
	if err != nil {
		return reading{}, err
	}
	cpu, err := cpuOf(p.pid)
	return reading{n, cpu, time.Now()}, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
