// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"bawn/internal/audit"
)

// A Place is where in a journal something is.
type Place struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"` // bytes
}

func (p Place) String() string { return fmt.Sprintf("%s at byte %d", p.File, p.Offset) }

// A Checkpoint says what a series was when it was signed: the root of the tree
// over its records, and the head of their chain.
//
// A series has one tree, and the next one only behind a break, where the journal
// was not what had been written.
type Checkpoint struct {
	Key    string // name of the key
	Series string
	Tree   uint64 // from 1
	Size   int64  // records
	Root   tlog.Hash

	First uint64   // number of the first record of the tree
	Prev  [32]byte // that it names as the one before it
	Begin Place    // of it

	Chain    [32]byte  // SHA-256 of the last record
	End      Place     // behind it
	Time     time.Time // whole seconds, UTC
	Previous [32]byte  // SHA-256 of the note before; zero for a series' first
	Break    string    // of a tree behind a break: what was found, in its first checkpoint
	// Frontier is there where the last record is the last of its file: from here
	// on the tree can be followed without that file.
	Frontier []tlog.Hash
}

// Last is the number of the last record.
func (c Checkpoint) Last() uint64 { return c.First + uint64(c.Size) - 1 }

// Origin names the tree.
func (c Checkpoint) Origin() string {
	return c.Key + "/" + c.Series + "/" + strconv.FormatUint(c.Tree, 10)
}

// Text is the text of the note: a checkpoint of C2SP's tlog-checkpoint with
// lines of its own behind the root.
func (c *Checkpoint) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d\n%s\n", c.Origin(), c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
	fmt.Fprintf(&b, "first %d %x %s %d\n", c.First, c.Prev, c.Begin.File, c.Begin.Offset)
	fmt.Fprintf(&b, "chain %x %s %d\n", c.Chain, c.End.File, c.End.Offset)
	fmt.Fprintf(&b, "time %s\n", c.Time.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "previous %x\n", c.Previous)
	if len(c.Frontier) > 0 {
		b.WriteString("frontier")
		for _, h := range c.Frontier {
			b.WriteString(" " + base64.StdEncoding.EncodeToString(h[:]))
		}
		b.WriteByte('\n')
	}
	if c.Break != "" {
		fmt.Fprintf(&b, "break %s\n", c.Break)
	}
	return b.String()
}

// The bounds of a checkpoint's text, in bytes.
const (
	maxText  = 16 << 10
	maxBreak = 1 << 10
)

var (
	originForm = regexp.MustCompile(`^([!-*,-.0-~]{1,128})/([a-z][a-z0-9]*)/([1-9]\d{0,18})$`)
	breakForm  = regexp.MustCompile(`^[ -~]+$`)
	errForm    = errors.New("not in the form of a checkpoint")
)

// ParseCheckpoint reads the text of a note. It takes exactly what [Checkpoint.Text]
// writes: what is signed has one meaning and one spelling.
func ParseCheckpoint(text string) (Checkpoint, error) {
	c, err := parseCheckpoint(text)
	if err == nil {
		err = c.check()
	}
	if err == nil && c.Text() != text {
		err = errForm
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("reading checkpoint: %w", err)
	}
	return c, nil
}

func parseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(text) > maxText || len(lines) < 8 || lines[len(lines)-1] != "" {
		return c, errForm
	}
	m := originForm.FindStringSubmatch(lines[0])
	if m == nil {
		return c, fmt.Errorf("origin %q is not KEY/SERIES/TREE", lines[0])
	}
	c.Key, c.Series = m[1], m[2]
	p := scanner{}
	c.Tree, c.Size = p.number(m[3]), int64(p.number(lines[1]))
	c.Root = p.hash(lines[2])
	f := p.fields(lines[3], "first", 4)
	c.First, c.Prev, c.Begin = p.number(f[0]), p.sum(f[1]), Place{f[2], int64(p.number(f[3]))}
	f = p.fields(lines[4], "chain", 3)
	c.Chain, c.End = p.sum(f[0]), Place{f[1], int64(p.number(f[2]))}
	c.Time = p.time(p.fields(lines[5], "time", 1)[0])
	c.Previous = p.sum(p.fields(lines[6], "previous", 1)[0])
	rest := lines[7 : len(lines)-1]
	if len(rest) > 0 && strings.HasPrefix(rest[0], "frontier ") {
		for _, h := range strings.Split(rest[0], " ")[1:] {
			c.Frontier = append(c.Frontier, p.hash(h))
		}
		rest = rest[1:]
	}
	if len(rest) > 0 {
		c.Break, rest = strings.TrimPrefix(rest[0], "break "), rest[1:]
	}
	if p.bad || len(rest) > 0 {
		return c, errForm
	}
	return c, nil
}

// check judges what each part says.
func (c *Checkpoint) check() error {
	for _, p := range []Place{c.Begin, c.End} {
		if f, ok := audit.ParseFileName(p.File); !ok || f.Plane != c.Series || p.Offset < 0 {
			return fmt.Errorf("%q is no file of series %s", p.File, c.Series)
		}
	}
	switch {
	case c.Size < 1 || c.First < 1 || c.First+uint64(c.Size) < c.First:
		return fmt.Errorf("tree of %d records from %d on", c.Size, c.First)
	case len(c.Break) > maxBreak || c.Break != "" && !breakForm.MatchString(c.Break):
		return errForm
	}
	if len(c.Frontier) > 0 {
		f, err := NewFrontier(c.Size, c.Frontier)
		if err != nil {
			return err
		}
		if f.Root() != c.Root {
			return errors.New("its frontier is not that of its root")
		}
	}
	return nil
}

// A scanner reads the parts of a line and remembers whether one was bad.
type scanner struct{ bad bool }

func (s *scanner) fields(line, key string, n int) []string {
	f := strings.Split(line, " ")
	if len(f) != n+1 || f[0] != key {
		s.bad = true
		return make([]string, n)
	}
	return f[1:]
}

func (s *scanner) number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 63)
	s.bad = s.bad || err != nil
	return n
}

func (s *scanner) sum(text string) (out [32]byte) {
	b, err := hex.DecodeString(text)
	if err != nil || copy(out[:], b) != len(out) || len(b) != len(out) {
		s.bad = true
	}
	return out
}

func (s *scanner) hash(text string) tlog.Hash {
	h, err := tlog.ParseHash(text)
	s.bad = s.bad || err != nil
	return h
}

func (s *scanner) time(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	s.bad = s.bad || err != nil
	return t.UTC()
}
