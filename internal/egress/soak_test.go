// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/egress"
	"bawn/internal/names"
	"bawn/internal/netplan"
	"bawn/internal/roottest"
	"bawn/internal/steady"
)

// TestSoak sends requests of all kinds, well-behaved ones and others, and looks
// whether goroutines, descriptors and memory stay as they are: 1,000,000 of
// them under "make soak".
func TestSoak(t *testing.T) {
	s := newSoak(t, nil)
	samples := s.run(roottest.Count(2400, 1_000_000), roottest.Count(8, 40))
	if err := steady.Check(samples); err != nil {
		t.Error(err)
	}
	t.Log(s.report())
}

// TestSoakFindsLeaks plants a leak of each sort within the server and sees that
// the same soak tells it.
func TestSoakFindsLeaks(t *testing.T) {
	for what, plant := range map[string]func(t *testing.T) func(){
		"goroutines": func(t *testing.T) func() {
			until := make(chan struct{})
			t.Cleanup(func() { close(until) })
			return func() { go func() { <-until }() }
		},
		"descriptors": func(t *testing.T) func() {
			var mu sync.Mutex
			var files []*os.File
			t.Cleanup(func() {
				for _, f := range files {
					f.Close()
				}
			})
			return func() {
				f, err := os.Open(os.DevNull)
				if err != nil {
					panic(err)
				}
				mu.Lock()
				defer mu.Unlock()
				files = append(files, f)
			}
		},
		"octets of memory": func(t *testing.T) func() {
			var mu sync.Mutex
			var kept [][]byte
			t.Cleanup(func() { kept = nil })
			return func() {
				mu.Lock()
				defer mu.Unlock()
				kept = append(kept, make([]byte, 64<<10))
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			leak, n := plant(t), atomic.Int64{}
			s := newSoak(t, func(stage string) {
				if stage == "journaled" && n.Add(1)%2 == 0 { // one request in two
					leak()
				}
			})
			err := steady.Check(s.run(400, 8))
			found, ok := errors.AsType[*steady.Leak](err)
			if !ok || found.What != what {
				t.Errorf("found %v", err)
			}
		})
	}
}

// A soak is an egress server, upstreams and what is sent through it.
type soak struct {
	t     *testing.T
	r     *rig
	seed  uint64
	kinds []soakKind
	sent  []atomic.Int64 // units of each kind

	proxy, redirected string
}

const (
	spliceHost = "splice.example.com"
	spliceAddr = "93.184.215.15"
	dbHost     = "db.example.com"
	dbAddr     = "93.184.215.16"
)

const soakPolicy = `
version: 1
profiles:
  p:
    rules:
      - {id: api, host: api.example.com, ports: [443, 80], methods: [GET, POST], paths: ["/v1/**"], websocket: true}
      - {id: splice, host: splice.example.com, inspect: sni}
      - {id: db, host: db.example.com, ports: [5432/tcp], inspect: none}
agents:
  dev: {profile: p}
`

func newSoak(t *testing.T, stages func(string)) *soak {
	t.Helper()
	var journal *audit.Journal
	s := &soak{t: t, kinds: soakKinds, sent: make([]atomic.Int64, len(soakKinds))}
	s.r = newRig(t, soakPolicy, func(r *rig) {
		var err error
		journal, err = audit.OpenJournal(t.TempDir(), audit.Options{Plane: "egress", AgentFlow: -1})
		must(t, err)
		// As production has it, but for a pool that is empty soon after the work.
		r.cfg.Recorder, r.cfg.Stages = journal, stages
		r.cfg.Limits = egress.Limits{IdleUpstream: 50 * time.Millisecond}
		r.cfg.Log = slog.New(slog.DiscardHandler)
		r.cfg.Resolver, r.cfg.Dialer = forgetful{r.net}, forgetful{r.net}
		r.cfg.OriginalDst = func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort("198.18.1.1:443"), nil }
	})
	t.Cleanup(func() { journal.Close() })
	s.upstreams()
	s.proxy, s.redirected = s.r.listen(netplan.Explicit), s.r.listen(netplan.Transparent)
	s.seed = 42
	if roottest.Count(0, 1) == 1 {
		s.seed = rand.Uint64()
	}
	t.Logf("seed %d", s.seed)
	return s
}

// forgetful is the pretend internet without its memory of all that was asked.
type forgetful struct{ n *internet }

func (f forgetful) Lookup(ctx context.Context, host names.Host) ([]netip.Addr, error) {
	defer f.forget()
	return f.n.Lookup(ctx, host)
}

func (f forgetful) Dial(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	defer f.forget()
	return f.n.Dial(ctx, to, check)
}

func (f forgetful) forget() {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.looked, f.n.dialled = f.n.looked[:0], f.n.dialled[:0]
}

// soakWorkers send at a time.
const soakWorkers = 8

// run sends units in portions and takes a sample at the rest after each.
func (s *soak) run(units, portions int) []steady.Sample {
	s.t.Helper()
	var samples []steady.Sample
	var last steady.Sample
	for n := range portions {
		s.portion(n, units/portions)
		done := 0
		for i := range s.sent {
			done += int(s.sent[i].Load())
		}
		var err error
		last, err = steady.AtRest(done, last)
		must(s.t, err)
		samples = append(samples, last)
		s.t.Log(last)
	}
	return samples
}

// portion has the workers send units between them. In its midst the policy is
// applied again: what is open is judged anew.
func (s *soak) portion(n, units int) {
	s.t.Helper()
	var left atomic.Int64
	left.Store(int64(units))
	var wg sync.WaitGroup
	for i := range soakWorkers {
		wg.Go(func() {
			w := &soakWorker{soak: s, rng: rand.New(rand.NewPCG(s.seed, uint64(n*soakWorkers+i)))}
			for left.Load() > 0 {
				k := w.rng.IntN(len(s.kinds))
				sent, err := s.kinds[k].send(w)
				if err != nil {
					s.t.Errorf("%s: %v", s.kinds[k].name, err)
					left.Store(0)
				}
				s.sent[k].Add(int64(sent))
				left.Add(-int64(sent))
			}
		})
	}
	s.r.apply(soakPolicy)
	wg.Wait()
}

func (s *soak) report() string {
	text := ""
	for i, k := range s.kinds {
		text += fmt.Sprintf("%s %d, ", k.name, s.sent[i].Load())
	}
	return text[:len(text)-2]
}

// A soakWorker sends one thing after the other.
type soakWorker struct {
	*soak
	rng *rand.Rand
}

// burst is how many requests come over one connection: up to n of them, and
// more where very many are to be sent.
func (w *soakWorker) burst(n int) int { return 1 + w.rng.IntN(roottest.Count(n, 10*n)) }

// chance is true once in n times.
func (w *soakWorker) chance(n int) bool { return w.rng.IntN(n) == 0 }

const soakPatience = time.Minute

// connect opens a tunnel by a way of arrival that the worker chooses.
func (w *soakWorker) connect(host string, port int) (net.Conn, error) {
	to, explicit := w.proxy, true
	if host == apiHost && port == 443 && w.chance(3) {
		to, explicit = w.redirected, false
	}
	c, err := net.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(soakPatience)) //nolint:errcheck // shows in the next use
	if !explicit {
		return c, nil
	}
	fmt.Fprintf(c, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port, host, port)
	head, err := soakHead(c)
	if err == nil && head[9:12] != "200" {
		err = fmt.Errorf("CONNECT %s: %q", host, head)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// soakHead reads a head and nothing behind it.
func soakHead(c net.Conn) (string, error) {
	var head []byte
	for len(head) < 4 || string(head[len(head)-4:]) != "\r\n\r\n" {
		var b [1]byte
		if _, err := c.Read(b[:]); err != nil {
			return string(head), fmt.Errorf("after %q: %w", head, err)
		}
		head = append(head, b[0])
	}
	return string(head), nil
}

// secure is connect with TLS.
func (w *soakWorker) secure(proto string) (*tls.Conn, error) {
	c, err := w.connect(apiHost, 443)
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, &tls.Config{RootCAs: w.r.minterCA, ServerName: apiHost, NextProtos: []string{proto}})
	if err := t.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// leave closes c: in good order, or with a reset.
func (w *soakWorker) leave(c net.Conn) {
	under := c
	if t, ok := c.(*tls.Conn); ok {
		under = t.NetConn()
	}
	if w.chance(2) {
		under.(*net.TCPConn).SetLinger(0) //nolint:errcheck // a close like others, then
		under.Close()
		return
	}
	c.Close()
}
