// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Writer makes an archive. Its methods are for one goroutine.
type Writer struct {
	zip      *gzip.Writer
	tar      *tar.Writer
	manifest Manifest
	census   census
	Bytes    int64 // of files, so far
}

// NewWriter begins an archive on w.
func NewWriter(w io.Writer, m Manifest) *Writer {
	zip := gzip.NewWriter(w)
	m.Format, m.Members = Format, nil
	m.Made = m.Made.UTC().Truncate(time.Second)
	return &Writer{zip: zip, tar: tar.NewWriter(zip), manifest: m}
}

// Add writes a member. content gives m.Size bytes of a file, and is nil of
// anything else; the sum is filled in.
func (w *Writer) Add(m Member, content io.Reader) error {
	m.SHA256 = ""
	if err := w.census.add(m); err != nil {
		return fmt.Errorf("writing archive: %w", err)
	}
	if err := w.tar.WriteHeader(header(m, w.manifest.Made)); err != nil {
		return fmt.Errorf("writing archive: member %q: %w", m.Name, err)
	}
	if m.Kind == File {
		sum := sha256.New()
		if n, err := io.CopyN(io.MultiWriter(w.tar, sum), content, m.Size); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("it became shorter while it was read, from %d to %d bytes", m.Size, n)
			}
			return fmt.Errorf("writing archive: member %q: %w", m.Name, err)
		}
		m.SHA256 = hex.EncodeToString(sum.Sum(nil))
		w.Bytes += m.Size
	}
	w.manifest.Members = append(w.manifest.Members, m)
	return nil
}

func header(m Member, made time.Time) *tar.Header {
	h := &tar.Header{
		Name: m.Name, Mode: int64(m.Mode), Size: m.Size, Uname: m.Owner, Gname: m.Group,
		ModTime: made, Format: tar.FormatPAX,
	}
	switch m.Kind {
	case File:
		h.Typeflag = tar.TypeReg
	case Directory:
		h.Typeflag, h.Name = tar.TypeDir, m.Name+"/"
	case Link:
		h.Typeflag, h.Linkname = tar.TypeSymlink, m.Target
	}
	return h
}

// Members is how many there are so far.
func (w *Writer) Members() int { return len(w.manifest.Members) }

// Close writes the manifest, without which an archive is none.
func (w *Writer) Close() error {
	if err := w.census.settle(); err != nil {
		return fmt.Errorf("writing archive: %w", err)
	}
	text, err := json.Marshal(w.manifest)
	if err != nil {
		return fmt.Errorf("writing archive: manifest: %w", err)
	}
	err = w.tar.WriteHeader(&tar.Header{Name: manifestName, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(text)), ModTime: w.manifest.Made, Format: tar.FormatPAX})
	if err == nil {
		_, err = w.tar.Write(text)
	}
	if err = errors.Join(err, w.tar.Close(), w.zip.Close()); err != nil {
		return fmt.Errorf("writing archive: manifest: %w", err)
	}
	return nil
}
