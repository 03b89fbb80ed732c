// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

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
	if b.origin, err = b.startSelf(ctx, "origin", b.pki.originPair); err != nil {
		return err
	}
	defer b.origin.stop() //nolint:errcheck // the world ends it
	samples, err := b.all(ctx)
	if err != nil {
		return err
	}
	return report(s, samples)
}

// all measures row by row, all peers of a row one after the other, and that as
// often as there are runs: so what else the machine does hits all alike.
func (b *bench) all(ctx context.Context) (samples []sample, err error) {
	open := map[string]*peer{}
	defer func() {
		for _, p := range open {
			err = errors.Join(err, p.end())
		}
	}()
	for n := range b.s.runs {
		capacity := map[string]float64{}
		for _, r := range b.s.rows {
			if r.once && n > 0 {
				continue
			}
			for _, name := range b.s.peers {
				got := b.cell(ctx, r, name, open, capacity)
				if ctx.Err() != nil {
					return samples, ctx.Err()
				}
				got.run = n
				fmt.Fprintln(os.Stderr, got.line())
				samples = append(samples, got)
			}
		}
	}
	return samples, nil
}

// cell takes one sample of one peer. After a failure the peer is started anew
// for its next row.
func (b *bench) cell(ctx context.Context, r *row, name string, open map[string]*peer, capacity map[string]float64) sample {
	got := sample{row: r, peer: name}
	m := makerOf(name)
	if got.skipped = m.skips(r); got.skipped != "" {
		return got
	}
	err := func() (err error) {
		if r.fresh {
			if err := closePeer(open, name); err != nil {
				return err
			}
		}
		p := open[name]
		if p == nil {
			if p, err = m.start(ctx, b); err != nil {
				return err
			}
			open[name] = p
		}
		rate, why, err := b.rateOf(ctx, r, p, capacity)
		if got.skipped = why; err != nil || why != "" {
			return err
		}
		if r.fresh {
			return b.memory(ctx, r, m, p, &got)
		}
		return b.measure(ctx, r, p, rate, &got)
	}()
	if err == nil && r.kind == "h1" && r.host == "" {
		capacity[name] = got.perSecond()
	}
	if err != nil {
		got.failed = oneLine(err)
		closePeer(open, name) //nolint:errcheck // it has failed already
	}
	return got
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func closePeer(open map[string]*peer, name string) error {
	p := open[name]
	if p == nil {
		return nil
	}
	delete(open, name)
	return p.end()
}

// skips returns why a row is none for the peer, or "".
func (m *maker) skips(r *row) string {
	if r.only != "" && r.only != m.name && !(r.only == "bawn" && m.name == "egress") {
		return "a row about " + r.only
	}
	return m.cannot(r)
}

// rateOf returns the arrivals a second of an open row; why says that the peer
// cannot do as many.
func (b *bench) rateOf(ctx context.Context, r *row, p *peer, capacity map[string]float64) (rate float64, why string, err error) {
	if r.kind != "h1open" || p.name == "direct" {
		return r.rate, "", nil
	}
	if capacity[p.name] == 0 {
		got := sample{row: &calibration}
		if err := b.measure(ctx, &calibration, p, 0, &got); err != nil {
			return 0, "", err
		}
		capacity[p.name] = got.perSecond()
	}
	can := capacity[p.name]
	switch {
	case r.rate == 0:
		return can / 2, "", nil
	case r.rate > 0.8*can:
		return 0, fmt.Sprintf("does %.0f/s at most here", can), nil
	}
	return r.rate, "", nil
}

// measure loads a peer and takes one sample of its CPU.
func (b *bench) measure(ctx context.Context, r *row, p *peer, rate float64, got *sample) error {
	if r.half() {
		// What there is without a peer, at the same rate.
		if err := b.baseline(ctx, r, rate, got); err != nil {
			return err
		}
	}
	proof, err := b.proof(r, p)
	if err != nil {
		return err
	}
	c, err := b.clients(ctx, r, p, r.conns, rate)
	if err != nil {
		return err
	}
	err = b.sample(ctx, c, p, got)
	total, endErr := c.end()
	if err := errors.Join(err, endErr); err != nil {
		return err
	}
	got.latency = total.Latency
	return proof.check(total.Whole)
}

func (b *bench) baseline(ctx context.Context, r *row, rate float64, got *sample) error {
	direct, err := startDirect(ctx, b)
	if err != nil {
		return err
	}
	c, err := b.clients(ctx, r, direct, r.conns, rate)
	if err != nil {
		return err
	}
	err = b.sample(ctx, c, direct, &sample{})
	total, endErr := c.end()
	got.baseline = total.Latency
	return errors.Join(err, endErr)
}

// sample waits, and takes what happens between two readings.
func (b *bench) sample(ctx context.Context, c *clients, p *peer, got *sample) error {
	if err := sleep(ctx, b.s.warm); err != nil {
		return err
	}
	before, err := read(c, p)
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.s.measure); err != nil {
		return err
	}
	after, err := read(c, p)
	if err != nil {
		return err
	}
	got.units, got.cpu, got.took = after.units-before.units, after.cpu-before.cpu, after.at.Sub(before.at)
	if got.units == 0 {
		return errors.New("nothing got through")
	}
	return nil
}

// A reading is the counters at one moment.
type reading struct {
	units int64
	cpu   time.Duration
	at    time.Time
}

func read(c *clients, p *peer) (reading, error) {
	n, err := c.units()
	if err != nil {
		return reading{}, err
	}
	if p.pid == 0 {
		return reading{units: n, at: time.Now()}, nil
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

// memory opens connections and sees what the peer's processes grow by.
func (b *bench) memory(ctx context.Context, r *row, m *maker, p *peer, got *sample) error {
	one := *r
	one.conns = 10
	if c, err := b.clients(ctx, &one, p, one.conns, 0); err != nil { // what every peer needs once
		return err
	} else if _, err := c.end(); err != nil {
		return err
	}
	proof, err := b.proof(r, p)
	if err != nil {
		return err
	}
	n := r.conns
	if each := m.each(r); each > 0 {
		n = min(n, (descriptors()-reserved)/each)
	}
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	if got.before, err = memoryOf(p.pid); err != nil {
		return err
	}
	c, err := b.clients(ctx, r, p, n, 0)
	if err != nil {
		return err
	}
	err = sleep(ctx, b.s.idle)
	if err == nil {
		got.after, err = memoryOf(p.pid)
	}
	total, endErr := c.end()
	got.units = total.Units
	if err := errors.Join(err, endErr); err != nil {
		return err
	}
	if got.units != int64(n) {
		return fmt.Errorf("%d of %d connections", got.units, n)
	}
	return proof.check(got.units)
}

// reserved are descriptors that a peer needs besides.
const reserved = 1000

// each is how many descriptors one connection of the row takes.
func (m *maker) each(r *row) int {
	if r.host == spliceHost {
		return m.descriptors["idlesplice"]
	}
	if r.kind == "idlemix" {
		return 0 // a third takes one, two thirds two
	}
	return m.descriptors[r.kind]
}
