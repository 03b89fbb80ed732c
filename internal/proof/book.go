// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
)

// A book is the append-only list of a series' checkpoints: files
// SERIES-NUMBER.checkpoints, one JSON object a line, with the note in it. A
// crash may leave a torn last line; the next one begins a new file.
type book struct {
	dir      string
	series   string
	f        *os.File
	index    uint64
	size     int64
	torn     bool     // the open file ends in what is no line: begin a new one
	previous [32]byte // SHA-256 of the last note
}

// A bookLine is one line of a book.
type bookLine struct {
	Note string `json:"note"`
}

// maxBookFile is the size, in bytes, from which on a book's file gets no more.
const maxBookFile = 8 << 20

var bookForm = regexp.MustCompile(`^([a-z][a-z0-9]*)-(\d{9})\.checkpoints$`)

type bookFile struct {
	name   string
	series string
	index  uint64
	size   int64 // when it was listed
}

func bookName(series string, index uint64) string {
	return fmt.Sprintf("%s-%09d.checkpoints", series, index)
}

// listBooks returns the files of each series' book, oldest first.
func listBooks(dir string) (map[string][]bookFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing checkpoints: %w", err)
	}
	books := map[string][]bookFile{}
	for _, e := range entries { // sorted by name, and so by number
		m := bookForm.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it was removed meanwhile
		}
		n, _ := strconv.ParseUint(m[2], 10, 64)
		books[m[1]] = append(books[m[1]], bookFile{e.Name(), m[1], n, info.Size()})
	}
	return books, nil
}

// A Note is one signed checkpoint, and where it is kept.
type Note struct {
	Checkpoint
	Text []byte // as signed, with the signature
	At   Place
}

func (n *Note) sum() [32]byte { return sha256.Sum256(n.Text) }

// A badNote is a line of a book that is no checkpoint of ours.
type badNote struct {
	at  Place
	err error
	cp  Checkpoint // what it says, which nobody vouches for
}

// readBookFile hands out the notes of one file, as long as it was when it was
// listed: the journals that are listed afterwards hold what these are about. The
// end that no newline closes is torn. take may stop the reading.
func readBookFile(dir string, file bookFile, key Key, take func(Note, *badNote) bool) (torn int64, err error) {
	name := file.name
	f, err := openRegular(filepath.Join(dir, name))
	if err != nil {
		return 0, fmt.Errorf("reading checkpoints: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(io.LimitReader(f, file.size), 64<<10)
	for offset := int64(0); ; {
		line, whole, err := readLine(r, 4*maxText)
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("reading checkpoints %s: %w", name, err)
		}
		if !whole {
			return int64(len(line)), nil
		}
		n, bad := parseBookLine(line, key)
		n.At = Place{name, offset}
		if bad != nil {
			bad.at = n.At
		}
		if !take(n, bad) {
			return 0, nil
		}
		offset += int64(len(line)) + 1
	}
}

func parseBookLine(line []byte, key Key) (n Note, bad *badNote) {
	var l bookLine
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil || dec.More() {
		return n, &badNote{err: errors.New("is no line of a book")}
	}
	c, err := key.open([]byte(l.Note))
	if err != nil {
		return n, &badNote{err: err, cp: c}
	}
	return Note{Checkpoint: c, Text: []byte(l.Note)}, nil
}

// readLine reads up to a newline and no more than limit bytes of it. The length
// of a longer line is still that of all its bytes.
func readLine(r *bufio.Reader, limit int) (line []byte, whole bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= 64*limit:
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, false, errors.New("a line without an end")
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, false, nil
		default:
			return nil, false, err
		}
	}
}

// openBook finds the end of a series' book: the last note and the last one with
// a frontier, nil where there is none. What is no note of ours is an error: the
// book was changed.
func openBook(dir, series string, key Key) (b *book, last, whole *Note, err error) {
	b = &book{dir: dir, series: series}
	books, err := listBooks(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	files := books[series]
	var fault *badNote
	for i := len(files) - 1; i >= 0 && whole == nil; i-- {
		var own []Note
		torn, err := readBookFile(dir, files[i], key, func(n Note, bad *badNote) bool {
			if bad != nil {
				fault = bad
				return true
			}
			own = append(own, n)
			return true
		})
		if err != nil {
			return nil, nil, nil, err
		}
		if i == len(files)-1 {
			b.index, b.torn = files[i].index, torn > 0
		}
		if len(own) == 0 {
			continue
		}
		if last == nil {
			n := own[len(own)-1]
			last, b.previous = &n, n.sum()
		}
		for _, n := range slices.Backward(own) {
			if n.Tree != last.Tree {
				return b, last, nil, faultOf(fault)
			}
			if len(n.Frontier) > 0 && whole == nil {
				whole = &n
			}
		}
	}
	return b, last, whole, faultOf(fault)
}

// errBook says that a book is not what was written to it.
var errBook = errors.New("the checkpoints were changed")

func faultOf(bad *badNote) error {
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%w: what is in %s %v", errBook, bad.at, bad.err)
}

// add writes notes behind the last one with one write and brings them to the
// disk. After an error nothing counts as written.
func (b *book) add(notes [][]byte) error {
	var out []byte
	for _, n := range notes {
		line, err := json.Marshal(bookLine{string(n)})
		if err != nil {
			return fmt.Errorf("writing checkpoint: %w", err)
		}
		out = append(append(out, line...), '\n')
	}
	if err := b.ready(); err != nil {
		return err
	}
	n, err := b.f.Write(out)
	if err == nil {
		err = b.f.Sync()
	}
	if err != nil {
		if n > 0 && b.f.Truncate(b.size) != nil {
			b.torn = true
		}
		return fmt.Errorf("writing checkpoint: %w", err)
	}
	b.size += int64(len(out))
	b.previous = sha256.Sum256(notes[len(notes)-1])
	return nil
}

// ready sees to it that there is a file to append to.
func (b *book) ready() error {
	if b.f == nil && b.index > 0 && !b.torn {
		if err := b.adopt(); err != nil {
			return err
		}
	}
	if b.f != nil && !b.torn && b.size < maxBookFile {
		return nil
	}
	b.close()
	f, err := os.OpenFile(filepath.Join(b.dir, bookName(b.series, b.index+1)), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return fmt.Errorf("beginning a file of checkpoints: %w", err)
	}
	b.f, b.size, b.torn = f, 0, false
	b.index++
	return syncDir(b.dir)
}

// adopt opens the last run's file to go on in it.
func (b *book) adopt() error {
	f, err := os.OpenFile(filepath.Join(b.dir, bookName(b.series, b.index)), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("opening checkpoints: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("opening checkpoints: %w", err)
	}
	b.f, b.size = f, info.Size()
	return nil
}

func (b *book) close() {
	if b.f != nil {
		b.f.Close()
		b.f = nil
	}
}

var errNoFile = errors.New("not a regular file")

// openRegular opens a file that somebody else writes. What is no file of its own
// - a link to one of ours, a pipe that would let us wait - is refused.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a link", errNoFile, path)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is %v", errNoFile, path, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: has more than %d bytes", path, limit)
	}
	return text, err
}
