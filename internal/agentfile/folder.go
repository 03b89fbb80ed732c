// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentfile keeps a file for each agent, for as long as there is that
// agent.
//
// Names of agents are used again: an operator removes "dev" and makes another.
// So a file belongs to a name and the registration's own id, which never comes
// again, and what the first one left is nothing to the second. [Folder.Keep] is
// told who is registered, and removes the files of everybody else.
//
// A Folder may be used by many goroutines. One process holds a directory at a
// time.
package agentfile

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"bawn/internal/ids"
)

// A Keeper is what a file holds, once read. Drop is called when its agent is
// gone, before the file is removed; nothing may be written after it.
type Keeper interface {
	comparable
	Drop()
}

// A Folder holds the files of all agents, and what was read from them.
type Folder[K Keeper] struct {
	dir  string
	ext  string
	read func(path string) (K, error)
	lock *os.File

	mu     sync.Mutex
	agents map[string]string // by name, the id; nil: nobody has said yet
	open   map[string]K      // by name
}

// lockName cannot be the file of an agent: those have dots.
const lockName = "lock"

// Open takes the directory dir, which must exist. Files end in "."+ext and are
// read by read when their agent is first seen; a file that could not be read is
// tried again the next time.
func Open[K Keeper](dir, ext string, read func(path string) (K, error)) (*Folder[K], error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the agents' files: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("opening the agents' files in %s: another process holds them: %w", dir, err)
	}
	return &Folder[K]{dir: dir, ext: ext, read: read, lock: lock, open: map[string]K{}}, nil
}

// Close gives the directory back. Nothing is left to be written.
func (f *Folder[K]) Close() error { return f.lock.Close() }

// idForm is that of ids.NewAgent; the id is a part of a path.
var idForm = regexp.MustCompile(`^a-[0-9a-f]{16}$`)

// Keep says which agents there are: id by name. Files of others are removed; one
// that cannot be is an error, and of no harm, since its id never comes again.
func (f *Folder[K]) Keep(agents map[string]string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	known := map[string]bool{lockName: true}
	now := make(map[string]string, len(agents))
	for name, id := range agents {
		if err := ids.CheckName(name); err != nil || !idForm.MatchString(id) {
			errs = append(errs, fmt.Errorf("keeping the agents' files: agent %q with id %q", name, id))
			continue // it has no file, and so gets nothing that needs one
		}
		now[name] = id
		known[f.file(name, id)] = true
	}
	for name, k := range f.open {
		if f.agents[name] != now[name] {
			k.Drop()
			delete(f.open, name)
		}
	}
	f.agents = now
	return errors.Join(append(errs, f.clear(known))...)
}

func (f *Folder[K]) file(name, id string) string { return name + "." + id + "." + f.ext }

// clear removes the files that are not among known.
func (f *Folder[K]) clear(known map[string]bool) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("looking for files of agents that are gone: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if known[strings.TrimSuffix(e.Name(), ".new")] || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("removing the file of an agent that is gone: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Of returns what the agent's file holds. It is an error when no such agent is
// registered.
func (f *Folder[K]) Of(agent string) (K, error) {
	var none K
	f.mu.Lock()
	defer f.mu.Unlock()
	if k, ok := f.open[agent]; ok {
		return k, nil
	}
	id, ok := f.agents[agent]
	if !ok {
		return none, fmt.Errorf("finding the file of agent %q: no such agent is registered", agent)
	}
	k, err := f.read(filepath.Join(f.dir, f.file(agent, id)))
	if err != nil {
		return none, err
	}
	f.open[agent] = k
	return k, nil
}

// Known goes over what was read of the agents' files so far.
func (f *Folder[K]) Known() iter.Seq[K] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Values(maps.Clone(f.open))
}
