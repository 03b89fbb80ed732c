// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package undo takes a half-built thing apart.
//
// A builder pushes one step for each thing that it made. On failure it calls
// [Stack.Run]; once the thing stands it keeps the stack for the thing's end.
// Steps run last in, first out, each exactly once, whatever the others return.
package undo

import (
	"context"
	"errors"
	"fmt"
)

// A Stack holds the steps that take a thing apart. The zero Stack is empty and
// ready. It is for one goroutine.
type Stack struct {
	steps []step
}

type step struct {
	name string
	do   func(context.Context) error
}

// Push adds a step. Its name appears in the error of [Stack.Run].
func (s *Stack) Push(name string, do func(context.Context) error) {
	s.steps = append(s.steps, step{name, do})
}

// Run takes everything apart in reverse order and empties the stack. The
// cancellation of ctx is ignored, since half undone is worse than late; its
// values are kept. The errors of all steps are joined.
func (s *Stack) Run(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for len(s.steps) > 0 {
		last := s.steps[len(s.steps)-1]
		s.steps = s.steps[:len(s.steps)-1]
		if err := last.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undoing %s: %w", last.name, err))
		}
	}
	return errors.Join(errs...)
}
