// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"bawn/internal/ids"
)

// Format is the version of the archive's form.
const Format = 1

// manifestName is the last member of an archive.
const manifestName = "manifest.json"

// Bounds of an archive that is read.
const (
	maxMembers  = 4 << 20
	maxManifest = 1 << 30 // bytes
	maxName     = 4 << 10 // bytes
)

// A Manifest says what is in an archive.
type Manifest struct {
	Format   int       `json:"format"`
	Version  string    `json:"version"` // of the program that made it
	Made     time.Time `json:"made"`
	Journals bool      `json:"journals"` // whether the record is in it
	Homes    bool      `json:"homes"`    // whether agents' files are
	Members  []Member  `json:"members"`  // in the archive's order
}

// A Member is one file, directory or symbolic link.
type Member struct {
	Name   string `json:"name"`
	Kind   Kind   `json:"kind"`
	Owner  string `json:"owner"` // names; numbers differ from host to host
	Group  string `json:"group"`
	Mode   uint32 `json:"mode"` // permission bits
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of a file, in hex
	Target string `json:"target,omitempty"` // of a link
}

// A Kind is what a member is.
type Kind string

// The kinds. Links are in agents' files only.
const (
	File      Kind = "file"
	Directory Kind = "dir"
	Link      Kind = "link"
)

// The parts of an archive. A host's own path is in parts of package config.
const (
	partAdmin   = "admin/"
	partProxy   = "proxy/"
	partEtc     = "etc/"
	partJournal = "journal/"
	partAgents  = "agents/"
)

var agentPath = regexp.MustCompile(`^agents/([a-z0-9-]+)/(home|work)(/|$)`)

// agentOf gives the agent whose file a member is.
func agentOf(name string) (agent string, ok bool) {
	m := agentPath.FindStringSubmatch(name)
	if m == nil || ids.CheckName(m[1]) != nil {
		return "", false
	}
	return m[1], true
}

// checkName wants a name that is below one of the parts and nowhere else.
func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return errors.New("is no name")
	}
	if strings.ContainsRune(name, 0) || path.IsAbs(name) || path.Clean(name) != name {
		return errors.New("is not a plain relative path")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || part == "." {
			return errors.New("leads out of its place")
		}
	}
	switch {
	case name == partEtc+"config.yaml":
		return nil
	case strings.HasPrefix(name, partAdmin), strings.HasPrefix(name, partProxy):
		return nil
	case strings.HasPrefix(name, partJournal+"admin/"), strings.HasPrefix(name, partJournal+"proxy/"):
		return nil
	}
	if _, ok := agentOf(name); ok {
		return nil
	}
	return errors.New("belongs to no part of an installation")
}

// owners are the accounts that may own what is not an agent's.
var owners = map[string]bool{"root": true, "bawn-admin": true, "bawn-proxy": true}

// check wants a member that can be put back without harm.
func (m Member) check() error {
	if err := checkName(m.Name); err != nil {
		return fmt.Errorf("member %q %w", m.Name, err)
	}
	agent, theirs := agentOf(m.Name)
	switch {
	case m.Kind == Link && !theirs:
		return fmt.Errorf("member %q is a link, which only agents' files may be", m.Name)
	case m.Kind != File && m.Kind != Directory && m.Kind != Link:
		return fmt.Errorf("member %q is a %q, which is nothing that is put back", m.Name, m.Kind)
	case m.Mode&^0o777 != 0:
		return fmt.Errorf("member %q has mode %o, more than permissions", m.Name, m.Mode)
	case m.Size < 0 || m.Kind != File && m.Size != 0:
		return fmt.Errorf("member %q has size %d", m.Name, m.Size)
	}
	for _, who := range []string{m.Owner, m.Group} {
		if !owners[who] && !(theirs && who == "bawn-"+agent) {
			return fmt.Errorf("member %q belongs to %q, whom it may not", m.Name, who)
		}
	}
	return nil
}

// A census checks members one after the other: none twice, and each in a
// directory, not behind a link or within a file.
type census struct {
	kinds map[string]Kind
}

func (c *census) add(m Member) error {
	if err := m.check(); err != nil {
		return err
	}
	if c.kinds == nil {
		c.kinds = map[string]Kind{}
	}
	if len(c.kinds) >= maxMembers {
		return fmt.Errorf("more than %d members", maxMembers)
	}
	if _, twice := c.kinds[m.Name]; twice {
		return fmt.Errorf("member %q is there twice", m.Name)
	}
	for dir := path.Dir(m.Name); dir != "."; dir = path.Dir(dir) {
		if k, ok := c.kinds[dir]; ok && k != Directory {
			return fmt.Errorf("member %q lies in %q, which is a %s", m.Name, dir, k)
		}
	}
	c.kinds[m.Name] = m.Kind
	return nil
}

// settle is called at the end: a directory may come after what lies in it.
func (c *census) settle() error {
	for name := range c.kinds {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if k, ok := c.kinds[dir]; ok && k != Directory {
				return fmt.Errorf("member %q lies in %q, which is a %s", name, dir, k)
			}
		}
	}
	return nil
}
