// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"bawn/internal/codes"
	"bawn/internal/verdict"
)

// A Filter chooses entries; every field that is set must hold.
type Filter struct {
	Agent    string
	Except   string // every agent but this one
	User     string
	Session  string
	Host     string // canonical
	Verdict  *verdict.Effect
	Code     codes.Code // of the decision or of the outcome
	Plane    string
	Rule     string // that decided
	Method   string
	Path     string    // what the path begins with
	Request  string    // its decision, and those about its messages
	Client   string    // the agent's end: address and port, or address
	Status   int       // that the agent got
	Upstream string    // address and port, or address
	Since    time.Time // of the decision, inclusive
	Until    time.Time // exclusive
	Limit    int       // only the newest so many; 0: all
	NoActs   bool      // nothing that operators did
}

// An Entry is one line of a log: a decision with its outcome, a summary, a gap
// or a damaged line.
type Entry struct {
	Decision *Decision `json:"decision,omitempty"`
	Outcome  *Outcome  `json:"outcome,omitempty"` // nil: still open, a denial, or lost in a crash
	Dial     *Dial     `json:"dial,omitempty"`    // the upstream connection of what is still open, where it was made for it
	// Late marks a decision that was handed out before without its outcome.
	Late bool `json:"late,omitempty"`
	// Lost says why there is an outcome without its decision.
	Lost    string   `json:"lost,omitempty"`
	Summary *Summary `json:"summary,omitempty"`
	Gap     *Gap     `json:"gap,omitempty"`
	Act     *Act     `json:"act,omitempty"`    // where it began, or all of it
	Result  *Act     `json:"result,omitempty"` // nil: in Act, or not known
	Damage  *Damage  `json:"damage,omitempty"`
}

const (
	scanWindow  = 1 << 16                // entries that wait for an outcome before a scan hands them out without
	firstWindow = 1 << 20                // bytes of each series that a scan for the newest entries reads first
	pollEvery   = 200 * time.Millisecond // of Follow
)

// Scan reads the journals in dir, all series merged by time, and hands out
// what f chooses, oldest first. A decision waits for its outcome; when it has
// held up very many others it comes without, and comes again, Late, once the
// outcome is found. An error ends the scan.
func Scan(dir string, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if f.Limit > 0 {
			newest(dir, f, firstWindow, yield)
			return
		}
		r := reader{dir: dir, filter: f}
		defer r.close()
		j := joiner{filter: f, window: scanWindow}
		for {
			it, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			j.add(it)
			if !j.drain(false, yield) {
				return
			}
		}
		j.drain(true, yield)
	}
}

// newest hands out the newest f.Limit entries that f chooses. It reads the ends
// of the series first, and more of them as long as there are too few entries.
func newest(dir string, f Filter, window int64, yield func(Entry, error) bool) {
	for ; ; window *= 8 {
		all, from, partial, err := readEnds(dir, f, window)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		if partial && len(all) < f.Limit && (f.Since.IsZero() || from.After(f.Since)) {
			continue
		}
		for _, e := range all[max(0, len(all)-f.Limit):] {
			if !yield(e, nil) {
				return
			}
		}
		return
	}
}

// readEnds reads the last bytes of each series, as many as window. Where there
// are more, it leaves out what is older than the beginning of any window, from:
// of that time, not all was read.
func readEnds(dir string, f Filter, window int64) (all []Entry, from time.Time, partial bool, err error) {
	r := reader{dir: dir, filter: f, window: window}
	defer r.close()
	j := joiner{filter: f, window: scanWindow}
	for {
		it, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, from, false, err
		}
		j.add(it)
	}
	for _, s := range r.series {
		partial = partial || s.partial
		if s.partial && s.from.After(from) {
			from = s.from
		}
	}
	j.drain(true, func(e Entry, _ error) bool {
		if !e.time().Before(from) {
			all = append(all, e)
		}
		return true
	})
	return all, from, partial, nil
}

// time is that of the decision, the summary or the gap; a damaged line has
// none.
func (e *Entry) time() time.Time {
	switch {
	case e.Decision != nil:
		return e.Decision.Time
	case e.Summary != nil:
		return e.Summary.Time
	case e.Gap != nil:
		return e.Gap.Time
	case e.Act != nil:
		return e.Act.Time
	}
	return time.Time{}
}

// Follow hands out what f chooses as it is written, from f.Since on or, where
// that is zero, from now on. Decisions come at once, and again, Late, with
// their outcome. It ends when ctx is done, without an error; f.Limit does not
// apply.
func Follow(ctx context.Context, dir string, f Filter) iter.Seq2[Entry, error] {
	if f.Since.IsZero() {
		f.Since = time.Now().Truncate(time.Microsecond)
	}
	f.Limit = 0
	return func(yield func(Entry, error) bool) {
		r := reader{dir: dir, filter: f}
		defer r.close()
		j := joiner{filter: f}
		for ctx.Err() == nil {
			it, err := r.next()
			if errors.Is(err, io.EOF) {
				wait(ctx, pollEvery)
				continue
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			j.add(it)
			if !j.drain(true, yield) {
				return
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// A reader merges the series of a directory by time.
type reader struct {
	dir    string
	filter Filter
	window int64 // of each series; see stream
	series []*source
	polled bool // the directory was listed since the last end
}

// A source is a series and its next item, where that was read already.
type source struct {
	stream
	head  *item
	ended bool // since the directory was listed
}

// next returns the oldest item that no call has returned; io.EOF when there is
// none now.
func (r *reader) next() (item, error) {
	if !r.polled {
		if err := r.list(); err != nil {
			return item{}, err
		}
		r.polled = true
	}
	var first *source
	for _, s := range r.series {
		if s.ended {
			continue
		}
		if s.head == nil {
			it, err := s.next()
			if errors.Is(err, io.EOF) {
				s.ended = true
				continue
			}
			if err != nil {
				return item{}, err
			}
			s.head = &it
		}
		if first == nil || s.head.Time().Before(first.head.Time()) {
			first = s
		}
	}
	if first == nil {
		r.polled = false
		return item{}, io.EOF
	}
	it := *first.head
	first.head = nil
	return it, nil
}

// list adds the series that are new in the directory.
func (r *reader) list() error {
	series, err := listSeries(r.dir)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, s := range r.series {
		known[s.plane] = true
		s.ended = false
	}
	for _, plane := range sortedKeys(series) {
		if !known[plane] {
			r.series = append(r.series, &source{stream: stream{
				dir: r.dir, plane: plane, since: r.filter.Since, window: r.window, needles: r.filter.needles(),
			}})
		}
	}
	return nil
}

func (r *reader) close() {
	for _, s := range r.series {
		s.close()
	}
}

// A joiner puts outcomes to their decisions.
type joiner struct {
	filter Filter
	window int // entries that may wait; not used with a limit
	queue  []*waiting
	open   map[string]*waiting // decisions without an outcome, by request
}

type waiting struct {
	Entry
	complete bool
	gone     bool // handed out
}

func (j *joiner) add(it item) {
	switch {
	case it.Decision != nil:
		if j.filter.decision(it.Decision) {
			// A message has no outcome of its own: its WebSocket has.
			complete := it.Decision.Verdict == verdict.Deny || it.Decision.Message != 0
			w := &waiting{Entry: Entry{Decision: it.Decision}, complete: complete}
			j.queue = append(j.queue, w)
			j.expect(w)
		}
	case it.Outcome != nil:
		j.outcome(it.Outcome)
	case it.Dial != nil:
		if w := j.open[it.Dial.Request]; w != nil {
			w.Dial = it.Dial
		}
	case it.Summary != nil && j.filter.summary(it.Summary):
		j.push(Entry{Summary: it.Summary})
	case it.Gap != nil && j.filter.whole(it.Gap.Time):
		j.push(Entry{Gap: it.Gap})
	case it.damage != nil && j.filter.whole(time.Time{}):
		j.push(Entry{Damage: it.damage})
	case it.Act != nil:
		j.act(it.Act)
	}
	j.trim()
}

func (j *joiner) push(e Entry) { j.queue = append(j.queue, &waiting{Entry: e, complete: true}) }

func (j *joiner) expect(w *waiting) {
	if w.complete {
		return
	}
	if j.open == nil {
		j.open = make(map[string]*waiting)
	}
	j.open[w.Decision.Request] = w
}

func (j *joiner) outcome(o *Outcome) {
	w := j.open[o.Request]
	if w == nil {
		return
	}
	delete(j.open, o.Request)
	w.Outcome, w.Dial, w.complete = o, nil, true
	if w.gone {
		w.Late = true
		j.queue = append(j.queue, w)
	}
}

// trim drops the oldest entries where there is a limit and they cannot be among
// the newest any more.
func (j *joiner) trim() {
	limit := j.filter.Limit
	if limit <= 0 || len(j.queue) < 2*(limit+scanWindow) {
		return
	}
	var kept []*waiting
	for _, w := range j.queue {
		if !w.complete || j.filter.Joined(&w.Entry) {
			kept = append(kept, w)
		}
	}
	n := max(0, len(kept)-limit-scanWindow)
	for _, w := range kept[:n] {
		switch {
		case w.Decision != nil:
			delete(j.open, w.Decision.Request)
		case w.Act != nil:
			delete(j.open, "act "+w.Act.ID)
		}
	}
	j.queue = append([]*waiting(nil), kept[n:]...)
}

// drain hands out what is ready: the complete entries at the front, what is
// beyond the window and, at the end, everything. It reports false when the
// caller wants no more.
func (j *joiner) drain(end bool, yield func(Entry, error) bool) bool {
	n := 0
	for _, w := range j.queue {
		if !end && !w.complete && len(j.queue)-n <= j.window {
			break
		}
		n++
		w.gone = true
		if j.filter.Joined(&w.Entry) && !yield(w.Entry, nil) {
			return false
		}
	}
	clear(j.queue[:n])
	j.queue = j.queue[n:]
	return true
}
