// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"bawn/internal/addr"
	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/budget"
	"bawn/internal/ca"
	"bawn/internal/client"
	"bawn/internal/config"
	"bawn/internal/dnsclient"
	"bawn/internal/egress"
	"bawn/internal/handover"
	"bawn/internal/labels"
	"bawn/internal/lease"
	"bawn/internal/lifecycle"
	"bawn/internal/metrics"
	"bawn/internal/netplan"
	"bawn/internal/parent"
	"bawn/internal/resolver"
)

func (a *app) proxyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "proxy", Hidden: true, Short: "Run the proxy process (bawn up starts it)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := unprivileged(); err != nil {
				return fmt.Errorf("starting proxy: %w", err)
			}
			unix.Umask(0o027)
			saveMemory()
			by, err := a.started("proxy")
			if err != nil {
				return err
			}
			by.live(cmd.Context())
			p, err := a.newProxy(cmd.Context(), by)
			if err != nil {
				return err
			}
			defer p.journal.Close()
			defer p.table.Close()
			defer p.labels.Close()
			return errors.Join(p.run(cmd.Context()), p.meter.Close())
		},
	}
}

// gcPercent is by how much, in percent, the heap may grow before the next
// collection. What the proxy keeps for connections that wait is most of its
// heap, and a request allocates little: to collect twice as often as Go does of
// itself costs little, and spares up to half as much memory as is in use.
const gcPercent = 50

// saveMemory leaves the last word to an operator who sets GOGC.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// proxy wires the egress and resolver planes to what they use.
type proxy struct {
	by      started
	paths   config.Paths
	log     *slog.Logger
	admin   *client.Client
	lease   *lease.Holder
	handed  *handover.Contents
	journal *audit.Journal
	minter  *ca.Minter
	issuer  *ca.Intermediate
	table   *resolver.Table
	labels  *budget.Labels
	meter   *budget.Meter
	counts  *metrics.Proxy
	began   time.Time
	parent  *parent.Proxy // nil: there is none
	pruner  *pruner
	egress  *egress.Server
	dns     *resolver.Server
	own     ownAddresses
	feed    *feed
}

func (a *app) newProxy(ctx context.Context, by started) (*proxy, error) {
	p := &proxy{by: by, paths: a.paths(), log: a.logger("proxy"), admin: a.client(), counts: metrics.NewProxy(), began: time.Now()}
	var err error
	if p.handed, err = by.handover(ctx); err != nil {
		return nil, err
	}
	cfg, err := config.Load(p.paths)
	if err != nil {
		return nil, err
	}
	servers, err := cfg.Nameservers()
	if err != nil {
		return nil, err
	}
	roots, err := upstreamRoots(cfg)
	if err != nil {
		return nil, err
	}
	p.lease = lease.New(p.admin, "proxy", p.log)
	if err := p.openAgentFiles(cfg); err != nil {
		return nil, err
	}
	if err := p.firstIntermediate(ctx); err != nil {
		return nil, err
	}
	if p.journal, err = audit.OpenJournal(p.paths.Journal("proxy"), audit.Options{Plane: "proxy", Log: p.log, Now: wallClock()}); err != nil {
		return nil, err
	}
	p.own.read() // the first to dial may come before the first of the watch
	p.wire(cfg, servers, roots)
	return p, nil
}

// openAgentFiles opens what is kept for each agent: the synthetic addresses that
// it was given, the names that it made up, and what it used of its budgets. It ends
// with the agent.
func (p *proxy) openAgentFiles(cfg config.Config) (err error) {
	dirs := map[string]string{}
	for _, name := range []string{"names", "labels", "budgets"} {
		dirs[name] = filepath.Join(p.paths.State("proxy"), name)
		if err := os.Mkdir(dirs[name], 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making %s: %w", dirs[name], err)
		}
	}
	if p.table, err = resolver.OpenTable(dirs["names"], resolver.TableOptions{Now: wallClock()}); err != nil {
		return err
	}
	w := cfg.Wildcards
	p.labels, err = budget.OpenLabels(dirs["labels"], labels.Limits{
		Names: w.Names, Octets: w.Octets, AllNames: w.AllNames, NameOctets: w.NameOctets, NameLabels: w.NameLabels,
	}, p.log)
	if err != nil {
		return errors.Join(err, p.table.Close())
	}
	if p.meter, err = budget.OpenMeter(dirs["budgets"], p.log); err != nil {
		return errors.Join(err, p.table.Close(), p.labels.Close())
	}
	p.lease.Learn(p.keep)
	p.pruner = newPruner(p.paths.Journal("proxy"), cfg.Audit, p.log)
	p.lease.Hears(p.pruner.hear)
	return nil
}

// keep lets go of what was kept for agents that are not registered any more.
func (p *proxy) keep(agents []apitype.SnapshotAgent) {
	byName := make(map[string]string, len(agents))
	for _, a := range agents {
		byName[a.Name] = a.ID
	}
	if err := errors.Join(p.table.Keep(byName), p.labels.Keep(byName), p.meter.Keep(byName)); err != nil {
		p.log.Error("what was kept for agents that are gone is still there", "error", err)
	}
}

// wire is the one place where the planes meet.
func (p *proxy) wire(cfg config.Config, servers []netip.AddrPort, roots *x509.CertPool) {
	names := dnsclient.New(dnsclient.Options{Servers: servers})
	e := egress.Config{
		Policies: p.lease,
		Recorder: p.counts.Recorder(metrics.Egress, p.journal),
		Judged:   p.counts.Judged,
		Resolver: names,
		Minter:   p.minter,
		Names:    p.table,
		Budget:   p.labels,
		Meter:    p.meter,
		Keys:     p.handed,
		Roots:    roots,
		Vet:      p.own.vet,
		Log:      p.log,
		Stages:   stages(),
		Now:      wallClock(),
	}
	if p.parent = p.newParent(cfg, names, roots); p.parent != nil {
		e.Parent = p.parent
		p.lease.Reports(p.parentHealth)
	}
	p.lease.Checks(func(ctx context.Context) apitype.ResolverReport { return resolverReport(names.Check(ctx)) })
	p.egress = egress.New(e)
	p.dns = resolver.New(resolver.Config{Policies: p.lease, Recorder: p.counts.Recorder(metrics.Resolver, p.journal), Addresses: p.table, Budget: p.labels, Meter: p.meter, Log: p.log, Now: wallClock()})
	p.feed = &feed{sock: p.paths.NetdSock(), log: p.log, egress: p.egress, dns: p.dns}
}

// run serves until ctx is done.
func (p *proxy) run(ctx context.Context) error {
	ready := p.by.ready()
	return lifecycle.Run(ctx,
		lifecycle.Service{Name: "lease", Run: p.lease.Run},
		lifecycle.Service{Name: "old records", Run: p.pruner.run},
		lifecycle.Service{Name: "intermediate", Run: p.renewIntermediate},
		lifecycle.Service{Name: "own addresses", Run: p.own.watch},
		lifecycle.Service{Name: "parent", Run: p.watchParent},
		lifecycle.Service{Name: "reports", Run: p.reports},
		lifecycle.Service{Name: "listeners", Run: func(ctx context.Context) error {
			if !p.waitLease(ctx) {
				return nil
			}
			return p.feed.run(ctx, ready)
		}},
	)
}

// waitLease blocks until admin has answered once, with a policy or without.
func (p *proxy) waitLease(ctx context.Context) bool {
	for {
		changed := p.lease.Changed()
		if _, _, v := p.lease.Current(); v.Detail != lease.NoLease {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// signRetry is waited when admin does not sign.
const signRetry = 200 * time.Millisecond

// firstIntermediate waits for admin: without a certificate nothing can be
// served.
func (p *proxy) firstIntermediate(ctx context.Context) error {
	for {
		issuer, err := p.askIntermediate(ctx)
		if err == nil {
			p.issuer = issuer
			p.minter, err = ca.NewMinter(issuer, nil)
			return err
		}
		p.log.Debug("admin has not signed yet", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(signRetry):
		}
	}
}

func (p *proxy) askIntermediate(ctx context.Context) (*ca.Intermediate, error) {
	req, err := ca.NewRequest("Bawn egress intermediate")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	signed, err := p.admin.SignIntermediate(ctx, req.CSR())
	if err != nil {
		return nil, err
	}
	return req.Complete(signed.Chain, time.Now())
}

// renewIntermediate asks for the next one in time, and goes on asking.
func (p *proxy) renewIntermediate(ctx context.Context) error {
	for {
		// Wall clock: a suspended machine must not sleep through the end.
		for time.Now().Before(p.issuer.RenewAt()) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Minute):
			}
		}
		issuer, err := p.askIntermediate(ctx)
		if err != nil {
			p.log.Warn("the intermediate cannot be renewed", "until", p.issuer.NotAfter(), "error", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Minute):
			}
			continue
		}
		p.issuer = issuer
		p.minter.Use(issuer)
	}
}

// ownAddresses keeps the addresses of this host's interfaces, which no name may
// lead to.
type ownAddresses struct {
	mu   sync.RWMutex
	list []netip.Addr
	err  error
}

// lookAgain is how often interfaces are read.
const lookAgain = time.Second

func (o *ownAddresses) watch(ctx context.Context) error {
	for {
		o.read()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

func (o *ownAddresses) read() {
	addrs, err := net.InterfaceAddrs()
	var list []netip.Addr
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				list = append(list, ip.Unmap())
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list, o.err = list, err
}

// vet is what addresses are checked by. While the host's own addresses cannot
// be read, nothing may be dialled.
func (o *ownAddresses) vet() addr.Vet {
	o.mu.RLock()
	defer o.mu.RUnlock()
	v := addr.Vet{Own: o.list, Never: bawnRanges()}
	if o.err != nil || o.list == nil {
		v.Never = append(v.Never, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	}
	return v
}

// bawnRanges are those that Bawn uses for its own listeners and for synthetic
// names.
func bawnRanges() []netip.Prefix {
	return []netip.Prefix{netplan.Synthetic, netplan.UIDProxies}
}

// resolverReport is what admin is told of the resolvers.
func resolverReport(list []dnsclient.Health) apitype.ResolverReport {
	r := apitype.ResolverReport{Asked: len(list)}
	for _, h := range list {
		if h.Err != nil {
			r.Failed = append(r.Failed, fmt.Sprintf("%s: %v", h.Server, h.Err))
		}
	}
	return r
}
