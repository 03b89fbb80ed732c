// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// An Action is what is done about one thing.
type Action string

// The actions.
const (
	Makes    Action = "makes"
	Replaces Action = "replaces"
	Removes  Action = "removes"
	Keeps    Action = "keeps"
	Refuses  Action = "refuses"
	Unseen   Action = "unseen" // only root can tell what would be done
)

// A Step is one line of a plan.
type Step struct {
	Action Action
	What   string // a path, or another thing by its name
	Why    string

	text []byte                 // of a file that is made or replaced
	do   func() (string, error) // of what is no file; says what came of it
}

// A Plan is what would be done, in order.
type Plan []Step

// Refused are the steps that forbid the plan.
func (p Plan) Refused() (list []Step) {
	for _, s := range p {
		if s.Action == Refuses {
			list = append(list, s)
		}
	}
	return list
}

// decide says what becomes of a file that is to be f. exists says that there is
// something, and regular that it is a file, with the text have.
func decide(f File, exists, regular bool, have []byte, force bool) (Action, string) {
	switch {
	case !exists:
		return Makes, ""
	case !regular:
		return Refuses, "there is something that is not a file: move it away"
	case bytes.Equal(have, f.Text):
		return Keeps, "it is as it should be"
	case f.Config && stateOf(have) != pristine:
		return Keeps, "it is the operator's"
	}
	switch stateOf(have) {
	case pristine:
		return Replaces, "it is of another version"
	case edited:
		if force {
			return Replaces, "it was changed by hand; what was there is in " + f.Path + saved
		}
		return Refuses, "it was changed by hand: use a drop-in, or --force to replace it"
	}
	if force {
		return Replaces, "it was not Bawn's; what was there is in " + f.Path + saved
	}
	return Refuses, "it is not Bawn's: move it away, or use --force to replace it"
}

// saved ends the name under which a replaced file of somebody else's stays.
const saved = ".before-bawn"

// plan says what becomes of the files of the layout.
func (l Layout) plan(force bool) (Plan, error) {
	files, err := l.Files()
	if err != nil {
		return nil, err
	}
	var plan Plan
	for _, f := range files {
		exists, regular, have, err := look(f.Path)
		if err != nil {
			return nil, err
		}
		action, why := decide(f, exists, regular, have, force)
		plan = append(plan, Step{Action: action, What: f.Path, Why: why, text: f.Text})
	}
	return plan, nil
}

// maxFile bounds what is read of a file that may be somebody else's.
const maxFile = 1 << 20

// look reads a file without following a link in its place.
func look(path string) (exists, regular bool, text []byte, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil, nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return true, false, nil, nil
	}
	if err != nil {
		return false, false, nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return true, false, nil, nil
	}
	if info.Size() > maxFile {
		return true, true, nil, nil // not ours
	}
	text, err = os.ReadFile(path)
	if err != nil {
		return false, false, nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	return true, true, text, nil
}

// Apply does the steps one after the other and calls tell after each. It does
// nothing if one is refused.
func (p Plan) Apply(tell func(Step)) error {
	if len(p.Refused()) > 0 {
		return errors.New("some steps are refused; nothing was done")
	}
	for _, s := range p {
		if err := s.apply(&s); err != nil {
			return err
		}
		tell(s)
	}
	return nil
}

func (s Step) apply(told *Step) error {
	if s.do != nil {
		if s.Action == Keeps {
			return nil
		}
		said, err := s.do()
		if said != "" {
			told.Why = said
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.What, err)
		}
		return nil
	}
	switch s.Action {
	case Makes, Replaces:
		return put(s.What, s.text)
	case Removes:
		if err := os.Remove(s.What); err != nil {
			return fmt.Errorf("removing: %w", err)
		}
	}
	return nil
}

// put writes a file so that it is there whole or not at all, and saves what
// was not ours.
func put(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if exists, regular, have, err := look(path); err != nil {
		return err
	} else if exists && regular && stateOf(have) != pristine {
		if err := os.Rename(path, path+saved); err != nil {
			return fmt.Errorf("saving %s: %w", path, err)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".bawn-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // fails once it has its name
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Stage writes the files of a package below dir, which holds nothing else yet.
func (l Layout) Stage(dir string) error {
	files, err := l.Files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := put(filepath.Join(dir, f.Path), f.Text); err != nil {
			return err
		}
	}
	return nil
}
