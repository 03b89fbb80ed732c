// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/fdpass"
	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
	"bawn/internal/peercred"
	"bawn/internal/probe"
	"bawn/internal/proc"
	"bawn/internal/session"
	"bawn/internal/store"
)

// doctorTime bounds one self-test of one placement.
const doctorTime = 30 * time.Second

// doctor attacks the boundary from the place of an agent, in every placement,
// and opens or shuts each by what it finds.
func (s *Server) doctor(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	s.selfTest.Lock()
	defer s.selfTest.Unlock()
	ctx, cancel := context.WithTimeout(q.Context(), doctorTime)
	defer cancel()
	if _, err := s.netd.wait(ctx); err != nil {
		return &apitype.Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Hint: "netd's log says why; bawn up starts it again"}
	}
	agent, err := s.doctorAgent(ctx)
	if err != nil {
		return err
	}
	results := make([][]apitype.DoctorLine, len(placements))
	var all sync.WaitGroup
	for i, p := range placements {
		all.Go(func() { results[i] = s.examine(ctx, agent, p) })
	}
	var host []apitype.DoctorLine
	all.Go(func() { host = s.parentLines(ctx) })
	all.Wait()
	d := &apitype.Doctor{At: s.o.Now(), OK: true, Lines: append(slices.Concat(results...), host...)}
	for i, p := range placements {
		why := firstFailure(results[i])
		d.OK = d.OK && (why == "" || p != s.o.Config.Placement)
		s.open(p, why)
	}
	s.mu.Lock()
	s.doctored = d
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, d)
	return nil
}

// open hands out agents in p from now on, unless why says why not. A change is
// on record before agents are handed out.
func (s *Server) open(p ids.Placement, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why != "" {
		s.o.Log.Error("the self-test failed", "placement", p, "why", why)
	}
	if (why == "") != (s.shut[p] == "") {
		a := audit.Act{Name: audit.ActPlacementOpen, Object: string(p)}
		if why != "" {
			a.Name, a.Detail = audit.ActPlacementShut, why
		}
		if err := s.did(a); err != nil && why == "" {
			why = err.Error()
		}
	}
	s.shut[p] = why
}

func firstFailure(lines []apitype.DoctorLine) string {
	for _, l := range lines {
		if !l.OK {
			return fmt.Sprintf("the self-test failed: %s: %s", l.Check, l.Detail)
		}
	}
	return ""
}

// doctorAgent registers the agent of the self-test on the first run. It is in
// no policy, so everything that it asks for must be denied.
func (s *Server) doctorAgent(ctx context.Context) (store.Agent, error) {
	agents, err := s.store.Agents(ctx)
	if err != nil {
		return store.Agent{}, err
	}
	for _, a := range agents {
		if a.Name == session.Doctor {
			return a, s.ensureAccount(ctx, a)
		}
	}
	s.applies.Lock()
	defer s.applies.Unlock()
	return s.register(ctx, apitype.CreateAgent{Name: session.Doctor, User: "bawn", Placement: ids.PlacementNetns})
}

// ensureAccount makes the account of a again where the host has lost it.
func (s *Server) ensureAccount(ctx context.Context, a store.Agent) error {
	netd, err := s.netd.client()
	if err != nil {
		return err
	}
	return netd.CreateAccount(ctx, a.Name, a.UID)
}

// examine runs the probe in one placement. Whatever keeps it from running is a
// failed line: what was not shown does not hold.
func (s *Server) examine(ctx context.Context, agent store.Agent, p ids.Placement) []apitype.DoctorLine {
	lines, err := s.runProbe(ctx, agent, p)
	if err != nil {
		return []apitype.DoctorLine{{Placement: p, Check: "self-test", Detail: err.Error(), Fix: "see the log of netd and admin"}}
	}
	return lines
}

func (s *Server) runProbe(ctx context.Context, agent store.Agent, p ids.Placement) ([]apitype.DoctorLine, error) {
	netd, err := s.netd.wait(ctx)
	if err != nil {
		return nil, err
	}
	host, err := net.Listen("tcp", "127.0.0.1:0") // something of the host's to find
	if err != nil {
		return nil, fmt.Errorf("opening the host's own port: %w", err)
	}
	defer host.Close()
	lure, err := net.Listen("unix", "@bawn-doctor-"+host.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("opening the host's own abstract socket: %w", err)
	}
	defer lure.Close()
	run, files, err := s.sessions.Probe(ctx, agent, p, "probe")
	if err != nil {
		return nil, err
	}
	defer fdpass.CloseAll(files)
	before, err := netd.Counters(ctx, run.Session.Session)
	if err != nil {
		run.Stop(ctx)
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { s.stop(run) })
	defer stop()
	c := probeConfig(s, run, p, host.Addr().String())
	c.Abstract = append(c.Abstract, strings.TrimPrefix(lure.Addr().String(), "@"))
	tries, err := s.converse(run, files, c)
	if err != nil {
		return nil, err
	}
	// The session stands until its program has ended, and its counters with
	// it: the program waits for the end of its input.
	after, err := netd.Counters(ctx, run.Session.Session)
	if err != nil {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	files[0].Close()
	exit := <-run.Exit()
	if exit.Fault != "" {
		return nil, errors.New(exit.Fault)
	}
	return probe.Evaluate(p, tries, packets(before), packets(after)), nil
}

func probeConfig(s *Server, run *session.Running, p ids.Placement, hostPort string) probe.Config {
	proxy := netip.AddrPortFrom(netplan.Gateway, netplan.ProxyPort)
	if p == ids.PlacementUID {
		proxy = netplan.UIDProxy(run.Slot)
	}
	c := probe.Default(p, proxy)
	c.CA, c.Bundle = path.Join(proc.PublicPath, proc.CAFile), path.Join(proc.PublicPath, proc.BundleFile)
	c.Loopback = append(c.Loopback, netip.MustParseAddrPort(hostPort))
	c.Own = append(c.Own, s.o.Paths.AdminSock(), s.o.Paths.NetdSock())
	return c
}

// converse sends the configuration and reads the tries.
func (s *Server) converse(run *session.Running, files []*os.File, c probe.Config) ([]probe.Try, error) {
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(files[2], 4096))
		said <- strings.TrimSpace(string(text))
	}()
	if err := json.NewEncoder(files[0]).Encode(c); err != nil {
		return nil, fmt.Errorf("telling the probe what to try: %w", err)
	}
	tries, err := probe.Read(files[1])
	if err != nil {
		s.stop(run)
		return nil, fmt.Errorf("hearing the probe: %w (it said %q)", err, <-said)
	}
	return tries, nil
}

func packets(c netdapi.Counters) map[string]uint64 {
	m := make(map[string]uint64, len(c))
	for k, v := range c {
		m[k] = v.Packets
	}
	return m
}
