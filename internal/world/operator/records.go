// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
)

// A Record is one line of a journal, with the fields that tests look at. It is
// read from the files, not from Bawn: a record counts once it is written.
type Record struct {
	Kind       string `json:"kind"`
	Seq        uint64 `json:"seq"`
	Request    string `json:"request"`
	Slot       int    `json:"slot"`
	Gen        string `json:"gen"`
	Session    string `json:"session"`
	Agent      string `json:"agent"`
	User       string `json:"user"`
	Revision   uint64 `json:"revision"`
	Plane      string `json:"plane"`
	Arrival    string `json:"arrival"`
	Proto      string `json:"proto"`
	Method     string `json:"method"`
	Asked      string `json:"asked"`
	Host       string `json:"host"`
	Port       uint16 `json:"port"`
	Path       string `json:"path"`
	Verdict    string `json:"verdict"`
	Code       string `json:"code"`
	Rule       string `json:"rule"`
	Status     int    `json:"status"`
	BytesUp    int64  `json:"bytes_up"`
	Message    int64  `json:"message"`
	MessagesUp int64  `json:"messages_up"`
	Close      int    `json:"close"`
	Upstream   string `json:"upstream"`
	Cut        string `json:"cut"`
	Error      string `json:"error"`
	Detail     string `json:"detail"`
	Sensitive  bool   `json:"sensitive"`
	Credential string `json:"credential"`
	Presented  string `json:"presented"`
	Vetted     string `json:"vetted"`
}

// Records reads the proxy's journal files, oldest first. A last line that is
// not whole is left out.
func (op *Operator) Records() ([]Record, error) { return op.Journal().Next() }

// A Journal reads the proxy's journal files bit by bit.
type Journal struct {
	dir  string
	read map[string]int64 // octets of each file that were read
}

// Journal returns one that begins with the first record.
func (op *Operator) Journal() *Journal {
	return &Journal{op.World.Host.File(filepath.Join("/", op.o.Root, "var/lib/bawn/proxy/journal")), map[string]int64{}}
}

// Next returns what has come since the last call, oldest first. A last line that
// is not whole is left for the next call.
func (j *Journal) Next() ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(j.dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("listing the journal: %w", err)
	}
	sort.Strings(files)
	var out []Record
	for _, f := range files {
		text, err := j.rest(f)
		if err != nil {
			return nil, fmt.Errorf("reading the journal: %w", err)
		}
		for line := range bytes.Lines(text) {
			var r Record
			if json.Unmarshal(line, &r) == nil {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// rest reads the whole lines of a file that were not read yet.
func (j *Journal) rest(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, j.read[name], 1<<40))
	if err != nil {
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	j.read[name] += int64(len(text))
	return text, nil
}

// Decisions are the records of kind decision for which keep is true.
func (op *Operator) Decisions(keep func(Record) bool) ([]Record, error) {
	all, err := op.Records()
	var out []Record
	for _, r := range all {
		if r.Kind == "decision" && keep(r) {
			out = append(out, r)
		}
	}
	return out, err
}
