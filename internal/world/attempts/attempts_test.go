// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package attempts_test

import (
	"context"
	"os"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/attempts"
)

func TestMain(m *testing.M) {
	world.Main()
	os.Exit(m.Run())
}

// TestEachArrivesWithoutBawn is the positive control: on a host without a
// boundary an ordinary account gets data out by each of these.
func TestEachArrivesWithoutBawn(t *testing.T) {
	roottest.Require(t)
	w := world.New(t)
	if err := w.Host.AddUser(t.Context(), "somebody"); err != nil {
		t.Fatal(err)
	}
	for _, name := range attempts.Reaching() {
		t.Run(name, func(t *testing.T) {
			for _, forget := range []func() error{w.Attacker.Forget, w.LAN.Forget, w.Upstream.Forget} {
				if err := forget(); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := w.Host.CommandAs(ctx, "somebody", attempts.Argv(name)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if n := arrived(t, w); n == 0 {
				t.Errorf("nothing arrived: %s", out)
			}
		})
	}
}

// arrived counts what reached a place that an agent must not reach.
func arrived(t *testing.T, w *world.World) int {
	t.Helper()
	evil, err := w.Attacker.Packets()
	if err != nil {
		t.Fatal(err)
	}
	lan, err := w.LAN.Packets()
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := w.Upstream.Streams(world.MetadataAddr + ":80")
	if err != nil {
		t.Fatal(err)
	}
	return len(evil) + len(lan) + len(metadata)
}
