// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"bawn/internal/codes"
	"bawn/internal/names"
)

// An agentTable is the names of one agent. Its file has a line "ADDRESS NAME"
// for each, in the order of their places.
type agentTable struct {
	path string

	mu     sync.Mutex
	places map[names.Host]int
	hosts  []names.Host
	size   int64 // bytes of the file that hold whole lines
	broken error // the file may hold more than size says; nothing is added then
}

// readAgent reads a table from its file; no file is an empty table. What follows
// the last newline is a line that a crash tore: its address was never answered,
// and the next line is written over it. Any other fault is an error, since a
// name that is lost would give its address to another.
func readAgent(path string) (*agentTable, error) {
	a := &agentTable{path: path, places: map[names.Host]int{}}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading synthetic names: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	a.size = int64(len(whole))
	for line := range strings.Lines(string(whole)) {
		h, err := parseLine(strings.TrimSuffix(line, "\n"), len(a.hosts))
		if err != nil {
			return nil, fmt.Errorf("reading synthetic names %s: line %d: %w", path, len(a.hosts)+1, err)
		}
		if _, twice := a.places[h]; twice {
			return nil, fmt.Errorf("reading synthetic names %s: line %d: %s stands twice", path, len(a.hosts)+1, h)
		}
		a.add(h)
	}
	return a, nil
}

// parseLine reads the line of the i-th place.
func parseLine(line string, i int) (names.Host, error) {
	if i >= maxSynthetic {
		return names.Host{}, errors.New("more names than addresses")
	}
	text, name, _ := strings.Cut(line, " ")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr != addressOf(i) {
		return names.Host{}, fmt.Errorf("address %q, want %s", text, addressOf(i))
	}
	h, err := names.Parse(name)
	if err == nil && h.String() != name {
		err = errors.New("name is not canonical")
	}
	return h, err
}

func (a *agentTable) add(h names.Host) {
	a.places[h] = len(a.hosts)
	a.hosts = append(a.hosts, h)
}

func (a *agentTable) name(i int) (names.Host, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i >= len(a.hosts) {
		return names.Host{}, false
	}
	return a.hosts[i], true
}

func (a *agentTable) synthetic(h names.Host, most int) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i, ok := a.places[h]; ok {
		return addressOf(i), nil
	}
	i := len(a.hosts)
	if i >= most {
		return netip.Addr{}, &Error{codes.BudgetExceeded, fmt.Sprintf("the agent has asked for %d names, the most that it may", i)}
	}
	if err := a.append(fmt.Sprintf("%s %s\n", addressOf(i), h)); err != nil {
		return netip.Addr{}, err
	}
	a.add(h)
	return addressOf(i), nil
}

// append puts a line on disk, or leaves the file as it was.
func (a *agentTable) append(line string) error {
	if a.broken != nil {
		return a.broken
	}
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("adding a synthetic name: %w", err)
	}
	defer f.Close()
	err = f.Truncate(a.size) // a torn line of an earlier run
	if err == nil {
		_, err = f.WriteAt([]byte(line), a.size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil && a.size == 0 {
		err = syncFolder(filepath.Dir(a.path)) // the file may be new
	}
	if err != nil {
		if undo := f.Truncate(a.size); undo != nil {
			a.broken = fmt.Errorf("adding a synthetic name: %s holds half a line: %w", a.path, undo)
		}
		return fmt.Errorf("adding a synthetic name: %w", err)
	}
	a.size += int64(len(line))
	return nil
}

// syncFolder puts the names of new files on disk.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
