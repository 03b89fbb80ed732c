// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/supply"
)

// prebuilt spares a test run the build of the program.
var prebuilt = flag.String("bawn", "", "test this program instead of one that is built")

func TestMain(m *testing.M) {
	world.Main()
	flag.Parse()
	dir, err := os.MkdirTemp("", "bawn-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// npmPackages are those that the client programs import; this undici works on
// Node 18 and later.
var npmPackages = []string{"undici@6", "ws@8", "https-proxy-agent@7", "@grpc/grpc-js@1", "@grpc/proto-loader@0.7"}

// built holds what is built once for all tests. Its directory is set by
// TestMain, before any test runs.
var built fixtures

type fixtures struct {
	dir     string
	mu      sync.Mutex
	done    map[string]bool
	failure map[string]error
}

// once builds the named thing at the first call; a failure stays one.
func (f *fixtures) once(t *testing.T, name string, build func(to string) error) string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	to := filepath.Join(f.dir, name)
	if !f.done[name] {
		if f.done == nil {
			f.done, f.failure = map[string]bool{}, map[string]error{}
		}
		f.done[name] = true
		f.failure[name] = build(to)
	}
	if err := f.failure[name]; err != nil {
		t.Fatalf("building %s: %v", name, err)
	}
	return to
}

// bawn builds the program as it is released.
func (f *fixtures) bawn(t *testing.T) string {
	t.Helper()
	if *prebuilt != "" {
		return *prebuilt
	}
	return f.once(t, "bawn", func(to string) error { return goBuild(to, "bawn/cmd/bawn") })
}

// failing builds the program with the points at which it can be made to stop.
func (f *fixtures) failing(t *testing.T) string {
	t.Helper()
	return f.once(t, "bawn-failpoint", func(to string) error { return goBuild(to, "bawn/cmd/bawn", "-tags", "failpoint") })
}

// clients gathers the client programs in one directory.
func (f *fixtures) clients(t *testing.T) string {
	t.Helper()
	return f.once(t, "clients", func(to string) error {
		if err := os.CopyFS(to, os.DirFS("testdata/clients")); err != nil {
			return err
		}
		for _, name := range []string{"goclient", "rawclient"} {
			if err := goBuild(filepath.Join(to, name+".bin"), "./testdata/clients/"+name); err != nil {
				return err
			}
		}
		packages, err := supply.NPM(npmPackages...)
		if err != nil {
			return err
		}
		return os.CopyFS(filepath.Join(to, "node_modules"), os.DirFS(filepath.Join(packages, "node_modules")))
	})
}

// node24 is the program of a Node that reads proxy variables by itself.
func (f *fixtures) node24(t *testing.T) string {
	t.Helper()
	dir, err := supply.NPM("node@24")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules", "node", "bin", "node")
}

// grpc builds gRPC's interoperability programs, "server" and "client".
func (f *fixtures) grpc(t *testing.T) string {
	t.Helper()
	return f.once(t, "grpc", func(to string) error { return goBuild(to+"/", "./...", "-C", "testdata/grpc") })
}

func goBuild(to, what string, flags ...string) error {
	args := slices.Concat([]string{"build"}, flags, []string{"-trimpath", "-o", to, what})
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("go build %s: %w", what, err), errors.New(string(out)))
	}
	return nil
}
