// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter

import (
	"io"
	"slices"
)

// chunk bounds what a Writer filters at a time, in bytes.
const chunk = 32 << 10

// A Writer passes what a terminal may see to another writer. Each sequence goes
// out whole in one Write.
type Writer struct {
	to     io.Writer
	filter Filter
	buf    []byte
	err    error
}

var _ io.WriteCloser = (*Writer)(nil)

// NewWriter returns a Writer for the output of a program that has the terminal
// w for its own: its questions pass, and the answers must reach it.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// NewPlainWriter returns a Writer for the output of a program that writes into
// a pipe and is shown on the terminal w; see [Filter].
func NewPlainWriter(w io.Writer) *Writer { return &Writer{to: w, filter: Filter{Plain: true}} }

// Write filters p. It returns len(p) and no error unless the writer behind it
// failed. Then it fails for ever: what was written may have ended within a
// sequence, and nothing may complete it. The count it returns then is of the
// bytes that were surely passed on.
func (w *Writer) Write(p []byte) (int, error) {
	done := 0
	for part := range slices.Chunk(p, chunk) {
		w.buf = w.filter.Append(w.buf[:0], part)
		if err := w.flush(); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, w.err
}

func (w *Writer) flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.to.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	w.err = err
	return err
}

// Close drops an incomplete sequence and puts the terminal back as
// [Filter.Restore] does. It does not close the writer behind it, and writes
// nothing to it when there is nothing to put back.
func (w *Writer) Close() error {
	w.buf = w.filter.Restore(w.buf[:0])
	return w.flush()
}
