// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"bawn/internal/lifecycle"
)

func TestServicesStopInReverse(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	service := func(name string) lifecycle.Service {
		return lifecycle.Service{Name: name, Run: func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, name)
			return ctx.Err()
		}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lifecycle.Run(ctx, service("journal"), service("resolver"), service("egress")); err != nil {
		t.Errorf("orderly stop: %v", err)
	}
	if want := []string{"egress", "resolver", "journal"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
}

func TestI2APartThatEndsEndsTheProcess(t *testing.T) {
	waits := lifecycle.Service{Name: "egress", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}
	ends := lifecycle.Service{Name: "journal", Run: func(context.Context) error { return nil }}
	err := lifecycle.Run(t.Context(), ends, waits)
	if err == nil || !strings.Contains(err.Error(), "running journal: ended before") {
		t.Errorf("error %v does not name the part that ended", err)
	}
}
