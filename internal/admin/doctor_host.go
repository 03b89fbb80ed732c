// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/addr"
	"bawn/internal/audit"
	"bawn/internal/doctor"
	"bawn/internal/probe"
	"bawn/internal/session"
	"bawn/internal/verdict"
)

// examineHost looks at the host from outside an agent's place: netd at what
// only root may see, admin at what it knows itself.
func (s *Server) examineHost(ctx context.Context) []doctor.Finding {
	var list []doctor.Finding
	netd, err := s.netd.wait(ctx)
	if err == nil {
		list, err = netd.Examine(ctx)
	}
	if err != nil {
		list = nil
		for _, name := range doctor.Outside {
			list = append(list, doctor.Finding{Name: name, State: doctor.Fail, Seen: "netd: " + err.Error(), Fix: "look at netd's log"})
		}
	}
	list = append(list, s.clock.look(s.o.Now()), doctor.Build(s.o.Now(), s.o.Built), s.caDates(), s.leaseFinding(), s.checkpoints(), s.indexFinding())
	return append(list, s.healthFindings(ctx)...)
}

// A clock compares the wall clock with one that nobody sets.
type clock struct {
	now  func() time.Duration // since some moment; CLOCK_BOOTTIME
	wall time.Time            // at the last look
	mono time.Duration
}

// sinceBoot reads CLOCK_BOOTTIME, which goes on while the machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// look says how far the wall clock has jumped since the last look.
func (c *clock) look(wall time.Time) doctor.Finding {
	mono := c.now()
	f := doctor.Jump(c.wall, wall, c.mono, mono)
	c.wall, c.mono = wall, mono
	return f
}

// caDates looks at the root's.
func (s *Server) caDates() doctor.Finding {
	from, to := s.root.Validity()
	return doctor.Dates(s.o.Now(), from, to)
}

// checkpoints says how the journals are covered.
func (s *Server) checkpoints() doctor.Finding {
	var list []doctor.Covered
	for _, st := range s.signer.States() {
		list = append(list, doctor.Covered{Series: st.Series, Fault: st.Fault, Broken: st.Broken, Waiting: st.Waiting, Signed: st.Signed})
	}
	return doctor.Checkpoints(s.o.Now(), list)
}

// indexFinding says how far the index is behind.
func (s *Server) indexFinding() doctor.Finding {
	h := s.index.Health()
	return doctor.Behind(h.Behind, h.Lag, h.Alarm)
}

// leaseFinding says whether a plane enforces the revision in force.
func (s *Server) leaseFinding() doctor.Finding {
	f := doctor.Finding{Name: doctor.Lease, State: doctor.Fail, Seen: "no proxy holds a lease"}
	want := s.planes.snapshot().Revision
	for _, p := range s.planes.list() {
		switch {
		case !p.Live:
		case p.Revision == want:
			return doctor.Finding{Name: doctor.Lease, State: doctor.OK, Seen: fmt.Sprintf("revision %d", want)}
		default:
			f.Seen = fmt.Sprintf("the proxy enforces revision %d, not %d", p.Revision, want)
		}
	}
	return f
}

// healthFindings ask the planes how what they depend on does.
func (s *Server) healthFindings(ctx context.Context) []doctor.Finding {
	list := make([]doctor.Finding, 2)
	var all sync.WaitGroup
	all.Go(func() { list[0] = s.resolverFinding(ctx) })
	all.Go(func() { list[1] = s.parentFinding(ctx) })
	all.Wait()
	return list
}

// resolverPatience is how long the proxy may take to ask its resolvers: the time
// of one exchange, twice, and a beat or two.
const resolverPatience = 8 * time.Second

// resolverFinding has the proxy ask its resolvers. Where everything goes out by a
// parent proxy that resolves, none may be needed; they are asked all the same.
func (s *Server) resolverFinding(ctx context.Context) doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, resolverPatience)
	defer cancel()
	f := doctor.Finding{Name: doctor.Resolvers, State: doctor.Fail, Seen: "the proxy has not said so"}
	number := s.planes.askResolvers()
	for {
		r, changed := s.planes.resolverReport()
		if r.Check >= number {
			return doctor.OfResolvers(r.Asked, r.Failed)
		}
		select {
		case <-ctx.Done():
			return f
		case <-changed:
		}
	}
}

// recordTime bounds how long the journal may take to show what it holds.
const recordTime = 2 * time.Second

// onRecord looks for the run's refusals in the journal: that of the canary, and
// that of a metadata address, which has to be marked.
func (s *Server) onRecord(ctx context.Context, run *session.Running, c probe.Config) doctor.Finding {
	end := time.Now().Add(recordTime)
	for {
		seen, err := s.recorded(run)
		f := doctor.Recorded(seen, c.Canary, err)
		f.Placement = run.Placement
		if f.State == doctor.OK || time.Now().After(end) || ctx.Err() != nil {
			return f
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// maxTries is more than a run of both placements puts on record.
const maxTries = 1024

// recorded lists the decisions of the session. It reads the ends of the journal
// back to the beginning of the session, and no more.
func (s *Server) recorded(run *session.Running) (list []doctor.Record, err error) {
	filter := audit.Filter{Agent: session.Doctor, Since: run.Started.Add(-time.Second), Limit: maxTries}
	for e, err := range audit.Scan(s.o.Paths.Journal("proxy"), filter) {
		if err != nil {
			return nil, err
		}
		if d := e.Decision; d != nil && d.Session == run.Session.Session {
			list = append(list, doctor.Record{
				Allowed: d.Verdict == verdict.Allow, Host: d.Host, Sensitive: d.Sensitive, Metadata: addr.IsMetadataHost(d.Host) || addr.IsMetadataHost(d.Asked),
			})
		}
	}
	return list, nil
}
