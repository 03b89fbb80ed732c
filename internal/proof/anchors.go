// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"maps"
	"slices"
)

// Anchors returns the newest checkpoint of each series, by name.
func Anchors(dir string, key Key) ([]Note, error) {
	books, err := listBooks(dir)
	if err != nil {
		return nil, err
	}
	var all []Note
	for _, series := range slices.Sorted(maps.Keys(books)) {
		_, last, _, err := openBook(dir, series, key)
		if err != nil {
			return nil, err
		}
		if last != nil {
			all = append(all, *last)
		}
	}
	return all, nil
}

var sigMark = []byte("\u2014 ")

// splitNotes finds the notes in a text: a paragraph, an empty line, and lines
// that are signatures.
func splitNotes(text []byte) (all [][]byte) {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	var note []byte
	signed := false
	end := func() {
		if signed {
			all = append(all, note)
		}
		note, signed = nil, false
	}
	for line := range bytes.Lines(text) {
		line = append(bytes.TrimRight(line, " \n"), '\n')
		sig, empty := bytes.HasPrefix(line, sigMark), len(line) == 1
		switch {
		case sig && len(note) > 0:
			note, signed = append(note, line...), true
		case signed:
			end()
			if !empty {
				note = append(note, line...)
			}
		case empty && len(note) > 0 && bytes.HasSuffix(note, []byte("\n\n")):
			note = nil
		case empty && len(note) == 0:
		case !empty && bytes.HasSuffix(note, []byte("\n\n")):
			note = append([]byte(nil), line...) // the paragraph before was no note
		default:
			note = append(note, line...)
		}
	}
	end()
	return all
}
