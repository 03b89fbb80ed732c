// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle runs the services of one process: started in order,
// stopped in reverse, one after the other.
//
// A service that ends by itself, with or without an error, ends the process:
// a boundary with a part missing must not go on. Put what others rely on
// first (the journal before the plane that writes to it), so that it stops
// last.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
)

// A Service is one part of a process. Run blocks until ctx is done or the
// service cannot go on; it returns nil after an orderly stop.
type Service struct {
	Name string
	Run  func(ctx context.Context) error
}

type running struct {
	Service
	cancel context.CancelFunc
	done   chan error
}

// Run starts the services in order and blocks until ctx is done or one of them
// has ended. It then stops the others in reverse order, waiting for each, and
// returns the joined errors. A service that ended before it was asked to is an
// error even if it returned nil.
func Run(ctx context.Context, services ...Service) error {
	base := context.WithoutCancel(ctx)
	ended := make(chan int, len(services))
	started := make([]running, 0, len(services))
	for i, s := range services {
		c, cancel := context.WithCancel(base)
		r := running{s, cancel, make(chan error, 1)}
		started = append(started, r)
		go func() {
			r.done <- r.Run(c)
			ended <- i
		}()
	}
	first := -1
	select {
	case <-ctx.Done():
	case first = <-ended:
	}
	return stop(started, first)
}

// stop ends the services in reverse. The one with index early ended by itself.
func stop(services []running, early int) error {
	var errs []error
	for i := len(services) - 1; i >= 0; i-- {
		s := services[i]
		s.cancel()
		err := <-s.done
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			errs = append(errs, fmt.Errorf("running %s: %w", s.Name, err))
		case i == early:
			errs = append(errs, fmt.Errorf("running %s: ended before it was asked to", s.Name))
		}
	}
	return errors.Join(errs...)
}
