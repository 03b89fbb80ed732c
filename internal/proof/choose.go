// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"bawn/internal/audit"
	"bawn/internal/verdict"
)

// A Wish says which records are taken out. Empty fields choose all.
type Wish struct {
	Agent, User  string
	Since, Until time.Time // of the record; Until is not included
}

func (w Wish) String() string {
	s := ""
	add := func(key, value string) {
		if value != "" {
			s += fmt.Sprintf(" %s=%q", key, value)
		}
	}
	add("agent", w.Agent)
	add("user", w.User)
	if !w.Since.IsZero() {
		add("since", w.Since.UTC().Format(time.RFC3339Nano))
	}
	if !w.Until.IsZero() {
		add("until", w.Until.UTC().Format(time.RFC3339Nano))
	}
	if s == "" {
		return "all records"
	}
	return "records with" + s
}

// A picker judges records one after another. The outcome of a request that was
// chosen is chosen, too.
type picker struct {
	wish Wish
	open map[string]bool // requests that were chosen and have no outcome yet
}

func (p *picker) wants(rec audit.Record) bool {
	switch {
	case rec.Decision != nil:
		d := rec.Decision
		ok := p.mine(d.Agent, d.User) && p.within(d.Time)
		if ok && d.Verdict != verdict.Deny && d.Message == 0 {
			p.open[d.Request] = true
		}
		return ok
	case rec.Outcome != nil:
		o := rec.Outcome
		followed := p.open[o.Request]
		delete(p.open, o.Request)
		return followed || p.mine(o.Agent, o.User) && p.within(o.Time)
	case rec.Dial != nil:
		return p.open[rec.Dial.Request] || p.mine(rec.Dial.Agent, rec.Dial.User) && p.within(rec.Dial.Time)
	case rec.Summary != nil:
		return p.mine(rec.Summary.Agent, rec.Summary.User) && p.within(rec.Summary.Time)
	case rec.Act != nil:
		return p.mine(rec.Act.Agent, rec.Act.User) && p.within(rec.Act.Time)
	}
	return p.mine("", "") && p.within(rec.Time())
}

func (p *picker) mine(agent, user string) bool {
	return (p.wish.Agent == "" || p.wish.Agent == agent) && (p.wish.User == "" || p.wish.User == user)
}

func (p *picker) within(t time.Time) bool {
	return (p.wish.Since.IsZero() || !t.Before(p.wish.Since)) && (p.wish.Until.IsZero() || t.Before(p.wish.Until))
}

// Choose writes the records that are wished for, each with the proof that it is
// in the record. It reads every journal twice and keeps little of it. Records
// that no checkpoint covers are left out and counted.
func Choose(out io.Writer, l Layout, key Key, wish Wish) (records uint64, err error) {
	enc := inertEncoder{out}
	c := chooser{enc: enc, key: key, pick: picker{wish, map[string]bool{}}}
	head := choiceHead{Version: choiceVersion, Key: key.String(), Chosen: wish.String(), NotProven: notProven}
	if err := enc.Encode(head); err != nil {
		return 0, err
	}
	books, err := listBooks(l.Checkpoints())
	if err != nil {
		return 0, err
	}
	dirs, err := l.Journals()
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		files, err := audit.SeriesFiles(dir)
		if err != nil {
			return 0, err
		}
		for _, series := range slices.Sorted(maps.Keys(files)) {
			if err := c.series(l.Checkpoints(), books[series], dir, files[series]); err != nil {
				return c.records, fmt.Errorf("choosing from journal %s: %w", series, err)
			}
		}
	}
	return c.records, enc.Encode(choiceEnd{End: true, Records: c.records, Uncovered: c.uncovered})
}

type chooser struct {
	enc                inertEncoder
	key                Key
	pick               picker
	records, uncovered uint64
}

// A grove is one tree of a series while records are taken out.
type grove struct {
	last   Note // its newest checkpoint
	bases  []Note
	forest *forest
	block  []tlog.Hash
	chosen []chosenRecord // of the block
	next   int64          // index of the next record
}

type chosenRecord struct {
	index int64
	line  []byte
}

var errRecord = errors.New(`the journal is not what its checkpoints prove ("bawn audit verify" says where): nothing was chosen from it`)

func (c *chooser) series(bookDir string, books []bookFile, dir string, files []audit.SeriesFile) error {
	trees, err := c.grovesOf(bookDir, books)
	if err != nil {
		return err
	}
	if err := grow(trees, dir, files); err != nil {
		return err
	}
	for _, g := range trees {
		if g.forest == nil {
			continue // none of its records is left
		}
		if root, err := tlog.TreeHash(g.last.Size, g.forest); err != nil || root != g.last.Root {
			return errRecord
		}
		if err := c.enc.Encode(choiceNote{string(g.last.Text)}); err != nil {
			return err
		}
	}
	return c.take(trees, dir, files)
}

// grovesOf reads the book: the newest checkpoint of each tree, and those that a
// file ends with.
func (c *chooser) grovesOf(dir string, books []bookFile) (trees []*grove, err error) {
	wrong, failed := false, error(nil)
	for n := range notesOf(dir, books, c.key, func(f Fault) { wrong = true }, &failed) {
		if len(trees) == 0 || trees[len(trees)-1].last.Tree != n.Tree {
			trees = append(trees, new(grove))
		}
		g := trees[len(trees)-1]
		g.last = n
		if len(n.Frontier) > 0 {
			n.Text = nil
			g.bases = append(g.bases, n)
		}
	}
	if wrong {
		return nil, errRecord
	}
	return trees, failed
}

// treeOf returns the tree that a record is in.
func treeOf(trees []*grove, seq uint64) *grove {
	for _, g := range slices.Backward(trees) {
		if seq >= g.last.First && seq <= g.last.Last() {
			return g
		}
	}
	return nil
}

// grow reads the journal once, for the hashes of all records.
func grow(trees []*grove, dir string, files []audit.SeriesFile) error {
	return eachLine(dir, files, func(line audit.RawLine) error {
		g := treeOf(trees, line.Seq)
		if g == nil {
			return nil
		}
		if g.forest == nil {
			base, err := g.baseOf(line)
			if err != nil {
				return err
			}
			g.forest, g.next = newForest(base), base.Size()
		}
		if line.Seq != g.last.First+uint64(g.forest.size) {
			return errRecord
		}
		g.forest.add(tlog.RecordHash(line.Text))
		return nil
	})
}

// baseOf finds the frontier in front of the oldest record that is left.
func (g *grove) baseOf(line audit.RawLine) (Frontier, error) {
	if line.Seq == g.last.First {
		return Frontier{}, nil
	}
	for _, n := range g.bases {
		if n.Last() == line.Seq-1 && n.Chain == line.Prev {
			return NewFrontier(n.Size, n.Frontier)
		}
	}
	return Frontier{}, errRecord
}

// take reads the journal again, block by block, and writes what is chosen.
func (c *chooser) take(trees []*grove, dir string, files []audit.SeriesFile) error {
	err := eachLine(dir, files, func(line audit.RawLine) error {
		rec, err := audit.ParseRecord(line.Text)
		if err != nil {
			return errRecord
		}
		wanted := c.pick.wants(rec)
		g := treeOf(trees, line.Seq)
		if g == nil {
			if wanted {
				c.uncovered++
			}
			return nil
		}
		if g.next >= g.last.Size {
			return errRecord
		}
		g.block = append(g.block, tlog.RecordHash(line.Text))
		if wanted {
			g.chosen = append(g.chosen, chosenRecord{g.next, bytes.Clone(line.Text)})
		}
		g.next++
		if g.next&(1<<blockLevel-1) != 0 && g.next != g.last.Size {
			return nil
		}
		return c.write(g)
	})
	if err != nil {
		return err
	}
	for _, g := range trees {
		if len(g.chosen) > 0 {
			return errRecord // it was cut since it was read first
		}
	}
	return nil
}

// write writes the records that are chosen of one block.
func (c *chooser) write(g *grove) error {
	g.forest.hold(g.next-int64(len(g.block)), g.block)
	for _, x := range g.chosen {
		proof, err := tlog.ProveRecord(g.last.Size, x.index, g.forest)
		if err != nil {
			return fmt.Errorf("proving record %d: %w", g.last.First+uint64(x.index), err)
		}
		l := choiceRecord{Series: g.last.Series, Tree: g.last.Tree, Index: x.index, Proof: proof}
		l.textOf(x.line)
		if err := c.enc.Encode(l); err != nil {
			return err
		}
		c.records++
	}
	g.block, g.chosen = g.block[:0], nil
	return nil
}

// eachLine hands out the records of a series, as the files were when they were
// opened. A torn end is passed over.
func eachLine(dir string, files []audit.SeriesFile, take func(audit.RawLine) error) error {
	for _, f := range files {
		if err := eachLineOf(filepath.Join(dir, f.Name), take); err != nil {
			return err
		}
	}
	return nil
}

func eachLineOf(path string, take func(audit.RawLine) error) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := audit.ReadLines(f, 0, false); ; {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if !line.Record {
			continue
		}
		if err := take(line); err != nil {
			return err
		}
	}
}
