// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"bawn/internal/agentfile"
	"bawn/internal/codes"
	"bawn/internal/names"
)

// An agentTable is the names of one agent. Its file has a line for each thing
// that happened:
//
//	ADDRESS NAME DAY      the address was given to the name, or, if it was already, the name was used on that day
//	ADDRESS - DAY         the name of the address was forgotten
//	kept N after ADDRESS  first line only, of a file that was written anew: the next N lines are all names there
//	                      were, and ADDRESS ("-" for none) is the one that was given last
//
// DAY is in days since 1970. An address is given in its turn, so a file that
// has lost a line somewhere shows it.
type agentTable struct {
	mu     sync.Mutex
	lines  *agentfile.Lines
	places map[names.Host]int
	given  map[int]*given
	last   int // the place that was given last; -1: none
	kept   int // lines of the file that are still to be read as kept
}

// given is what an address means.
type given struct {
	host names.Host
	used int64 // the last day
}

// readAgent reads a table from its file; no file is an empty table. What follows
// the last newline is a line that a crash tore: its address was never answered,
// and the next line is written over it. Any other fault is an error, since a
// name that is lost would give its address to another.
func readAgent(path string) (*agentTable, error) {
	lines, text, err := agentfile.ReadLines(path)
	if err != nil {
		return nil, fmt.Errorf("reading synthetic names: %w", err)
	}
	a := &agentTable{lines: lines, places: map[names.Host]int{}, given: map[int]*given{}, last: -1}
	for i, line := range text {
		if err := a.parse(i, line); err != nil {
			return nil, fmt.Errorf("reading synthetic names %s: line %d: %w", path, i+1, err)
		}
	}
	if a.kept > 0 {
		return nil, fmt.Errorf("reading synthetic names %s: %d lines are missing", path, a.kept)
	}
	return a, nil
}

// parse reads a line and does what it says.
func (a *agentTable) parse(i int, line string) error {
	f := strings.Split(line, " ")
	if i == 0 && len(f) == 4 && f[0] == "kept" && f[2] == "after" {
		return a.parseKept(f[1], f[3])
	}
	if len(f) != 3 {
		return fmt.Errorf("%q: not an address, a name and a day", line)
	}
	place, err := parsePlace(f[0])
	if err != nil {
		return err
	}
	day, err := strconv.ParseUint(f[2], 10, 32)
	if err != nil || f[2] != strconv.FormatUint(day, 10) {
		return fmt.Errorf("%q is no day", f[2])
	}
	if f[1] == "-" {
		return a.parseForgotten(place)
	}
	h, err := names.Parse(f[1])
	if err == nil && h.String() != f[1] {
		err = errors.New("name is not canonical")
	}
	if err != nil {
		return err
	}
	return a.parseGiven(place, h, int64(day))
}

func parsePlace(text string) (int, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return 0, err
	}
	i, ok := indexOf(addr)
	if !ok || addr.String() != text {
		return 0, fmt.Errorf("address %q stands for no name", text)
	}
	return i, nil
}

func (a *agentTable) parseKept(count, last string) (err error) {
	if a.kept, err = strconv.Atoi(count); err != nil || a.kept < 0 || a.kept > maxSynthetic || strconv.Itoa(a.kept) != count {
		return fmt.Errorf("%q is no number of names", count)
	}
	if last != "-" {
		a.last, err = parsePlace(last)
	}
	return err
}

func (a *agentTable) parseForgotten(place int) error {
	if a.kept > 0 || a.given[place] == nil {
		return fmt.Errorf("%s has no name to forget", addressOf(place))
	}
	a.forget(place)
	return nil
}

func (a *agentTable) parseGiven(place int, h names.Host, day int64) error {
	g, old := a.given[place], -1
	if i, ok := a.places[h]; ok {
		old = i
	}
	switch {
	case a.kept > 0:
		a.kept--
		if g != nil || old >= 0 {
			return fmt.Errorf("%s or %s stands twice", addressOf(place), h)
		}
		a.put(place, h, day)
	case g != nil && g.host == h:
		g.used = max(g.used, day)
	case g != nil || old >= 0:
		return fmt.Errorf("%s or %s stands twice", addressOf(place), h)
	case place != a.next(-1):
		return fmt.Errorf("address %s out of its turn", addressOf(place))
	default:
		a.put(place, h, day)
		a.last = place
	}
	return nil
}

func (a *agentTable) put(place int, h names.Host, day int64) {
	a.places[h] = place
	a.given[place] = &given{h, day}
}

func (a *agentTable) forget(place int) {
	delete(a.places, a.given[place].host)
	delete(a.given, place)
}

// next is the place whose turn it is: the first after the last one that means
// nothing, or that is going to. It is -1 where there is none.
func (a *agentTable) next(going int) int {
	for i := 1; i <= maxSynthetic; i++ {
		if place := (a.last + i) % maxSynthetic; a.given[place] == nil || place == going {
			return place
		}
	}
	return -1
}

func (a *agentTable) name(place int, today int64) (names.Host, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.given[place]
	if g == nil {
		return names.Host{}, false
	}
	a.use(place, g, today)
	return g.host, true
}

// use keeps the day on which a name was used last. Should that not get onto the
// disk, the file says that the name rests since an earlier day: of sixty that
// matters little.
func (a *agentTable) use(place int, g *given, today int64) {
	if today <= g.used {
		return
	}
	g.used = today
	if a.lines.Append(line(place, g.host.String(), today), false) == nil {
		a.shorten()
	}
}

func (a *agentTable) synthetic(h names.Host, most int, today int64) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if place, ok := a.places[h]; ok {
		a.use(place, a.given[place], today)
		return addressOf(place), nil
	}
	text, idle := "", -1
	if len(a.given) >= most {
		if idle = a.idlest(today); idle < 0 {
			return netip.Addr{}, &Error{codes.BudgetExceeded, fmt.Sprintf("the agent's table holds %d names, the most that it may, and none has rested for %d days", len(a.given), restDays)}
		}
		text = line(idle, "-", today)
	}
	place := a.next(idle) // there is one: a table that is full has an idle one by now
	if err := a.lines.Append(text+line(place, h.String(), today), true); err != nil {
		return netip.Addr{}, fmt.Errorf("adding a synthetic name: %w", err)
	}
	if idle >= 0 {
		a.forget(idle)
	}
	a.put(place, h, today)
	a.last = place
	a.shorten()
	return addressOf(place), nil
}

func line(place int, name string, day int64) string {
	return fmt.Sprintf("%s %s %d\n", addressOf(place), name, day)
}

// idlest is the place whose name was not used for longest, or -1 where none has
// rested enough.
func (a *agentTable) idlest(today int64) int {
	idle, used := -1, today-restDays+1
	for place, g := range a.given {
		if g.used < used || g.used == used && idle >= 0 && place < idle {
			idle, used = place, g.used
		}
	}
	return idle
}

// spareLines is how many lines of a file may have been overtaken before it is
// written anew, beside as many as there are names.
var spareLines = 4096 // a test sets it

// shorten writes the file anew when most of it has been overtaken. If that
// fails the long one still holds everything.
func (a *agentTable) shorten() {
	if a.lines.Count() < 2*len(a.given)+spareLines {
		return
	}
	last := "-"
	if a.last >= 0 {
		last = addressOf(a.last).String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kept %d after %s\n", len(a.given), last)
	for place, g := range a.given {
		b.WriteString(line(place, g.host.String(), g.used))
	}
	_ = a.lines.Replace(b.String())
}

// Drop is called when the agent is gone.
func (a *agentTable) Drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines.Drop()
}
