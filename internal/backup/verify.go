// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Verify reads an archive to its end and checks every name, size and sum, and
// that the manifest names exactly what is there. Of files together it takes most
// bytes at most, so that a small archive cannot fill a disk.
func Verify(r io.Reader, most int64) (*Manifest, error) {
	m, err := verify(r, most)
	if err != nil {
		return nil, fmt.Errorf("checking archive: %w", err)
	}
	return m, nil
}

func verify(r io.Reader, most int64) (*Manifest, error) {
	var found []Member
	var seen census
	var manifest *Manifest
	var total int64
	err := each(r, func(h *tar.Header, content io.Reader) error {
		if manifest != nil {
			return errors.New("something comes after the manifest")
		}
		if h.Name == manifestName {
			var err error
			manifest, err = readManifest(h, content)
			return err
		}
		m, err := memberOf(h)
		if err != nil {
			return err
		}
		if total += m.Size; total > most || total < 0 {
			return fmt.Errorf("its files have more than %d bytes, for which there is no room", most)
		}
		if err := seen.add(m); err != nil {
			return err
		}
		if m.Kind == File {
			if m.SHA256, err = sumOf(content, m.Size); err != nil {
				return fmt.Errorf("member %q: %w", m.Name, err)
			}
		}
		found = append(found, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if manifest == nil {
		return nil, errors.New("it has no manifest: it is no backup, or was cut off")
	}
	if err := seen.settle(); err != nil {
		return nil, err
	}
	return manifest, compare(manifest.Members, found)
}

// each calls visit with each member of the tar.
func each(r io.Reader, visit func(*tar.Header, io.Reader) error) error {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("it is no gzip: %w", err)
	}
	t := tar.NewReader(zip)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, io.LimitReader(zip, 1<<20)) // the sum of the gzip is behind it
			return err
		}
		if err != nil {
			return fmt.Errorf("reading it: %w", err)
		}
		if err := visit(h, t); err != nil {
			return err
		}
	}
}

func readManifest(h *tar.Header, r io.Reader) (*Manifest, error) {
	if h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return nil, errors.New("the manifest is none")
	}
	text, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	m := new(Manifest)
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if m.Format != Format {
		return nil, fmt.Errorf("it has format %d, and this program reads %d: use the program that made it (version %q)", m.Format, Format, m.Version)
	}
	return m, nil
}

// memberOf takes a member out of a tar header. Whatever tar can hold besides
// files, directories and links is refused.
func memberOf(h *tar.Header) (Member, error) {
	m := Member{Name: h.Name, Owner: h.Uname, Group: h.Gname, Size: h.Size}
	if h.Mode < 0 || h.Mode > 0o7777 {
		return m, fmt.Errorf("member %q has mode %o", h.Name, h.Mode)
	}
	m.Mode = uint32(h.Mode)
	switch h.Typeflag {
	case tar.TypeReg:
		m.Kind = File
	case tar.TypeDir:
		m.Kind, m.Name = Directory, strings.TrimSuffix(h.Name, "/")
	case tar.TypeSymlink:
		m.Kind, m.Target = Link, h.Linkname
	default:
		return m, fmt.Errorf("member %q is of tar's type %q, which is nothing that is put back", h.Name, h.Typeflag)
	}
	if h.Size > 0 && m.Kind != File {
		return m, fmt.Errorf("member %q has size %d", h.Name, h.Size)
	}
	return m, m.check()
}

func sumOf(r io.Reader, size int64) (string, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes, not %d", n, size)
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// compare wants the same members in the same order.
func compare(want, found []Member) error {
	if len(want) != len(found) {
		return fmt.Errorf("the manifest names %d members, and there are %d", len(want), len(found))
	}
	for i := range want {
		if want[i] == found[i] {
			continue
		}
		if want[i].Name == found[i].Name && want[i].SHA256 != found[i].SHA256 {
			return fmt.Errorf("member %q was changed: its sum is not that of the manifest", want[i].Name)
		}
		return fmt.Errorf("member %q is not what the manifest says", found[i].Name)
	}
	return nil
}

// Has reports whether the archive has a member.
func (m *Manifest) Has(name string) bool {
	return slices.ContainsFunc(m.Members, func(x Member) bool { return x.Name == name })
}
