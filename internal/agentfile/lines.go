// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package agentfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errGone is what the lines of an agent that is not registered any more answer.
var errGone = errors.New("the agent is gone")

// Lines is a file of whole lines that grows at its end. What a crash tore at the
// end was never acted on, and is written over.
//
// It is for one goroutine at a time.
type Lines struct {
	path   string
	size   int64 // bytes of the file that hold whole lines
	count  int
	broken error // the file may hold more than size says; nothing is added then
}

// ReadLines opens the lines of a file and returns them without their ends; no
// file is no lines.
func ReadLines(path string) (*Lines, []string, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading lines: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	var list []string
	for line := range strings.Lines(string(whole)) {
		list = append(list, strings.TrimSuffix(line, "\n"))
	}
	return &Lines{path: path, size: int64(len(whole)), count: len(list)}, list, nil
}

// Count is how many lines there are.
func (l *Lines) Count() int { return l.count }

// Path is the file's.
func (l *Lines) Path() string { return l.path }

// Append adds lines, each with its end, or leaves the file as it was. They are
// on disk when it returns if sync is set; otherwise they outlive this process,
// but perhaps not the machine.
func (l *Lines) Append(text string, sync bool) error {
	if l.broken != nil {
		return l.broken
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("adding lines: %w", err)
	}
	defer f.Close()
	err = f.Truncate(l.size) // a torn line of an earlier run
	if err == nil {
		_, err = f.WriteAt([]byte(text), l.size)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err == nil && l.size == 0 {
		err = syncFolder(filepath.Dir(l.path)) // the file may be new
	}
	if err != nil {
		if undo := f.Truncate(l.size); undo != nil {
			l.broken = fmt.Errorf("adding lines: %s holds half a line: %w", l.path, undo)
		}
		return fmt.Errorf("adding lines: %w", err)
	}
	l.size += int64(len(text))
	l.count += strings.Count(text, "\n")
	return nil
}

// Replace puts text, which is whole lines, in the place of all there is: a crash
// leaves the one or the other.
func (l *Lines) Replace(text string) error {
	if l.broken != nil {
		return l.broken
	}
	next := l.path + ".new"
	err := writeSynced(next, text)
	if err == nil {
		err = os.Rename(next, l.path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(l.path))
	}
	if err != nil {
		return fmt.Errorf("replacing lines: %w", err)
	}
	l.size, l.count = int64(len(text)), strings.Count(text, "\n")
	return nil
}

// Drop ends the use of the file, so that it can be removed: nothing that is
// still at work with the lines makes it anew.
func (l *Lines) Drop() { l.broken = errGone }

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
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
