// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/agentfile"
	"bawn/internal/names"
	"bawn/internal/quota"
)

// An account is what one agent has used. Its file has a line for each share that
// was set aside, and for each name:
//
//	used WHAT PERIOD RULE WINDOW N      N of the window are used up, or set aside
//	name WHAT PERIOD RULE WINDOW NAME   one more name was used in the window
//
// RULE is "-" for what is counted for the agent as a whole. Of several lines
// "used" about one thing the last counts, and so does its window: a name of
// another window is of the past.
type account struct {
	index    sync.RWMutex
	counters map[quota.Key]*counter

	disk  sync.Mutex
	lines *agentfile.Lines // nil: in memory only
	ended bool
}

// A counter is one thing that is counted.
type counter struct {
	key quota.Key
	now atomic.Pointer[cell]
}

// A cell is the count of one window. It is left behind when the window ends, so
// that whoever comes late with a count changes nothing in the next one.
type cell struct {
	window int64
	used   atomic.Int64
	kept   atomic.Int64 // what the file says: that much may be used without another write
	known  sync.Map     // names.Host, of what counts names
}

func newAccount(lines *agentfile.Lines) *account {
	return &account{lines: lines, counters: map[quota.Key]*counter{}}
}

func readAccount(path string) (*account, error) {
	lines, text, err := agentfile.ReadLines(path)
	if err != nil {
		return nil, fmt.Errorf("reading budgets: %w", err)
	}
	a := newAccount(lines)
	for i, line := range text {
		if err := a.parse(line); err != nil {
			return nil, fmt.Errorf("reading budgets %s: line %d: %w", path, i+1, err)
		}
	}
	return a, nil
}

var errLine = errors.New("no count")

// parse reads a line and does what it says.
func (a *account) parse(line string) error {
	f := strings.Split(line, " ")
	if len(f) != 6 {
		return fmt.Errorf("%q: %w", line, errLine)
	}
	what, known := quota.ParseWhat(f[1])
	per, timed := quota.ParsePeriod(f[2])
	key := quota.Key{What: what, Per: per}
	if f[3] != "-" {
		key.Rule = f[3]
	}
	window, err := strconv.ParseInt(f[4], 10, 64)
	if !known || !timed || err != nil || window < 0 || f[2] != per.String() || f[4] != strconv.FormatInt(window, 10) || !ruleForm.MatchString(key.Rule) {
		return fmt.Errorf("%q: %w", line, errLine)
	}
	switch {
	case f[0] == "used" && what != quota.Names:
		n, err := strconv.ParseInt(f[5], 10, 64)
		if err != nil || n < 0 || n > quota.MaxLimit || f[5] != strconv.FormatInt(n, 10) {
			return fmt.Errorf("%q: %w", line, errLine)
		}
		next := &cell{window: window}
		next.used.Store(n)
		next.kept.Store(n)
		a.counter(key).now.Store(next)
		return nil
	case f[0] == "name" && what == quota.Names:
		h, err := names.Parse(f[5])
		if err != nil || h.String() != f[5] {
			return fmt.Errorf("%q: %w", line, errLine)
		}
		c := a.counter(key)
		if now := c.now.Load(); now.window != window {
			c.now.Store(&cell{window: window})
		}
		c.now.Load().add(h)
		return nil
	}
	return fmt.Errorf("%q: %w", line, errLine)
}

// ruleForm is that of ids that policies and grants have; "-" is none.
var ruleForm = regexp.MustCompile(`^([a-z][a-z0-9.-]{0,126})?\z`)

// counter returns the counter of a key.
func (a *account) counter(key quota.Key) *counter {
	a.index.RLock()
	c := a.counters[key]
	a.index.RUnlock()
	if c != nil {
		return c
	}
	a.index.Lock()
	defer a.index.Unlock()
	if c = a.counters[key]; c == nil {
		c = &counter{key: key}
		c.now.Store(&cell{})
		a.counters[key] = c
	}
	return c
}

// look says how much is used at the time now, and of which window, without
// beginning one.
func (a *account) look(key quota.Key, now time.Time) (used, window int64) {
	a.index.RLock()
	c := a.counters[key]
	a.index.RUnlock()
	w := key.Per.Window(now)
	if c == nil {
		return 0, w
	}
	cell := c.now.Load()
	switch {
	case cell.window < w:
		return 0, w
	case cell.window == w+1:
		w++
	}
	return cell.used.Load(), w
}

// at returns the cell of the time now. A clock that is set back gives nothing
// anew: by less than a period, or a little more, the count goes on where it was,
// in the window that has begun already; by more, what was used counts for the
// window that the clock shows now, which is written down at once.
func (c *counter) at(a *account, now time.Time) (*cell, error) {
	w := c.key.Per.Window(now)
	if have := c.now.Load(); have.window == w || have.window == w+1 {
		return have, nil
	}
	a.disk.Lock()
	defer a.disk.Unlock()
	have := c.now.Load()
	if have.window == w || have.window == w+1 {
		return have, nil
	}
	next := &cell{window: w}
	if a.lines == nil {
		next.kept.Store(math.MaxInt64)
	}
	if have.window < w {
		c.now.Store(next)
		return next, nil
	}
	next.used.Store(have.used.Load())
	have.known.Range(func(h, _ any) bool {
		next.known.Store(h, true)
		return true
	})
	if a.lines != nil {
		next.kept.Store(next.used.Load())
		c.now.Store(next)
		if err := a.writeAnew(a.text(now)); err != nil {
			c.now.Store(have)
			return have, fmt.Errorf("writing down what was used before a clock was set back: %w", err)
		}
	}
	c.now.Store(next)
	return next, nil
}

// take counts n more in a cell, unless that is beyond the limit.
func (c *counter) take(a *account, limit, n int64, now time.Time) (in *cell, ok bool, err error) {
	if in, err = c.at(a, now); err != nil {
		return in, false, err
	}
	used := in.used.Add(n)
	if used > limit {
		in.giveBack(n)
		return in, false, nil
	}
	if used <= in.kept.Load() {
		return in, true, nil
	}
	if err := a.setAside(c, in, limit, now); err != nil {
		in.giveBack(n)
		return in, false, err
	}
	return in, true, nil
}

func (c *cell) giveBack(n int64) { c.used.Add(-n) }

// share is how much of a budget is set aside at a time. A write to the disk pays
// for it, and a crash costs what is left of it.
func share(key quota.Key, limit int64) int64 {
	parts := int64(1)
	switch key.Per {
	case quota.Minute:
		parts = 8
	case quota.Hour:
		parts = 32
	case quota.Day:
		parts = 64
	}
	least := int64(1)
	if key.What.Bytes() {
		least = 64 << 10
	}
	return max(least, limit/parts)
}

// setAside writes down that more is used than is, so that it can be.
func (a *account) setAside(c *counter, cell *cell, limit int64, now time.Time) error {
	a.disk.Lock()
	defer a.disk.Unlock()
	used := cell.used.Load()
	kept := cell.kept.Load()
	if used <= kept {
		return nil // somebody else has
	}
	next := max(kept, min(limit, used+share(c.key, limit)))
	if err := a.write("used "+keyText(c.key, cell.window)+" "+strconv.FormatInt(next, 10)+"\n", now); err != nil {
		return fmt.Errorf("setting aside of a budget: %w", err)
	}
	cell.kept.Store(next)
	return nil
}

// mayName reports whether name would count, and counts nothing.
func (c *counter) mayName(a *account, limit int64, h names.Host, now time.Time) (ok bool, window int64, err error) {
	cell, err := c.at(a, now)
	if err != nil {
		return false, cell.window, err
	}
	_, known := cell.known.Load(h)
	return known || cell.used.Load() < limit, cell.window, nil
}

// name counts a name that is new in the window, unless that is beyond the limit.
func (c *counter) name(a *account, limit int64, h names.Host, now time.Time) (ok bool, window int64, err error) {
	cell, err := c.at(a, now)
	if err != nil {
		return false, cell.window, err
	}
	if _, known := cell.known.Load(h); known {
		return true, cell.window, nil
	}
	a.disk.Lock()
	defer a.disk.Unlock()
	if _, known := cell.known.Load(h); known {
		return true, cell.window, nil
	}
	if cell.used.Load() >= limit {
		return false, cell.window, nil
	}
	if err := a.write(nameLine(c.key, cell.window, h), now); err != nil {
		return false, cell.window, fmt.Errorf("counting a name: %w", err)
	}
	cell.add(h)
	return true, cell.window, nil
}

func (c *cell) add(h names.Host) {
	if _, known := c.known.LoadOrStore(h, true); !known {
		c.used.Add(1)
	}
}

func keyText(key quota.Key, window int64) string {
	rule := key.Rule
	if rule == "" {
		rule = "-"
	}
	return key.What.String() + " " + key.Per.String() + " " + rule + " " + strconv.FormatInt(window, 10)
}

func nameLine(key quota.Key, window int64, h names.Host) string {
	return "name " + keyText(key, window) + " " + h.String() + "\n"
}

// maxLines is how many lines a file may have beyond twice what it has to say.
const maxLines = 256

// write adds a line; disk is held. A file that says the same again and again is
// written anew.
func (a *account) write(line string, now time.Time) error {
	switch {
	case a.lines == nil:
		return nil
	case a.ended:
		return errEnded
	case a.lines.Count() > maxLines:
		text := a.text(now)
		if n := strings.Count(text, "\n"); a.lines.Count() > maxLines+2*n {
			if err := a.writeAnew(text); err != nil {
				return err
			}
		}
	}
	return a.lines.Append(line, true)
}

var errEnded = errors.New("budgets are closed")

// writeAnew puts text in the place of the whole file; disk is held.
func (a *account) writeAnew(text string) error {
	if a.ended {
		return errEnded
	}
	return a.lines.Replace(text)
}

// text is the whole file, with what was set aside.
func (a *account) text(now time.Time) string {
	a.index.RLock()
	defer a.index.RUnlock()
	var b strings.Builder
	keys := slices.SortedFunc(maps.Keys(a.counters), func(x, y quota.Key) int {
		return strings.Compare(keyText(x, 0), keyText(y, 0))
	})
	for _, key := range keys {
		cell := a.counters[key].now.Load()
		if cell.window < key.Per.Window(now) {
			continue // of the past
		}
		if key.What == quota.Names {
			cell.known.Range(func(h, _ any) bool {
				b.WriteString(nameLine(key, cell.window, h.(names.Host)))
				return true
			})
			continue
		}
		fmt.Fprintf(&b, "used %s %d\n", keyText(key, cell.window), cell.kept.Load())
	}
	return b.String()
}

// end gives back what was set aside and not used.
func (a *account) end() error {
	a.disk.Lock()
	defer a.disk.Unlock()
	if a.ended || a.lines == nil {
		return nil
	}
	a.ended = true
	a.index.RLock()
	for _, c := range a.counters {
		cell := c.now.Load()
		cell.kept.Store(cell.used.Load()) // what comes late is refused
	}
	a.index.RUnlock()
	if a.lines.Count() == 0 {
		return nil
	}
	return a.lines.Replace(a.text(time.Unix(0, 0)))
}

// Drop is called when the agent is gone.
func (a *account) Drop() {
	a.disk.Lock()
	defer a.disk.Unlock()
	a.lines.Drop()
}
