// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
)

// clients are the processes of one load.
type clients struct{ parts []*part }

func (b *bench) clients(ctx context.Context, r *row, p *peer, conns int, rate float64) (*clients, error) {
	each := conns
	if p.connsEach > 0 {
		each = min(conns, p.connsEach)
	}
	command := p.client
	if command == nil {
		command = b.beside
	}
	c := &clients{}
	for n := 0; conns > 0; n++ {
		argv := []string{
			benchFile, "load", "-kind", r.kind, "-proxy", p.proxy, "-roots", p.roots, "-spliceroots", b.pki.originRoot,
			"-path", r.path(), "-conns", strconv.Itoa(min(each, conns)), "-streams", strconv.Itoa(max(r.streams, 1)),
			"-rate", strconv.FormatFloat(rate, 'f', -1, 64), "-deflate=" + strconv.FormatBool(r.deflate),
		}
		if r.host != "" {
			argv = append(argv, "-host", r.host)
		}
		conns -= each
		one, err := start(command(ctx, n, argv...), "ready")
		if err != nil {
			_, endErr := c.end()
			return nil, errors.Join(err, endErr)
		}
		c.parts = append(c.parts, one)
	}
	return c, nil
}

// units is what all of them have got through.
func (c *clients) units() (total int64, err error) {
	for _, p := range c.parts {
		text, err := p.ask("")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// beside prepares a client that runs beside its peer.
func (b *bench) beside(ctx context.Context, _ int, argv ...string) *exec.Cmd {
	return b.place.command(ctx, argv...)
}

// end ends them and returns what all of them got through. Latencies are those
// of the first: rows that measure them have one.
func (c *clients) end() (result, error) {
	var total result
	var errs []error
	for i, p := range c.parts {
		p.in.Close()
		var one result
		for p.out.Scan() { // a number may have been on its way
			if err := json.Unmarshal(p.out.Bytes(), &one); err == nil {
				break
			}
		}
		if err := p.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("client: %w", err))
		}
		total.Units += one.Units
		total.Whole += one.Whole
		if i == 0 {
			total.Latency = one.Latency
		}
	}
	return total, errors.Join(errs...)
}
