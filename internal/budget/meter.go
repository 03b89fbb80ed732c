// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/agentfile"
	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/quota"
	"bawn/internal/verdict"
)

// A Meter counts what agents use of the budgets that policy gives them: in one
// place, by the agent, whichever of its sessions, connections and streams it
// comes from.
//
// The bounds are handed in with each question, since they change with the policy;
// the counts stay. What is not budgeted is not counted.
//
// A count is kept on disk ahead of its use: a share of the budget is written down
// as used, and then used without another write. So a kill at any instant loses no
// count (I13), and costs the agent what was left of one share: a 64th of a budget
// for a day, a 32nd of one for an hour, an 8th of one for a minute. [Meter.Close]
// gives back what was not used.
//
// A Meter may be used by many goroutines.
type Meter struct {
	log     *slog.Logger
	files   *agentfile.Folder[*account] // nil: nothing is kept
	refused []atomic.Uint64             // by quota.What

	mu     sync.Mutex
	unkept map[string]*account
	open   map[string]*Open
}

// NewMeter counts in memory only, for whatever agent asks: for case files, which
// begin anew each time.
func NewMeter() *Meter {
	return &Meter{
		log: slog.New(slog.DiscardHandler), refused: make([]atomic.Uint64, len(quota.Whats())),
		unkept: map[string]*account{}, open: map[string]*Open{},
	}
}

// OpenMeter takes the directory dir, which must exist. Nobody has a count before
// [Meter.Keep] was called, and what has a budget is refused.
func OpenMeter(dir string, log *slog.Logger) (*Meter, error) {
	files, err := agentfile.Open(dir, "used", readAccount)
	if err != nil {
		return nil, fmt.Errorf("opening budgets: %w", err)
	}
	m := NewMeter()
	m.files = files
	if log != nil {
		m.log = log
	}
	return m, nil
}

var _ io.Closer = (*Meter)(nil)

// Close writes down what was really used, and gives the directory back. Nothing
// that has a budget is let through any more.
func (m *Meter) Close() error {
	var errs []error
	if m.files == nil {
		return nil
	}
	for a := range m.files.Known() {
		errs = append(errs, a.end())
	}
	return errors.Join(append(errs, m.files.Close())...)
}

// Keep says which agents are registered: id by name. What others had used up is
// forgotten.
func (m *Meter) Keep(agents map[string]string) error { return m.files.Keep(agents) }

func (m *Meter) of(agent string) (*account, error) {
	if m.files != nil {
		return m.files.Of(agent)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.unkept[agent]
	if a == nil {
		a = newAccount(nil)
		m.unkept[agent] = a
	}
	return a, nil
}

// fault refuses what cannot be counted.
func (m *Meter) fault(agent string, err error) verdict.Verdict {
	m.log.Error("what an agent uses cannot be counted", "agent", agent, "error", err)
	return verdict.Refuse(quota.Stage, codes.InternalError, "what is used of a budget cannot be counted: "+err.Error())
}

// over refuses what goes beyond a budget.
func (m *Meter) over(b quota.Budget, window int64) verdict.Verdict {
	m.refused[b.What].Add(1)
	return b.Refuse(window)
}

// Refused is how often something was refused for a budget of w.
func (m *Meter) Refused(w quota.What) uint64 { return m.refused[w].Load() }

var fine = verdict.Verdict{Effect: verdict.Allow}

// Once counts one of what, such as a question to the resolver, against those of
// budgets that are about it.
func (m *Meter) Once(agent string, what quota.What, budgets []quota.Budget, now time.Time) verdict.Verdict {
	for _, b := range budgets {
		if b.What == what {
			p := Pass{m: m, agent: agent}
			set, err := p.resolve(budgets, nil)
			if err != nil {
				return m.fault(agent, err)
			}
			return p.take(set, what, 1, now)
		}
	}
	return fine
}

// An Open counts the connections of one agent that are open.
type Open struct{ n atomic.Int64 }

// Connections gives the count of an agent.
func (m *Meter) Connections(agent string) *Open {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.open[agent]
	if o == nil {
		o = &Open{}
		m.open[agent] = o
	}
	return o
}

// Connect judges a connection that was accepted for an agent, and counts it: if it
// is let through, [Open.Leave] is due at its end.
func (m *Meter) Connect(agent string, o *Open, budgets []quota.Budget, now time.Time) verdict.Verdict {
	n := o.n.Add(1)
	for _, b := range budgets {
		if b.What == quota.Connections && n > b.Limit {
			o.n.Add(-1)
			return m.over(b, 0)
		}
	}
	v := m.Once(agent, quota.NewConnections, budgets, now)
	if !v.Allowed() {
		o.n.Add(-1)
	}
	return v
}

// Leave says that a connection has ended.
func (o *Open) Leave() { o.n.Add(-1) }

// A Usage is how much of a budget is used up.
type Usage struct {
	quota.Budget
	Used int64
	Ends time.Time // when it begins anew; zero: it is at a time
}

// Usage says what an agent has used of budgets at the time now.
func (m *Meter) Usage(agent string, budgets []quota.Budget, now time.Time) ([]Usage, error) {
	a, err := m.of(agent)
	if err != nil {
		return nil, err
	}
	list := make([]Usage, 0, len(budgets))
	for _, b := range budgets {
		u := Usage{Budget: b}
		if b.Per == quota.AtATime {
			u.Used = m.Connections(agent).n.Load()
		} else {
			var window int64
			u.Used, window = a.look(b.Key, now)
			u.Ends = b.Per.Begins(window + 1)
		}
		list = append(list, u)
	}
	return list, nil
}

// Use counts n of a key as used by an agent, whatever its budget: what a case file
// says was used before it.
func (m *Meter) Use(agent string, key quota.Key, n int64, now time.Time) error {
	a, err := m.of(agent)
	if err == nil {
		_, _, err = a.counter(key).take(a, quota.MaxLimit, n, now)
	}
	return err
}

// A Pass is what one request, WebSocket or tunnel is counted by while it lasts.
// It may be used by many goroutines. The nil Pass lets nothing through.
type Pass struct {
	m     *Meter
	agent string
	set   atomic.Pointer[[]charge]
}

// A charge is one budget that a pass counts against.
type charge struct {
	b *quota.Budget // of the policy, which does not change
	a *account
	c *counter
}

// NewPass returns a pass that counts nothing yet.
func (m *Meter) NewPass(agent string) *Pass { return &Pass{m: m, agent: agent} }

func (p *Pass) resolve(ofAgent, ofRules []quota.Budget) ([]charge, error) {
	if len(ofAgent)+len(ofRules) == 0 {
		return nil, nil
	}
	a, err := p.m.of(p.agent)
	if err != nil {
		return nil, err
	}
	set := make([]charge, 0, len(ofAgent)+len(ofRules))
	for _, list := range [2][]quota.Budget{ofAgent, ofRules} {
		for i := range list {
			if b := &list[i]; b.Per != quota.AtATime {
				set = append(set, charge{b, a, a.counter(b.Key)})
			}
		}
	}
	return set, nil
}

// Begin judges that something begins, which goes to host, and counts it: one
// request, and its name. It may be called again when the policy has changed since,
// and counts what was counted already no second time.
func (p *Pass) Begin(ofAgent, ofRules []quota.Budget, host names.Host, now time.Time) verdict.Verdict {
	set, err := p.resolve(ofAgent, ofRules)
	if err != nil {
		return p.m.fault(p.agent, err)
	}
	if set == nil {
		p.set.Store(nil)
		return fine
	}
	old := p.set.Swap(&set)
	fresh := set
	if old != nil {
		fresh = without(set, *old)
	}
	for i := range set {
		if ch := &set[i]; ch.b.What.Bytes() {
			if used, window := ch.a.look(ch.b.Key, now); used >= ch.b.Limit {
				return p.m.over(*ch.b, window)
			}
		}
	}
	// A request that is refused costs no name, and one whose name is refused no
	// request: names are looked at before, and counted behind.
	if v := p.names(fresh, host, now, (*counter).mayName); !v.Allowed() {
		return v
	}
	if v := p.take(fresh, quota.Requests, 1, now); !v.Allowed() {
		return v
	}
	return p.names(fresh, host, now, (*counter).name)
}

func (p *Pass) names(set []charge, host names.Host, now time.Time, may func(*counter, *account, int64, names.Host, time.Time) (bool, int64, error)) verdict.Verdict {
	for i := range set {
		ch := &set[i]
		if ch.b.What != quota.Names {
			continue
		}
		switch ok, window, err := may(ch.c, ch.a, ch.b.Limit, host, now); {
		case err != nil:
			return p.m.fault(p.agent, err)
		case !ok:
			return p.m.over(*ch.b, window)
		}
	}
	return fine
}

// without lists the charges of set whose keys old does not have.
func without(set, old []charge) []charge {
	var list []charge
next:
	for i := range set {
		for j := range old {
			if old[j].c == set[i].c {
				continue next
			}
		}
		list = append(list, set[i])
	}
	return list
}

// Adopt puts other bounds in the place of those that the pass began with, and
// judges whether it may go on under them.
func (p *Pass) Adopt(ofAgent, ofRules []quota.Budget, now time.Time) verdict.Verdict {
	set, err := p.resolve(ofAgent, ofRules)
	if err != nil {
		return p.m.fault(p.agent, err)
	}
	if set == nil {
		p.set.Store(nil)
		return fine
	}
	p.set.Store(&set)
	for i := range set {
		if ch := &set[i]; ch.b.What.Bytes() {
			if used, window := ch.a.look(ch.b.Key, now); used > ch.b.Limit {
				return p.m.over(*ch.b, window)
			}
		}
	}
	return fine
}

// Take judges that n more of what is used, and counts it. What is refused is not
// counted.
func (p *Pass) Take(what quota.What, n int64, now func() time.Time) verdict.Verdict {
	set := p.set.Load()
	if set == nil || n == 0 {
		return fine
	}
	return p.take(*set, what, n, now())
}

func (p *Pass) take(set []charge, what quota.What, n int64, now time.Time) verdict.Verdict {
	var room [4]*cell
	took := room[:0]
	for i := range set {
		ch := &set[i]
		if ch.b.What != what {
			continue
		}
		in, ok, err := ch.c.take(ch.a, ch.b.Limit, n, now)
		if ok {
			took = append(took, in)
			continue
		}
		for _, c := range took {
			c.giveBack(n)
		}
		if err != nil {
			return p.m.fault(p.agent, err)
		}
		return p.m.over(*ch.b, in.window)
	}
	return fine
}
