// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/operator"
	"bawn/internal/world/services"
)

// A client is one real program.
type client struct {
	name    string
	version string            // shell line that tells its version
	tries   []trial           // what is tried with it
	lacks   map[string]string // protocol -> why nothing is tried; "" is for all without an entry
}

// A trial is one thing that a client does, and what it must bring back.
type trial struct {
	proto string // a column of the table, of protocols
	name  string
	host  string // host that it asks
	line  string // shell line; TOKEN stands for a word of this run
	check func(out, token string) error
	wire  string            // protocol on record: http/1.1, h2, websocket, tcp, tls
	mixed bool              // client and server have no protocol in common
	not   map[string]string // arrival -> why it cannot work

	// drive runs the client by steps and returns what it printed; nil: to the end.
	drive func(w *world.World, cmd *exec.Cmd, token string) (string, error)
}

// protocols are the columns of the table.
var protocols = []string{"h1", "h2", "WebSocket", "stream", "gRPC", "TCP"}

// An arrival is a way for a client to come to Bawn: a row of the table for
// each client. Each has an agent of its own, so that all are tried at once and
// the journal tells them apart.
type arrival struct {
	name    string
	agent   string
	arrival string
	before  []string // put in front of the client
}

// arrivals are the ways. With the placement uid there is only the explicit one.
func arrivals() []arrival {
	return []arrival{
		{"explicit", "dev", "explicit", nil},
		{"transparent", "dev2", "transparent", []string{"sh", "-c", without, "sh"}},
		{"uid", "guest", "explicit", nil},
	}
}

// without takes every proxy variable away, whatever its name, and runs the
// rest of the arguments.
const without = `for v in $(env | sed -n 's/^\([A-Za-z_]*[Pp][Rr][Oo][Xx][Yy][A-Za-z_]*\)=.*/\1/p'); do unset "$v"; done; unset JAVA_TOOL_OPTIONS; exec "$@"`

// clientsPolicy allows what the clients of the table ask for.
const clientsPolicy = `version: 1
profiles:
  coder:
    rules:
      - host: api.example.com
      - host: files.example.com
      - host: git.example.com
      - host: git-h2.example.com
      - host: registry.example.net
      - host: h2.example.com
      - host: h2only.example.com
      - host: grpc.example.com
      - host: ws.example.com
        ports: [443, 8443]
        websocket: true
      - host: tls.example.com
        ports: [443, 8443]
        inspect: sni
      - host: ssh.example.com
        ports: [22/tcp]
        inspect: none
      - host: pg.example.com
        ports: [5432/tcp]
        inspect: none
      - host: smtp.example.com
        ports: [25/tcp, 587/tcp]
        inspect: none
agents:
  dev: {profile: coder}
  dev2: {profile: coder}
  guest: {profile: coder}
`

// run runs the client once, by the command that prepare makes of an argv.
func (y trial) run(t *testing.T, w *world.World, token string, prepare func(ctx context.Context, argv ...string) *exec.Cmd) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := prepare(ctx, "sh", "-c", strings.ReplaceAll(y.line, "TOKEN", token))
	var out string
	var err error
	if y.drive != nil {
		out, err = y.drive(w, cmd, token)
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
	return y.check(out, token)
}

// serveClients starts the servers and puts the programs of the table in place.
func (h *host) serveClients(t *testing.T) {
	t.Helper()
	h.clients(t)
	h.node24(t)
	grpc := built.grpc(t)
	h.grpcClient(t)
	var start sync.WaitGroup
	fail := make(chan error, 10)
	for _, f := range []func() error{
		func() error { return services.WebSocket(h.w) },
		func() error { return services.Postgres(h.w) },
		func() error { return services.OpenSSL(h.w) },
		func() error { return services.GRPC(h.w, filepath.Join(grpc, "server")) },
		func() error { _, err := services.Mail(h.w); return err },
		func() error { return h.serveSSH() },
	} {
		start.Go(func() { fail <- f() })
	}
	start.Wait()
	close(fail)
	for err := range fail {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// grpcClient puts the client of gRPC in place.
func (h *host) grpcClient(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(built.grpc(t), "client"))
	if err != nil {
		t.Fatal(err)
	}
	to := h.w.Host.File("/opt/clients/grpcclient.bin")
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, program, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// serveSSH starts the server and gives the clients what they need to log in.
func (h *host) serveSSH() error {
	ssh, err := services.SSH(h.w)
	if err != nil {
		return err
	}
	dir := h.w.Host.File("/opt/clients")
	if err := os.WriteFile(filepath.Join(dir, "ssh.key"), ssh.Key, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "ssh.known"), []byte(ssh.KnownHost), 0o644)
}

// TestClientsWithoutBawn is the positive control of the table: each client
// works on a host that has no boundary.
func TestClientsWithoutBawn(t *testing.T) {
	roottest.Require(t)
	h := &host{w: world.New(t)}
	h.serveClients(t)
	if err := h.w.Host.AddUser(t.Context(), operator.Account); err != nil {
		t.Fatal(err)
	}
	t.Run("all", func(t *testing.T) {
		for _, c := range clients() {
			for _, y := range c.tries {
				if y.mixed {
					continue
				}
				t.Run(c.name+" "+y.name, func(t *testing.T) {
					t.Parallel()
					err := y.run(t, h.w, token(), func(ctx context.Context, argv ...string) *exec.Cmd {
						return h.w.Host.CommandAs(ctx, operator.Account, argv...)
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// TestClients fills the table client x arrival x protocol and prints it. What
// fails fails the test, and so does an empty cell without a reason.
func TestClients(t *testing.T) {
	t.Parallel() // most of it is waiting
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	h.bawn(t, "agent", "create", "dev2", "--user", "bob", "--placement", "netns")
	h.apply(t, clientsPolicy)
	h.serveClients(t)
	filled := newCells()
	t.Run("by", func(t *testing.T) {
		for _, a := range arrivals() {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				for _, c := range clients() {
					for _, y := range c.tries {
						h.fill(t, filled, c, a, y)
					}
				}
			})
		}
	})
	report(t, "clients.txt", h.table(t, filled))
}

// fill tries one thing in one way.
func (h *host) fill(t *testing.T, filled *cells, c client, a arrival, y trial) {
	t.Helper()
	if why, ok := y.not[a.name]; ok {
		filled.set(c, a, y, "", why)
		return
	}
	t.Run(c.name+" "+y.name, func(t *testing.T) {
		if err := h.cell(t, a, y); err != nil {
			filled.set(c, a, y, "FAIL", "")
			t.Error(err)
			return
		}
		filled.set(c, a, y, "ok", "")
	})
}

// cell runs a client as the agent and checks that the journal says that it
// came in that way and spoke that protocol, and no other.
func (h *host) cell(t *testing.T, a arrival, y trial) error {
	t.Helper()
	ofAgent := func(r operator.Record) bool { return r.Agent == a.agent }
	seen := len(h.decisions(t, ofAgent))
	err := y.run(t, h.w, token(), func(ctx context.Context, argv ...string) *exec.Cmd {
		return h.session(ctx, a.agent, append(slices.Clone(a.before), argv...)...)
	})
	fresh := h.decisions(t, ofAgent)[seen:]
	if err != nil {
		return fmt.Errorf("%w\nrecords: %+v", err, fresh)
	}
	ours := 0
	for _, r := range fresh {
		if r.Host != y.host || r.Proto == "dns" || r.Method == "CONNECT" {
			continue
		}
		ours++
		if r.Arrival != a.arrival || r.Verdict != "allow" || r.Proto != y.wire {
			return fmt.Errorf("record %+v, want allow, arrival %s, protocol %s", r, a.arrival, y.wire)
		}
	}
	if ours == 0 {
		return fmt.Errorf("no record for %s among %+v", y.host, fresh)
	}
	return nil
}

// cells are what was found, by client, arrival and protocol.
type cells struct {
	mu   sync.Mutex
	came map[string]bool // arrivals of which there are any
	word map[[3]string]string
	why  map[[3]string]string
}

func newCells() *cells {
	return &cells{came: map[string]bool{}, word: map[[3]string]string{}, why: map[[3]string]string{}}
}

// set notes the outcome of a trial. A cell is as good as the worst that was
// tried for it; what cannot work in one way is a note beside what does.
func (f *cells) set(c client, a arrival, y trial, word, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came[a.name] = true
	at := [3]string{c.name, a.name, y.proto}
	if why != "" {
		f.why[at] = y.name + ": " + why
	}
	if word != "" && f.word[at] != "FAIL" {
		f.word[at] = word
	}
}

// table writes what was found. Numbers stand for reasons, which follow.
func (h *host) table(t *testing.T, f *cells) string {
	t.Helper()
	var b, notes strings.Builder
	number := map[string]int{}
	note := func(why string) string {
		if number[why] == 0 {
			number[why] = len(number) + 1
			fmt.Fprintf(&notes, "(%d) %s\n", number[why], why)
		}
		return fmt.Sprintf("(%d)", number[why])
	}
	line := func(first, second string, words []string) {
		fmt.Fprintf(&b, "%-30s | %-11s", first, second)
		for _, w := range words {
			fmt.Fprintf(&b, " | %-9s", w)
		}
		b.WriteString("\n")
	}
	line("client", "arrival", protocols)
	for _, c := range clients() {
		version := strings.TrimSpace(h.root(t, c.version).out)
		if version == "" {
			t.Errorf("%s: no version", c.name)
		}
		for _, a := range arrivals() {
			if !f.came[a.name] {
				continue // left out by -run
			}
			var words []string
			for _, p := range protocols {
				word, why := f.of(c, a, p)
				if word == "" && why == "" {
					t.Errorf("%s, %s, %s: nothing was tried, and nothing says why", c.name, a.name, p)
				}
				if why != "" {
					word = strings.TrimSpace(word + " " + note(why))
				}
				words = append(words, word)
			}
			line(c.name+" "+version, a.name, words)
		}
	}
	return "\n" + b.String() + "\n" + notes.String()
}

// of gives a cell: its word, and why there is none or what does not work.
func (f *cells) of(c client, a arrival, proto string) (word, why string) {
	at := [3]string{c.name, a.name, proto}
	word, why = f.word[at], f.why[at]
	if word == "" && why == "" && !slices.ContainsFunc(c.tries, func(y trial) bool { return y.proto == proto }) {
		why = c.lack(proto)
	}
	return word, why
}

// lack is why nothing is tried for a protocol.
func (c client) lack(proto string) string {
	if why := c.lacks[proto]; why != "" {
		return why
	}
	return c.lacks[""]
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
