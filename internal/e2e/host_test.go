// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// usual is the policy that allows what the tests use. "dev" is held in a namespace of its own,
// "guest" in the host's network.
const usual = `version: 1
profiles:
  coder:
    rules:
      - host: api.example.com
      - host: api.example.com
        ports: [80]
      - host: files.example.com
      - host: git.example.com
      - host: registry.example.net
      - host: goproxy.example.net
      - host: multi.example.com
      - host: mixed.example.com
      - host: rebind.example.com
      - host: gone.example.com
      - host: metadata.example.com
      - host: models.corp.example
      - host: self-signed.example.com
      - host: expired.example.com
      - host: wrong-host.example.com
      - host: unknown-ca.example.com
      - host: not-yet.example.com
      - host: confined.example.com
      - host: weak.example.com
      - host: db.example.com
        ports: [5432/tcp]
        inspect: none
agents:
  dev: {profile: coder}
  guest: {profile: coder}
`

// placements maps each placement to the agent of usual that is held so.
func placements() map[string]string { return map[string]string{"netns": "dev", "uid": "guest"} }

// A host is a world in which Bawn runs.
type host struct {
	*operator.Operator
	w *world.World
}

// boot starts Bawn in a fresh world, with both agents and the policy.
func boot(t *testing.T) *host {
	t.Helper()
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	h.apply(t, usual)
	return h
}

func bootWith(t *testing.T, o operator.Options) *host {
	t.Helper()
	roottest.Require(t)
	w := world.New(t)
	op, err := operator.Start(t.Context(), w, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			lines := strings.SplitAfter(op.Log(), "\n")
			t.Logf("bawn up said last:\n%s", strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	})
	return &host{op, w}
}

// agents makes one agent of each placement.
func (h *host) agents(t *testing.T) {
	t.Helper()
	for placement, name := range placements() {
		h.bawn(t, "agent", "create", name, "--user", "alice", "--placement", placement)
	}
}

// bawn runs a command line as the operator that must succeed.
func (h *host) bawn(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.Bawn(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *host) apply(t *testing.T, yaml string) {
	t.Helper()
	if err := h.Apply(t.Context(), yaml); err != nil {
		t.Fatal(err)
	}
}

// clients puts the client programs at /opt/clients.
func (h *host) clients(t *testing.T) {
	t.Helper()
	if err := os.CopyFS(h.w.Host.File("/opt/clients"), os.DirFS(built.clients(t))); err != nil {
		t.Fatal(err)
	}
}

// node24 puts a newer Node at /opt/node24.
func (h *host) node24(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(built.node24(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.w.Host.File("/opt/node24"), text, 0o755); err != nil {
		t.Fatal(err)
	}
}

// session prepares a program to run as the agent.
func (h *host) session(ctx context.Context, agent string, argv ...string) *exec.Cmd {
	return h.Command(ctx, append([]string{"run", "--agent", agent, "--"}, argv...)...)
}

// A result is what a program printed and how it ended.
type result struct {
	out, err string
	status   int
}

// in runs a program as the agent to its end, two minutes at most.
func (h *host) in(t *testing.T, agent string, argv ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return finish(t, h.session(ctx, agent, argv...))
}

// sh runs a shell line as the agent.
func (h *host) sh(t *testing.T, agent, line string) result {
	t.Helper()
	return h.in(t, agent, "sh", "-c", line)
}

// root runs a shell line on the host, as root and outside every boundary.
func (h *host) root(t *testing.T, line string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return finish(t, h.w.Host.Command(ctx, "sh", "-c", line))
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		t.Fatalf("running %s: %v: %s%s", strings.Join(cmd.Args, " "), err, &out, &stderr)
	}
	return result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// curl asks for an address as the agent and returns the status ("000" for no
// answer) and the code of a refusal.
func (h *host) curl(t *testing.T, agent, url string, args ...string) (status, code string) {
	t.Helper()
	argv := append([]string{"curl", "-sS", "-m", "20", "-D", "-", "-o", "/dev/null", "-w", "status=%{http_code} connect=%{http_connect}\n"}, args...)
	return curlSays(h.in(t, agent, append(argv, url)...))
}

func curlSays(r result) (status, code string) {
	for line := range strings.Lines(r.out) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "Bawn-Code") {
			code = strings.TrimSpace(value)
		}
		if rest, ok := strings.CutPrefix(line, "status="); ok {
			var connect string
			status, connect, _ = strings.Cut(rest, " connect=")
			if status == "000" && connect != "000" && connect != "200" {
				status = connect
			}
		}
	}
	return status, code
}

// evil counts what arrived where nothing may: at the attacker, in the private
// network and at the metadata address.
func (h *host) evil(t *testing.T) (found []string) {
	t.Helper()
	for who, watcher := range map[string]*world.Watcher{"attacker": h.w.Attacker, "lan": h.w.LAN} {
		packets, err := watcher.Packets()
		if err != nil {
			t.Fatalf("counting at the %s: %v", who, err)
		}
		for _, p := range packets {
			found = append(found, who+": "+p.String())
		}
	}
	flows, err := h.w.Wire()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		if f.Dst.String() == world.MetadataAddr {
			found = append(found, "metadata: "+f.String())
		}
	}
	return found
}

// queries lists what the resolver was asked, but for the question by which the
// self-test of Bawn finds out whether it answers: that has nothing of an agent's.
func (h *host) queries(t *testing.T) []world.Query {
	t.Helper()
	all, err := h.w.DNS.Queries()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(q world.Query) bool { return q.Name == "resolver-check.bawn.invalid" })
}

// strangers lists the questions to the resolver for names that no rule of
// the usual policy covers.
func (h *host) strangers(t *testing.T) (found []string) {
	t.Helper()
	for _, q := range h.queries(t) {
		if !strings.Contains(usual, "host: "+q.Name+"\n") {
			found = append(found, q.String())
		}
	}
	return found
}

// decisions are the decision records that keep chooses, without those of the
// self-test.
func (h *host) decisions(t *testing.T, keep func(operator.Record) bool) []operator.Record {
	t.Helper()
	records, err := h.Decisions(func(r operator.Record) bool { return r.Agent != "doctor" && keep(r) })
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func all(operator.Record) bool { return true }
