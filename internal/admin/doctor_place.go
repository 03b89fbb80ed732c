// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/doctor"
	"bawn/internal/fdpass"
	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
	"bawn/internal/probe"
	"bawn/internal/proc"
	"bawn/internal/session"
	"bawn/internal/store"
)

// patience is what each try gets in the run that is to show whether a failure
// was one: a busy machine answers late.
const patience = 3 * time.Second

// placeChecks are those of an agent's place that every run must show.
func placeChecks(p ids.Placement) (names []doctor.Name) {
	for _, c := range doctor.All {
		if (c.Group == doctor.Place || c.Group == doctor.Gate) && c.Name != doctor.SelfTest && (c.Only == "" || c.Only == p) {
			names = append(names, c.Name)
		}
	}
	return names
}

// examine runs the probe in one placement. What fails shuts the placement at
// once; whether it stays shut a second, patient run decides. Whatever keeps the
// probe from running is a failed line: what was not shown does not hold.
func (s *Server) examine(ctx context.Context, agent store.Agent, p ids.Placement) []apitype.DoctorLine {
	lines, err := s.try(ctx, agent, p, 0)
	if l := doctor.Shutting(lines); err == nil && l != nil {
		s.open(p, fmt.Sprintf("the self-test failed: %s: %s", l.Check, l.Detail))
		lines, err = s.try(ctx, agent, p, patience)
	}
	if err != nil {
		return []apitype.DoctorLine{doctor.Finding{Name: doctor.SelfTest, Placement: p, State: doctor.Fail, Seen: err.Error()}.Line()}
	}
	return lines
}

// try runs the probe once. Each of its tries takes at most timeout; 0 is the
// usual one.
func (s *Server) try(ctx context.Context, agent store.Agent, p ids.Placement, timeout time.Duration) ([]apitype.DoctorLine, error) {
	findings, err := s.runProbe(ctx, agent, p, timeout)
	if err != nil {
		return nil, err
	}
	findings = append(findings, doctor.Finding{Name: doctor.SelfTest, Placement: p, State: doctor.OK})
	return doctor.Lines(p, placeChecks(p), findings), nil
}

func (s *Server) runProbe(ctx context.Context, agent store.Agent, p ids.Placement, timeout time.Duration) ([]doctor.Finding, error) {
	netd, err := s.netd.wait(ctx)
	if err != nil {
		return nil, err
	}
	lures, held, err := lay(ctx, netd)
	if err != nil {
		return nil, err
	}
	defer fdpass.CloseAll(held)
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
	c := s.probeConfig(run, p, lures)
	if timeout > 0 {
		c.Timeout = timeout
	}
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
	return append(probe.Evaluate(p, tries, packets(before), packets(after)), s.onRecord(ctx, run, c)), nil
}

// lay has netd open listeners of the host that nobody needs, so that there is
// something to find. They are root's: what admin sends is refused by the
// kernel, and so would be its answers.
func lay(ctx context.Context, netd *netdapi.Client) (netdapi.Lures, []*os.File, error) {
	l, files, err := netd.Lures(ctx)
	if err != nil {
		return l, nil, fmt.Errorf("opening the host's own ports: %w", err)
	}
	return l, files, nil
}

func (s *Server) probeConfig(run *session.Running, p ids.Placement, l netdapi.Lures) probe.Config {
	proxy := netip.AddrPortFrom(netplan.Gateway, netplan.ProxyPort)
	if p == ids.PlacementUID {
		proxy = netplan.UIDProxy(run.Slot)
	}
	c := probe.Default(p, proxy)
	c.CA, c.Bundle = path.Join(proc.PublicPath, proc.CAFile), path.Join(proc.PublicPath, proc.BundleFile)
	c.Loopback = append(c.Loopback, l.TCP...)
	c.Datagrams = append(c.Datagrams, l.UDP...)
	c.Abstract = append(c.Abstract, l.Abstract...)
	c.Own = append(c.Own, s.o.Paths.AdminSock(), s.o.Paths.NetdSock())
	c.Files = s.ownFiles()
	return c
}

// ownFiles are what no agent may see, let alone write: policy, record, keys.
func (s *Server) ownFiles() []string {
	p := s.o.Paths
	return []string{
		p.Etc(), p.ConfigFile(), p.State("admin"), p.Database(), p.State("proxy"), p.Journal("proxy"), p.Lock(),
		path.Join(p.State("admin"), "ca.key"), path.Join(p.State("admin"), "audit.key"), p.Agents(),
	}
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
