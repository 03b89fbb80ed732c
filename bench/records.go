// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// A fleet is the made-up host whose journal the rows of the index are measured
// on: agents of some users that work by day, with sessions, connections that
// carry several requests, paths of which a third are new each time, refusals and
// DNS queries. All of it comes from one seed.
type fleet struct {
	journal *audit.Journal
	clock   atomic.Int64 // microseconds
}

const (
	fleetAgents = 40
	fleetUsers  = 12
	fleetHosts  = 80
	fleetPaths  = 2000
	fleetSeed   = 20261130
)

// A worker is one agent at work; its records follow each other.
type worker struct {
	f    *fleet
	r    *rand.Rand
	n    int
	id   ids.Identity
	left int // requests until the session ends

	client, local string // of the connections at hand
	host          int
	reuse         int // requests until they are closed
}

// generate writes a journal of so many records that span so many days.
func generate(dir string, records int, days int, begin time.Time) (err error) {
	f := &fleet{}
	f.clock.Store(begin.UnixMicro())
	f.journal, err = audit.OpenJournal(dir, audit.Options{Plane: "proxy", AgentFlow: -1, Denials: -1, Now: func() time.Time {
		return time.UnixMicro(f.clock.Load()).UTC()
	}})
	if err != nil {
		return err
	}
	step := int64(days) * 24 * int64(time.Hour/time.Microsecond) / int64(records)
	var wrote atomic.Int64
	var all sync.WaitGroup
	var fault atomic.Pointer[error]
	for n := range fleetAgents {
		w := &worker{f: f, n: n, r: rand.New(rand.NewPCG(fleetSeed, uint64(n)))}
		all.Go(func() {
			for wrote.Load() < int64(records) {
				made, err := w.request()
				if err != nil {
					fault.Store(&err)
					return
				}
				wrote.Add(int64(made))
				f.clock.Add(step * int64(made))
			}
		})
	}
	all.Wait()
	if e := fault.Load(); e != nil {
		err = *e
	}
	return errors.Join(err, f.journal.Close())
}

func (w *worker) now() time.Time { return time.UnixMicro(w.f.clock.Load()).UTC() }

// begin gives the worker a new session now and then, and new connections.
func (w *worker) begin() {
	if w.left--; w.left <= 0 {
		w.left = 200 + w.r.IntN(4000)
		w.id = ids.Identity{
			Slot: w.n, Gen: ids.Generation{Epoch: 9, Count: w.r.Uint64N(1 << 40)}, Session: fmt.Sprintf("s-%016x", w.r.Uint64()),
			Agent: fmt.Sprintf("agent-%d", w.n), User: fmt.Sprintf("user-%d@example.com", w.n%fleetUsers),
		}
		w.reuse = 0
	}
	if w.reuse--; w.reuse <= 0 {
		w.reuse = 1 + w.r.IntN(40)
		w.client = fmt.Sprintf("127.0.0.1:%d", 32768+w.r.IntN(28000))
		w.local = fmt.Sprintf("198.51.100.7:%d", 32768+w.r.IntN(28000))
		w.host = min(w.r.IntN(fleetHosts), w.r.IntN(fleetHosts), w.r.IntN(fleetHosts))
	}
}

func (w *worker) decision() *audit.Decision {
	d := &audit.Decision{
		Time: w.now(), Request: fmt.Sprintf("r-%016x", w.r.Uint64()), Identity: w.id, Revision: 12, Arrival: "explicit", Client: w.client,
		Proto: "http/1.1", Method: "GET", Scheme: "https", Host: fmt.Sprintf("host-%d.example.com", w.host), Port: 443, ALPN: "http/1.1",
		Verdict: verdict.Allow, Stage: "head", Rule: fmt.Sprintf("coder.%d", w.host%20), Inspect: "full",
	}
	d.SNI = d.Host
	if w.r.IntN(5) == 0 {
		d.Method = "POST"
	}
	if d.Path = fmt.Sprintf("/v1/projects/%d/files/%d", w.host, w.r.IntN(fleetPaths)); w.r.IntN(3) == 0 {
		d.Path = fmt.Sprintf("/v1/objects/%016x", w.r.Uint64())
	}
	return d
}

func (w *worker) request() (records int, err error) {
	w.begin()
	d := w.decision()
	switch k := w.r.IntN(100); {
	case k < 6: // another name, refused
		d.Verdict, d.Code, d.Host, d.Rule = verdict.Deny, codes.HostNotAllowed, fmt.Sprintf("telemetry-%d.example.net", w.r.IntN(300)), ""
		d.Method, d.Path, d.Detail = "CONNECT", "", "no rule allows it"
		return 1, w.f.journal.Decide(d)
	case k < 8:
		d.Verdict, d.Code, d.Rule = verdict.Deny, codes.MethodNotAllowed, ""
		d.Method, d.Detail = "DELETE", "no rule allows it; the nearest is "+d.Rule
		return 1, w.f.journal.Decide(d)
	case k < 14:
		d.Proto, d.Method, d.Scheme, d.Path, d.Port, d.Stage, d.SNI, d.ALPN = "dns", "A", "", "", 0, "name", "", ""
		d.Detail = fmt.Sprintf("198.18.0.%d", w.host)
		return 1, w.f.journal.Decide(d)
	}
	if err := w.f.journal.Decide(d); err != nil {
		return 0, err
	}
	o := &audit.Outcome{
		Request: d.Request, Identity: d.Identity, Revision: d.Revision, Status: 200, BytesUp: 300 + w.r.Int64N(2000), BytesDown: w.r.Int64N(60000),
		Upstream: fmt.Sprintf("192.0.2.%d:443", w.host), Local: w.local, Reused: w.reuse%40 != 0, Certificate: fmt.Sprintf("%064x", w.host),
		TTFB: audit.Span(time.Duration(w.r.IntN(200)) * time.Millisecond), Total: audit.Span(time.Duration(w.r.IntN(900)) * time.Millisecond),
	}
	o.Time = d.Time.Add(time.Duration(o.Total))
	switch w.r.IntN(50) {
	case 0:
		o.Status = 404
	case 1:
		o.Status, o.Code, o.Error = 502, codes.UpstreamUnreachable, "connection refused"
	}
	return 2, w.f.journal.Outcome(o)
}
