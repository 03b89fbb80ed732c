// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package budget keeps what agents have used up, across crashes.
//
// [Meter] counts what they use of the budgets that policy gives them.
//
// [Labels] counts the names that each agent makes up under wildcards. It is the
// one place where that is counted: the resolver asks it before it gives a name
// an address, the egress plane before it looks a name up, whichever way the
// request came. What package labels decides, it remembers: a name is on disk
// before it is let through, so a kill at any instant loses no count (I13).
package budget

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"bawn/internal/agentfile"
	"bawn/internal/codes"
	"bawn/internal/labels"
	"bawn/internal/names"
	"bawn/internal/verdict"
)

// Labels counts names under wildcards, by agent and day. A day is one of UTC. It
// may be used by many goroutines.
type Labels struct {
	lim   labels.Limits
	log   *slog.Logger
	files *agentfile.Folder[*counted] // nil: nothing is kept

	mu     sync.Mutex
	unkept map[string]*counted
}

// NewLabels counts in memory only, for whatever agent asks: for case files, which
// begin anew each time.
func NewLabels(lim labels.Limits) *Labels {
	return &Labels{lim: lim.WithDefaults(), log: slog.New(slog.DiscardHandler), unkept: map[string]*counted{}}
}

// OpenLabels takes the directory dir, which must exist. Nobody has a budget
// before [Labels.Keep] was called.
func OpenLabels(dir string, lim labels.Limits, log *slog.Logger) (*Labels, error) {
	files, err := agentfile.Open(dir, "labels", readCounted)
	if err != nil {
		return nil, fmt.Errorf("opening label budgets: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Labels{lim: lim.WithDefaults(), log: log, files: files}, nil
}

var _ io.Closer = (*Labels)(nil)

// Close gives the directory back.
func (l *Labels) Close() error { return l.files.Close() }

// Keep says which agents are registered: id by name. What others had used up is
// forgotten.
func (l *Labels) Keep(agents map[string]string) error { return l.files.Keep(agents) }

// Take judges that the agent uses the name host, which the wildcard under lets
// in, at the time now; names that are new today are counted. A zero pattern is
// no wildcard: such a name costs nothing. What cannot be counted is refused.
//
// The detail of a verdict that allows says what is odd about the name, if
// anything.
func (l *Labels) Take(agent string, host names.Host, under names.Pattern, now time.Time) verdict.Verdict {
	if !under.Wildcard() {
		return allowed(false)
	}
	a, err := l.of(agent)
	if err != nil {
		return l.fault(agent, host, err)
	}
	v, err := a.take(l.lim, host, under, dayOf(now))
	if err != nil {
		return l.fault(agent, host, err)
	}
	return v
}

func (l *Labels) of(agent string) (*counted, error) {
	if l.files != nil {
		return l.files.Of(agent)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.unkept[agent]
	if a == nil {
		a = &counted{day: -1}
		a.clear()
		l.unkept[agent] = a
	}
	return a, nil
}

func (l *Labels) fault(agent string, host names.Host, err error) verdict.Verdict {
	l.log.Error("a name under a wildcard cannot be counted", "agent", agent, "host", host.String(), "error", err)
	return verdict.Refuse("name", codes.InternalError, "the name cannot be counted: "+err.Error())
}

// allowed lets a name through; odd says that it looks like encoded data.
func allowed(odd bool) verdict.Verdict {
	v := verdict.Verdict{Effect: verdict.Allow}
	if odd {
		v.Detail = "the name looks like encoded data"
	}
	return v
}

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// counted is what one agent has made up on one day. Its file has a line
// "day N", N in days since 1970, and then the names. They are the names as they
// were looked up: which domain one counts for is found out anew at each start.
type counted struct {
	mu      sync.Mutex
	lines   *agentfile.Lines // nil: in memory only
	day     int64
	names   map[names.Host]made
	domains map[names.Host]labels.Count // All is not used
}

// made is what is known of a name.
type made struct {
	under names.Pattern // the wildcard that let it in
	odd   bool          // it looks like encoded data
}

func readCounted(path string) (*counted, error) {
	lines, text, err := agentfile.ReadLines(path)
	if err != nil {
		return nil, fmt.Errorf("reading label budget: %w", err)
	}
	a := &counted{lines: lines, day: -1}
	a.clear()
	for i, line := range text {
		if err := a.parse(i, line); err != nil {
			return nil, fmt.Errorf("reading label budget %s: line %d: %w", path, i+1, err)
		}
	}
	return a, nil
}

func (a *counted) clear() {
	a.names, a.domains = map[names.Host]made{}, map[names.Host]labels.Count{}
}

// parse reads a line: the day, or a name and the wildcard that let it in.
func (a *counted) parse(i int, line string) (err error) {
	if i == 0 {
		number, ok := strings.CutPrefix(line, "day ")
		if a.day, err = strconv.ParseInt(number, 10, 64); !ok || err != nil || a.day < 0 {
			return fmt.Errorf("%q is no day", line)
		}
		return nil
	}
	name, wildcard, _ := strings.Cut(line, " ")
	h, err := names.Parse(name)
	if err != nil {
		return err
	}
	p, err := names.ParsePattern(wildcard)
	if err != nil {
		return err
	}
	if !p.Wildcard() || !p.Match(h) || h.String() != name || p.String() != wildcard {
		return fmt.Errorf("%q is no name under a wildcard", line)
	}
	a.add(h, p)
	return nil
}

func (a *counted) add(h names.Host, p names.Pattern) {
	c := labels.Of(h, p)
	d := a.domains[c.Domain]
	d.Names++
	d.Octets += len(c.Labels)
	a.domains[c.Domain] = d
	a.names[h] = made{p, c.Encoded()}
}

// take counts host, if it is new and may be. One that is known tells nobody
// anything new.
func (a *counted) take(lim labels.Limits, host names.Host, under names.Pattern, today int64) (verdict.Verdict, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.turn(today); err != nil {
		return verdict.Verdict{}, err
	}
	if m, known := a.names[host]; known {
		return allowed(m.odd), nil
	}
	c := labels.Of(host, under)
	if v := lim.Shape(c); !v.Allowed() {
		return v, nil
	}
	before := a.domains[c.Domain]
	before.All = len(a.names)
	if v := lim.New(c, before); !v.Allowed() {
		return v, nil
	}
	if a.lines != nil {
		if err := a.lines.Append(host.String()+" "+under.String()+"\n", true); err != nil {
			return verdict.Verdict{}, fmt.Errorf("counting a name: %w", err)
		}
	}
	a.add(host, under)
	return allowed(a.names[host].odd), nil
}

// turn begins a new day. A clock that was set back takes no count away: what was
// used up stays so until the day after.
func (a *counted) turn(today int64) error {
	if today == a.day {
		return nil
	}
	kept := map[names.Host]made{}
	if today < a.day {
		kept = a.names
	}
	var b strings.Builder
	fmt.Fprintf(&b, "day %d\n", today)
	for h, m := range kept {
		fmt.Fprintf(&b, "%s %s\n", h, m.under)
	}
	if a.lines != nil {
		if err := a.lines.Replace(b.String()); err != nil {
			return fmt.Errorf("beginning a day of label budgets: %w", err)
		}
	}
	a.day = today
	a.clear()
	for h, m := range kept {
		a.add(h, m.under)
	}
	return nil
}

// Drop is called when the agent is gone.
func (a *counted) Drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines.Drop()
}
