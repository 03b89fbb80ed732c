// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package undo_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"bawn/internal/undo"
)

func TestStepsRunInReverseOnceAndAll(t *testing.T) {
	var ran []string
	var s undo.Stack
	bad := errors.New("stuck")
	for _, name := range []string{"namespace", "link", "rules"} {
		s.Push(name, func(ctx context.Context) error {
			ran = append(ran, name)
			if name == "link" {
				return bad
			}
			return ctx.Err()
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // must not keep the steps from running
	if err := s.Run(ctx); !errors.Is(err, bad) || err.Error() != "undoing link: stuck" {
		t.Errorf("error %v", err)
	}
	if err := s.Run(ctx); err != nil {
		t.Errorf("second run: %v", err)
	}
	if want := []string{"rules", "link", "namespace"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}
