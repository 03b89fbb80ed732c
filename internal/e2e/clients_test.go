// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// big is the size of the large transfers, in bytes.
const big = 100 << 20

// A client is one real program, and what it must bring back.
type client struct {
	name    string
	version string // shell line that tells its version
	host    string // host that it asks
	line    string // shell line; TOKEN stands for a word of this run
	check   func(out, token string) error
	drive   func(w *world.World, cmd *exec.Cmd, token string) (out string, err error) // nil: run to the end
}

// clients are the rows of the table.
func clients() []client {
	n := world.AllNames()
	url := "https://" + n.API + "/TOKEN"
	return []client{
		{name: "curl", version: "curl --version | head -1 | cut -d' ' -f2", host: n.API, line: "curl -sS " + url, check: echoed},
		{name: "wget", version: "wget --version | head -1 | cut -d' ' -f3", host: n.API, line: "wget -qO- " + url, check: echoed},
		{
			name: "git over https", version: "git --version | cut -d' ' -f3", host: n.Git,
			line:  `cd "$(mktemp -d)" && git clone -q https://` + n.Git + "/tools/hello.git && cat hello/README",
			check: contains("hello from the world"),
		},
		{name: "node fetch", version: "node --version", host: n.API, line: "node /opt/clients/fetch.mjs " + url, check: echoed},
		{
			name: "node undici", host: n.API, line: "node /opt/clients/undici.mjs " + url, check: echoed,
			version: `sed -n 's/.*"version": "\(.*\)".*/\1/p' /opt/clients/node_modules/undici/package.json`,
		},
		{
			name: "node fetch", version: "/opt/node24 --version", host: n.API, check: echoed,
			line: "/opt/node24 -e 'fetch(process.argv[1]).then(r => r.text()).then(console.log)' " + url,
		},
		{name: "python urllib", version: "/usr/bin/python3 --version | cut -d' ' -f2", host: n.API, line: "/usr/bin/python3 /opt/clients/urllib_client.py " + url, check: echoed},
		{name: "go net/http", version: "/opt/clients/goclient.bin -version", host: n.API, line: "/opt/clients/goclient.bin " + url, check: echoed},
		{
			name: "npm install", version: "npm --version", host: n.NPM,
			line:  `cd "$(mktemp -d)" && npm install --silent --no-audit --no-fund --registry https://` + n.NPM + `/ greeting && node -e 'console.log(require("greeting"))'`,
			check: contains("hello world"),
		},
		{name: "server-sent events", version: "curl --version | head -1 | cut -d' ' -f2", host: n.API, line: "curl -sSN 'https://" + n.API + "/sse?gate=TOKEN'", drive: oneEventFirst, check: contains("data: 2\n")},
		{
			name: "100 MiB down", version: "curl --version | head -1 | cut -d' ' -f2", host: n.Files,
			line: fmt.Sprintf("curl -sS 'https://%s/download?bytes=%d' | sha256sum", n.Files, big), check: patternSum,
		},
		{
			name: "100 MiB up", version: "curl --version | head -1 | cut -d' ' -f2", host: n.API,
			line: fmt.Sprintf("head -c %d /dev/zero | curl -sS -T - https://%s/upload", big, n.API), check: zerosEchoed,
		},
	}
}

func contains(want string) func(out, token string) error {
	return func(out, _ string) error {
		if !strings.Contains(out, want) {
			return fmt.Errorf("printed %q, want %q in it", out, want)
		}
		return nil
	}
}

// echoed checks that the answer is the API host's own.
func echoed(out, token string) error {
	var e world.Echo
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		return fmt.Errorf("printed %q: %w", out, err)
	}
	if e.Method != "GET" || e.Target != "/"+token || e.Host != world.AllNames().API {
		return fmt.Errorf("the server got %+v", e)
	}
	return nil
}

func patternSum(out, _ string) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, world.Pattern(big)); err != nil {
		return err
	}
	return contains(hex.EncodeToString(sum.Sum(nil)))(out, "")
}

func zerosEchoed(out, _ string) error {
	sum := sha256.Sum256(make([]byte, big))
	var e world.Echo
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		return fmt.Errorf("printed %q: %w", out, err)
	}
	if e.BodyBytes != big || e.SHA256 != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("the server got %d bytes with sum %s", e.BodyBytes, e.SHA256)
	}
	return nil
}

// oneEventFirst lets the server go on only after the first event has come all
// the way: whoever collects a stream before passing it on never ends.
func oneEventFirst(w *world.World, cmd *exec.Cmd, token string) (string, error) {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	r := bufio.NewReader(stdout)
	for line := ""; line != "data: 0\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			return "", fmt.Errorf("before the first event: %w: %s", err, stderr.String())
		}
	}
	if err := w.Upstream.Release(token); err != nil {
		return "", err
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(rest), nil
}

// without takes every proxy variable away, whatever its name, and runs the
// rest of the arguments.
const without = `for v in $(env | sed -n 's/^\([A-Za-z_]*[Pp][Rr][Oo][Xx][Yy][A-Za-z_]*\)=.*/\1/p'); do unset "$v"; done; unset JAVA_TOOL_OPTIONS; exec "$@"`

// run runs the client once, by the command that prepare makes of an argv.
func (c client) run(t *testing.T, w *world.World, token string, prepare func(ctx context.Context, argv ...string) *exec.Cmd) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := prepare(ctx, "sh", "-c", strings.ReplaceAll(c.line, "TOKEN", token))
	var out string
	var err error
	if c.drive != nil {
		out, err = c.drive(w, cmd, token)
	} else {
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err = cmd.Run(); err != nil {
			err = fmt.Errorf("%w: %s%s", err, stdout.String(), stderr.String())
		}
		out = stdout.String()
	}
	if err != nil {
		return err
	}
	return c.check(out, token)
}

// TestClientsWithoutBawn is the positive control of the table: each client
// works on a host that has no boundary.
func TestClientsWithoutBawn(t *testing.T) {
	roottest.Require(t)
	h := &host{w: world.New(t)}
	h.clients(t)
	h.node24(t)
	if err := h.w.Host.AddUser(t.Context(), operator.Account); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			err := c.run(t, h.w, token(), func(ctx context.Context, argv ...string) *exec.Cmd {
				return h.w.Host.CommandAs(ctx, operator.Account, argv...)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClients fills the table client x arrival and prints it. An empty cell
// fails.
func TestClients(t *testing.T) {
	h := boot(t)
	h.clients(t)
	h.node24(t)
	var table strings.Builder
	const row = "%-28s | %-8s | %-11s | %s\n"
	fmt.Fprintf(&table, "\n"+row, "client", "explicit", "transparent", "uid")
	for _, c := range clients() {
		version := strings.TrimSpace(h.root(t, c.version).out)
		cells := make(map[string]string)
		for _, col := range columns() {
			t.Run(c.name+" "+col.name, func(t *testing.T) {
				if err := h.cell(t, c, col); err != nil {
					t.Error(err)
					return
				}
				cells[col.name] = "ok"
			})
		}
		fmt.Fprintf(&table, row, c.name+" "+version, cells["explicit"], cells["transparent"], cells["uid"])
	}
	report(t, "clients.txt", table.String())
}

// report prints a table, and keeps it in the directory BAWN_REPORT, from which
// "make test" shows it: go test hides what packages that pass have printed.
func report(t *testing.T, name, table string) {
	t.Helper()
	fmt.Println(table)
	if dir := os.Getenv("BAWN_REPORT"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(table), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// A column of the table is a way for a client to come to Bawn.
type column struct {
	name    string
	agent   string
	arrival string
	before  []string // put in front of the client
}

// columns are the ways. With the placement uid there is only the explicit one.
func columns() []column {
	return []column{
		{"explicit", "dev", "explicit", nil},
		{"transparent", "dev", "transparent", []string{"sh", "-c", without, "sh"}},
		{"uid", "guest", "explicit", nil},
	}
}

// cell runs a client as the agent and checks that the journal says that it
// came in that way and no other.
func (h *host) cell(t *testing.T, c client, col column) error {
	t.Helper()
	seen := len(h.decisions(t, all))
	err := c.run(t, h.w, token(), func(ctx context.Context, argv ...string) *exec.Cmd {
		return h.session(ctx, col.agent, append(col.before, argv...)...)
	})
	fresh := h.decisions(t, all)[seen:]
	if err != nil {
		return fmt.Errorf("%w\nrecords: %+v", err, fresh)
	}
	ours := 0
	for _, r := range fresh {
		if r.Host != c.host || r.Proto == "dns" {
			continue
		}
		ours++
		if r.Arrival != col.arrival || r.Verdict != "allow" || r.Agent != col.agent {
			return fmt.Errorf("record %+v, want agent %s, allow, arrival %s", r, col.agent, col.arrival)
		}
	}
	if ours == 0 {
		return fmt.Errorf("no record for %s among %+v", c.host, fresh)
	}
	return nil
}
