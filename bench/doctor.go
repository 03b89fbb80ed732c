// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"bawn/internal/world/operator"
)

// doctorMain measures what one self-test costs: all of Bawn's processes and the
// probes, less what they use in as much time without one.
func doctorMain(args []string) error {
	fs := flag.NewFlagSet("doctor", flag.ContinueOnError)
	binary := fs.String("bawn", "", "`path` of the bawn binary")
	runs := fs.Int("runs", 20, "self-tests")
	if err := fs.Parse(args); err != nil {
		return err
	}
	path, err := filepath.Abs(*binary)
	if err != nil {
		return err
	}
	ctx := context.Background()
	p, err := openPlace(ctx)
	if err != nil {
		return err
	}
	return errors.Join(measureDoctor(ctx, p, path, *runs), p.w.Close())
}

func measureDoctor(ctx context.Context, p *place, binary string, runs int) error {
	op, err := operator.Start(ctx, p.w, operator.Options{Binary: binary})
	if err != nil {
		return err
	}
	defer op.Stop() //nolint:errcheck // the place goes with it
	up, err := findProcess(operator.Binary, "up")
	if err != nil {
		return err
	}
	test := func() error { _, err := op.Bawn(ctx, "doctor"); return err }
	if err := test(); err != nil {
		return err
	}
	cpu, wall, err := spend(up, func() error {
		for range runs {
			if err := test(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	idle, _, err := spend(up, func() error { time.Sleep(wall); return nil })
	if err != nil {
		return err
	}
	n := time.Duration(runs)
	fmt.Printf("self-test: %.0f ms of CPU, %.0f ms long, both placements (%d runs; %.0f ms of CPU in as much time without)\n",
		inMS((cpu-idle)/n), inMS(wall/n), runs, inMS(idle/n))
	return nil
}

// spend is what do costs the process and all below it, those that have ended
// meanwhile included.
func spend(pid int, do func() error) (cpu, wall time.Duration, err error) {
	before, err := cpuOf(pid)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	wall = time.Since(began)
	after, err := cpuOf(pid)
	return after - before, wall, err
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
