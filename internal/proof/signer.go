// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"bawn/internal/audit"
)

// Options are what a [Signer] works with.
type Options struct {
	Dir      string   // of the checkpoints; made where it is missing
	Journals []string // directories of journals, which are only read
	Key      *SigningKey
	Log      *slog.Logger     // nil: none
	Now      func() time.Time // nil: time.Now
	// Broken and Pruned are told when a journal is not what was written, and when
	// its oldest files are gone; nil: nobody is.
	Broken, Pruned func(series, what string)
}

const (
	signEvery  = time.Second
	mostNew    = 1000 // records between two checkpoints
	tidyEvery  = time.Hour
	alarmShown = 7 * 24 * time.Hour // how long a break stays in the state
)

// A State says how far a series is covered.
type State struct {
	Series string    `json:"series"`
	Tree   uint64    `json:"tree"`
	Record uint64    `json:"record"`         // number of the last record that a checkpoint on the disk covers
	File   string    `json:"file,omitempty"` // that holds it; files before are covered to their end
	Signed time.Time `json:"signed"`         // when the last checkpoint was made
	// Waiting is how many records were read and are not covered yet.
	Waiting int64 `json:"waiting,omitempty"`
	// Broken says that the journal is not what was written, and where; a week long.
	Broken   string    `json:"broken,omitempty"`
	BrokenAt time.Time `json:"broken_at,omitzero"`
	Fault    string    `json:"fault,omitempty"` // why nothing can be signed now
}

// A Signer covers journals with checkpoints.
type Signer struct {
	o Options

	tick sync.Mutex // one round at a time; guards series
	all  map[string]*signed
	tidy time.Time // next time that books are made shorter
	// looked says that it was seen, once, whether a series is gone.
	looked bool

	mu     sync.Mutex
	states map[string]State
}

// A signed is one series and its book.
type signed struct {
	follower
	book    *book
	drafts  []Checkpoint // not signed yet
	drafted int64        // size of the tree in the last checkpoint or draft
	whole   bool         // that one has a frontier
	safe    mark         // of the last checkpoint that is on the disk
	oldest  uint64       // number of the oldest file that is there
	state   State
}

// A mark is a state to go back to.
type mark struct {
	position
	drafted int64
	whole   bool
}

func (x *signed) mark() { x.safe = mark{x.position.clone(), x.drafted, x.whole} }

// back drops what was read and is not signed: it is read again.
func (x *signed) back() {
	x.position, x.drafted, x.whole, x.drafts = x.safe.clone(), x.safe.drafted, x.safe.whole, nil
}

// OpenSigner makes the directory of checkpoints. Nothing is read yet.
func OpenSigner(o Options) (*Signer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of checkpoints: %w", err)
	}
	return &Signer{o: o, all: map[string]*signed{}, states: map[string]State{}}, nil
}

// Run signs every second what is new, until ctx is done, and then once more.
func (s *Signer) Run(ctx context.Context) error {
	t := time.NewTicker(signEvery)
	defer t.Stop()
	said := ""
	for {
		// Once, not every second: the state has it as long as it lasts.
		if err := s.SignNow(); err != nil && err.Error() != said {
			said = err.Error()
			s.o.Log.Error("covering the journals", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			s.SignNow()
			s.close()
			return nil
		}
	}
}

func (s *Signer) close() {
	s.tick.Lock()
	defer s.tick.Unlock()
	for _, x := range s.all {
		x.book.close()
	}
}

// SignNow covers everything that the journals hold. What keeps it from that is
// in the [State] of the series, in the log, and returned.
func (s *Signer) SignNow() error {
	s.tick.Lock()
	defer s.tick.Unlock()
	var errs []error
	for _, dir := range s.o.Journals {
		if err := s.list(dir); err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		x := s.all[name]
		err := s.advance(x)
		s.publish(x, err)
		if err != nil {
			errs = append(errs, fmt.Errorf("covering journal %s: %w", name, err))
		}
	}
	s.missing()
	s.prune()
	return errors.Join(errs...)
}

// States says how far each series is covered, by name.
func (s *Signer) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]State, 0, len(s.states))
	for _, name := range slices.Sorted(maps.Keys(s.states)) {
		st := s.states[name]
		if st.Broken != "" && s.o.Now().Sub(st.BrokenAt) > alarmShown {
			st.Broken, st.BrokenAt = "", time.Time{}
		}
		list = append(list, st)
	}
	return list
}

// Covered says how far a series is covered; the zero State of one that is not.
func (s *Signer) Covered(series string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[series]
}

func (s *Signer) publish(x *signed, err error) {
	x.state.Waiting = x.frontier.Size() - x.signedSize()
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	x.state.Fault = fault
	s.mu.Lock()
	s.states[x.series] = x.state
	s.mu.Unlock()
}

func (x *signed) signedSize() int64 {
	if x.state.Tree != x.tree || x.first == 0 {
		return 0
	}
	return int64(x.state.Record+1) - int64(x.first)
}

// list takes up series that are new in dir.
func (s *Signer) list(dir string) error {
	files, err := audit.SeriesFiles(dir)
	if err != nil {
		return err
	}
	for _, series := range slices.Sorted(maps.Keys(files)) {
		if x := s.all[series]; x != nil {
			if x.dir != dir {
				return fmt.Errorf("covering journals: series %s is in %s and in %s", series, x.dir, dir)
			}
			s.noticePruned(x, files[series])
			continue
		}
		x, err := s.open(dir, series)
		if err != nil {
			s.mu.Lock()
			s.states[series] = State{Series: series, Fault: err.Error()}
			s.mu.Unlock()
			return fmt.Errorf("covering journal %s: %w", series, err)
		}
		x.oldest = files[series][0].Index
		s.all[series] = x
	}
	return nil
}

// missing raises the alarm for series that have checkpoints and no journal.
func (s *Signer) missing() {
	if s.looked {
		return
	}
	books, err := listBooks(s.o.Dir)
	if err != nil {
		return
	}
	s.looked = true
	for _, series := range slices.Sorted(maps.Keys(books)) {
		if s.all[series] != nil {
			continue
		}
		what := "the journal is gone, and there are checkpoints of it"
		s.o.Log.Error("a journal is not what was written", "series", series, "found", what)
		if s.o.Broken != nil {
			s.o.Broken(series, what)
		}
		s.mu.Lock()
		s.states[series] = State{Series: series, Broken: what, BrokenAt: s.o.Now()}
		s.mu.Unlock()
	}
}

func (s *Signer) noticePruned(x *signed, files []audit.SeriesFile) {
	if first := files[0].Index; first > x.oldest {
		if s.o.Pruned != nil && x.oldest > 0 {
			s.o.Pruned(x.series, fmt.Sprintf("files %d to %d are gone", x.oldest, first-1))
		}
		x.oldest = first
	}
}

// open finds where the last run left a series.
func (s *Signer) open(dir, series string) (*signed, error) {
	b, last, whole, err := openBook(s.o.Dir, series, s.o.Key.Key)
	if err != nil && !errors.Is(err, errBook) {
		return nil, err
	}
	x := &signed{follower: follower{dir: dir, series: series}, book: b}
	x.tree, x.state.Series, x.state.Tree = 1, series, 1
	if last != nil {
		x.tree, x.last, x.end = last.Tree, last.Last(), last.End
		x.state.Tree, x.state.Record, x.state.File, x.state.Signed = last.Tree, last.Last(), last.End.File, last.Time
	}
	if err == nil && last != nil {
		err = x.resume(last, whole)
	}
	if err != nil {
		if !errors.Is(err, errBook) && !isBroken(err) {
			return nil, err
		}
		if err := s.fall(x, err); err != nil {
			return nil, err
		}
	}
	x.drafted, x.whole = x.frontier.Size(), last != nil && len(last.Frontier) > 0
	x.mark()
	x.record = x.onRecord
	x.ended = func() error { return s.onEnd(x) }
	return x, nil
}

func isBroken(err error) bool {
	_, ok := errors.AsType[*brokenError](err)
	return ok
}

// resume reads again what the last checkpoint covers, from the last one with a
// frontier on, and so finds what was changed meanwhile.
func (x *signed) resume(last, whole *Note) error {
	x.position = position{tree: last.Tree, end: last.Begin, from: -1}
	if whole != nil {
		f, err := NewFrontier(whole.Size, whole.Frontier)
		if err != nil {
			return err
		}
		x.position = position{
			tree: whole.Tree, first: whole.First, prev: whole.Prev, begin: whole.Begin, last: whole.Last(),
			chain: whole.Chain, from: -1, end: whole.End, holder: whole.End.File, frontier: f,
		}
	}
	x.file, _ = audit.ParseFileName(x.end.File)
	x.limit = func() bool { return x.frontier.Size() >= last.Size }
	err := error(nil)
	if !x.limit() {
		err = x.step()
	}
	x.limit = nil
	if err == nil && !x.agrees(last) {
		err = broken("the journal is not that of the last checkpoint: it holds %d records of its %d, or others", x.frontier.Size(), last.Size)
	}
	if err != nil {
		x.last, x.end = last.Last(), last.End
	}
	return err
}

// agrees reports whether what was read is what a checkpoint says.
func (p *position) agrees(n *Note) bool {
	return p.frontier.Size() == n.Size && p.frontier.Root() == n.Root && p.chain == n.Chain &&
		p.first == n.First && p.prev == n.Prev && p.begin == n.Begin && p.end == n.End
}

// fall raises the alarm and goes on in a new tree.
func (s *Signer) fall(x *signed, why error) error {
	if err := x.skip(why.Error()); err != nil {
		return err
	}
	x.drafted, x.whole = 0, false
	if len(x.fell) > maxBreak {
		x.fell = x.fell[:maxBreak]
	}
	x.mark()
	x.state.Broken, x.state.BrokenAt = x.fell, s.o.Now()
	s.o.Log.Error("a journal is not what was written; what was changed is not signed", "series", x.series, "found", x.fell)
	if s.o.Broken != nil {
		s.o.Broken(x.series, x.fell)
	}
	return nil
}

// advance reads what is new in one series and signs it.
func (s *Signer) advance(x *signed) error {
	if err := s.flush(x); err != nil {
		return err // nothing is read ahead of a book that cannot be written
	}
	err := x.step()
	switch {
	case errors.Is(err, errUnsettled):
		x.back()
		return nil
	case isBroken(err):
		// The record before the one that does not follow may be the one that was
		// changed: what was not signed before is not signed now.
		x.back()
		return s.fall(x, err)
	case err != nil:
		x.back()
		return err
	}
	x.draft(false)
	return s.flush(x)
}

func (x *signed) onRecord() error {
	if x.frontier.Size()-x.drafted >= mostNew {
		x.draft(false)
	}
	return nil
}

// onEnd makes a checkpoint of the end of a file. What was read is on the disk.
func (s *Signer) onEnd(x *signed) error {
	x.draft(true)
	return s.flush(x)
}

// draft makes a checkpoint of the position, unless there is one.
func (x *signed) draft(whole bool) {
	size := x.frontier.Size()
	if size == 0 || x.from < 0 || size == x.drafted && (x.whole || !whole) {
		return
	}
	c := Checkpoint{
		Series: x.series, Tree: x.tree, Size: size, Root: x.frontier.Root(), First: x.first, Prev: x.prev,
		Begin: x.begin, Chain: x.chain, End: x.end,
	}
	if whole {
		c.Frontier = x.frontier.Nodes()
	}
	c.Break, x.fell = x.fell, ""
	x.drafts = append(x.drafts, c)
	x.drafted, x.whole = size, whole
}

// flush signs the drafts and writes them.
func (s *Signer) flush(x *signed) error {
	if len(x.drafts) == 0 {
		return nil
	}
	at, previous := s.o.Now().UTC().Truncate(time.Second), x.book.previous
	notes := make([][]byte, len(x.drafts))
	for i := range x.drafts {
		c := &x.drafts[i]
		c.Time, c.Previous = at, previous
		text, err := s.o.Key.sign(c)
		if err != nil {
			return fmt.Errorf("signing checkpoint: %w", err)
		}
		notes[i] = text
		n := Note{Text: text}
		previous = n.sum()
	}
	if err := x.book.add(notes); err != nil {
		return err
	}
	last := x.drafts[len(x.drafts)-1]
	x.drafts = nil
	x.mark()
	x.state.Tree, x.state.Record, x.state.Signed = last.Tree, last.Last(), at
	x.state.File = last.End.File
	return nil
}

// prune removes, once an hour, the files of books that are about nothing that is
// still there.
func (s *Signer) prune() {
	if now := s.o.Now(); now.Before(s.tidy) {
		return
	} else {
		s.tidy = now.Add(tidyEvery)
	}
	for _, x := range s.all {
		if err := s.pruneBook(x); err != nil {
			s.o.Log.Warn("old checkpoints could not be removed", "series", x.series, "error", err)
		}
	}
}

func (s *Signer) pruneBook(x *signed) error {
	files, err := audit.SeriesFiles(x.dir)
	if err != nil || len(files[x.series]) == 0 {
		return err
	}
	oldest, err := firstRecord(filepath.Join(x.dir, files[x.series][0].Name))
	if err != nil || oldest == 0 {
		return err
	}
	books, err := listBooks(s.o.Dir)
	if err != nil {
		return err
	}
	for i, b := range books[x.series] {
		if i+1 == len(books[x.series]) {
			return nil
		}
		// The next file begins before the record in front of the oldest, so the
		// checkpoint of that one is there or behind.
		useless := false
		_, err := readBookFile(s.o.Dir, books[x.series][i+1], s.o.Key.Key, func(n Note, bad *badNote) bool {
			useless = bad == nil && n.Last()+1 < oldest
			return false
		})
		if err != nil || !useless {
			return err
		}
		if err := os.Remove(filepath.Join(s.o.Dir, b.name)); err != nil {
			return err
		}
	}
	return nil
}

// firstRecord returns the number of the first record of a file, 0 where there is
// none.
func firstRecord(path string) (uint64, error) {
	f, err := openRegular(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	line, err := audit.ReadLines(f, 0, false).Next()
	if err != nil || !line.Record {
		return 0, nil
	}
	return line.Seq, nil
}
