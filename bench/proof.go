// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// A proof holds what upstream and peer had on record before a row.
type proof struct {
	b      *bench
	r      *row
	p      *peer
	origin int64
	lines  int64
}

func (b *bench) proof(r *row, p *peer) (*proof, error) {
	x := &proof{b: b, r: r, p: p}
	var err error
	x.origin, x.lines, err = x.now()
	return x, err
}

func (x *proof) now() (origin, lines int64, err error) {
	text, err := x.b.origin.ask(x.r.name)
	if err != nil {
		return 0, 0, err
	}
	if origin, err = strconv.ParseInt(text, 10, 64); err != nil || x.p.lines == nil {
		return origin, 0, err
	}
	words := []string{x.r.word()}
	if x.r.kind == "idlemix" {
		words = append(words, spliceHost)
	}
	if x.r.denied {
		words = append(words, summarised)
	}
	for _, w := range words {
		n, err := x.p.lines(w)
		if err != nil {
			return origin, lines, err
		}
		lines += n
	}
	return origin, lines, nil
}

// check fails unless the upstream has seen all units, none of them if they are
// to be refused, and the peer has them on record. Logs may take a moment.
func (x *proof) check(units int64) error {
	want := units
	if x.r.perTie {
		want = int64(x.r.conns)
	}
	var err error
	for range 50 {
		origin, lines, e := x.now()
		origin, lines = origin-x.origin, lines-x.lines
		switch {
		case e != nil:
			return e
		case x.r.denied && origin != 0:
			return fmt.Errorf("%d requests reached the upstream that were to be refused", origin)
		case !x.r.denied && origin < units:
			err = fmt.Errorf("%d of %d units reached the upstream", origin, units)
		case x.p.lines != nil && lines < want:
			err = fmt.Errorf("%d of %d are on record", lines, want)
		default:
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// A tally counts the lines of files that grow, and reads each line once: for
// each word that a line can be counted under.
type tally struct {
	files func() ([]string, error)
	// count returns the word that a line counts under and for how much; "" if
	// it does not.
	count func(line []byte) (word string, n int64)
	read  map[string]int64 // octets of each file that were read
	found map[string]int64
}

// of returns how much there is under a word.
func (t *tally) of(word string) (int64, error) {
	names, err := t.files()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if err := t.follow(name); err != nil {
			return 0, err
		}
	}
	return t.found[word], nil
}

// follow reads the whole lines that came to a file since.
func (t *tally) follow(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(t.read[name], io.SeekStart); err != nil {
		return err
	}
	for in := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		t.read[name] += int64(len(line))
		if word, n := t.count(line); word != "" {
			t.found[word] += n
		}
	}
}

func newTally(files func() ([]string, error), count func([]byte) (string, int64)) *tally {
	return &tally{files, count, map[string]int64{}, map[string]int64{}}
}

// countLines counts the lines of an access log.
func countLines(name string) func(word string) (int64, error) {
	return newTally(func() ([]string, error) { return []string{name}, nil }, func(line []byte) (string, int64) {
		return wordOf(line), 1
	}).of
}

// wordOf finds the row's word in a line: the element of a path behind /v1/ or
// /private/, or the host that is not looked into.
func wordOf(line []byte) string {
	for _, before := range []string{allowedPath, deniedPath} {
		if _, after, ok := bytes.Cut(line, []byte(before)); ok {
			word, _, _ := bytes.Cut(after, []byte("/"))
			return string(word)
		}
	}
	if bytes.Contains(line, []byte(spliceHost)) {
		return spliceHost
	}
	return ""
}

// deniedPath begins what policies do not let through.
const deniedPath = "/private/"

// countDecisions counts the decisions in the files of a journal; summaries
// stand for as many as they say.
func countDecisions(dir string) func(word string) (int64, error) {
	files := func() ([]string, error) {
		list, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		slices.Sort(list)
		return list, err
	}
	return newTally(files, countRecord).of
}

// summarised is the word of denials that have no record of their own.
const summarised = "summary"

func countRecord(line []byte) (string, int64) {
	if bytes.Contains(line, []byte(`"kind":"decision"`)) {
		return wordOf(line), 1
	}
	var s struct {
		Kind    string `json:"kind"`
		Denials int64  `json:"denials"`
	}
	if bytes.Contains(line, []byte(`"kind":"summary"`)) && json.Unmarshal(line, &s) == nil {
		return summarised, s.Denials
	}
	return "", 0
}
