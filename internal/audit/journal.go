// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"bawn/internal/verdict"
)

// ErrClosed is what a journal that was closed answers. The caller refuses.
var ErrClosed = errors.New("journal is closed")

// Options are the settings of a [Journal]; only Plane must be set.
type Options struct {
	Plane     string           // names the series: lower-case letters and digits
	Now       func() time.Time // clock of records; nil: time.Now
	Log       *slog.Logger     // for faults and recovery; nil: none
	FileBytes int64            // a file of this size gets no more records; 0: 64 MiB
	Denials   int              // records of denials that an identity gets a second, see [Summary]; 0: 100, negative: no bound
	Mode      fs.FileMode      // of new files; 0: 0640

	// AgentBytes is how many bytes of records an agent may write at once, and
	// AgentFlow how many of them it gets back in a second: beyond, what it asks
	// for is refused, see [ErrQuota]. 0: 1 GiB and 256 KiB; a negative AgentFlow:
	// no bound.
	AgentBytes, AgentFlow int64
}

const (
	defaultFileBytes  = 64 << 20
	defaultDenials    = 100
	defaultAgentBytes = 1 << 30
	defaultAgentFlow  = 256 << 10
	flushAfter        = 200 * time.Millisecond // longest time that an outcome waits for company
	flushBytes        = 256 << 10              // and most bytes
	syncEvery         = time.Second
	keepBytes         = 4 << 20 // of outcomes while the journal cannot be written
)

// A Journal is the append-only decision log of one plane.
type Journal struct {
	opt  Options
	lock *os.File
	w    *writer

	mu      sync.Mutex
	done    sync.Cond // a write has ended
	enc     encoder
	pending *batch // not yet taken by a write
	spare   batch  // buffers of an earlier batch, to be used again
	writing bool   // somebody writes, without holding mu
	closed  bool
	gap     *Gap   // what could not be written since the last write that worked; nil while writes work
	kept    *batch // outcomes and summaries, while there is a gap
	flushes timer
	syncs   timer
	budget  budget
	stats   stats
}

// A batch is what one write takes.
type batch struct {
	bodies  []byte // record bodies, one behind the other
	records []mark
	first   uint64 // number of the first record, once written
	err     error
	done    bool
}

// A mark is one record of a batch.
type mark struct {
	end  int // of its body in bodies
	kind recordKind
}

type recordKind uint8

const (
	decisionRecord recordKind = iota // somebody waits for it, and refuses without it
	keptRecord                       // nobody waits: kept for the next write
	gapRecord                        // made anew for each write
)

// OpenJournal opens the series of opt.Plane in dir, which must exist, and
// begins a new file behind whatever an earlier run left. A second journal of
// the same series is refused while the first is open, in any process.
func OpenJournal(dir string, opt Options) (*Journal, error) {
	if !planeForm.MatchString(opt.Plane) {
		return nil, fmt.Errorf("opening journal %q: a plane's name is lower-case letters and digits", opt.Plane)
	}
	opt.defaults()
	lock, err := lockSeries(dir, opt)
	if err != nil {
		return nil, err
	}
	j := &Journal{opt: opt, lock: lock, pending: new(batch), kept: new(batch), budget: newBudget(opt)}
	j.done.L = &j.mu
	j.flushes = timer{after: flushAfter, do: j.onFlush}
	j.syncs = timer{after: syncEvery, do: j.onSync}
	j.w = &writer{
		dir: dir, plane: opt.Plane, mode: opt.Mode, maxBytes: opt.FileBytes,
		log: opt.Log, create: createFile,
	}
	if err := j.start(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("opening journal of %s: %w", opt.Plane, err)
	}
	return j, nil
}

func (o *Options) defaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.FileBytes == 0 {
		o.FileBytes = defaultFileBytes
	}
	if o.Denials == 0 {
		o.Denials = defaultDenials
	}
	if o.AgentBytes == 0 {
		o.AgentBytes = defaultAgentBytes
	}
	if o.AgentFlow == 0 {
		o.AgentFlow = defaultAgentFlow
	}
	if o.Mode == 0 {
		o.Mode = 0o640
	}
}

func lockSeries(dir string, opt Options) (*os.File, error) {
	path := filepath.Join(dir, opt.Plane+".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, opt.Mode)
	if err != nil {
		return nil, fmt.Errorf("opening journal of %s: %w", opt.Plane, err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("opening journal of %s: another process holds %s: %w", opt.Plane, path, err)
	}
	return f, nil
}

// start finds the end of the series and writes the head of a new file, so that
// a directory that cannot be written shows at the start.
func (j *Journal) start() error {
	if err := j.w.findEnd(); err != nil {
		return err
	}
	if err := j.w.adopt(); err != nil {
		return err
	}
	if err := j.w.append(new(batch), j.opt.Now()); err != nil {
		err = errors.Join(err, j.w.close())
		if j.w.name != "" && j.w.size == 0 {
			os.Remove(filepath.Join(j.w.dir, j.w.name)) // we made it, and nothing is in it
		}
		return err
	}
	if err := j.w.sync(); err != nil {
		return errors.Join(err, j.w.close())
	}
	return nil
}

// Decide writes d. When it returns nil, the record is in the file, and d.Seq
// is its number; a denial beyond the record budget is counted instead and
// leaves d.Seq 0. After an error the caller must refuse, with the code that
// [CodeOf] gives. A zero d.Time and an empty d.Plane are filled in.
func (j *Journal) Decide(d *Decision) error {
	if d.Time.IsZero() {
		d.Time = j.opt.Now()
	}
	if d.Plane == "" {
		d.Plane = j.opt.Plane
	}
	d.Seq = 0
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	now := j.opt.Now() // d.Time is when the request came, which an agent can hold back
	switch denied := d.Verdict == verdict.Deny; {
	case denied && !j.budget.take(d, now):
		j.syncs.arm()
		return nil
	case !denied && !j.budget.open(d.Agent, now):
		return ErrQuota
	}
	b := j.pending
	at, before := len(b.records), len(b.bodies)
	b.add(j.enc.decision(b.bodies, d), decisionRecord)
	j.budget.spend(d.Agent, now, len(b.bodies)-before)
	if err := j.commit(b); err != nil {
		return err
	}
	d.Seq = b.first + uint64(at)
	return nil
}

// Outcome records what came of an allowed request. The record may wait for the
// next write, at most 200 ms; kill -9 may lose it, the decision stands. A
// denial needs no outcome. The error is [ErrClosed] or nil: while the journal
// cannot be written, outcomes are kept up to a bound, and a [Gap] counts what
// was lost.
func (j *Journal) Outcome(o *Outcome) error {
	if o.Time.IsZero() {
		o.Time = j.opt.Now()
	}
	if o.Plane == "" {
		o.Plane = j.opt.Plane
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	b := j.pending
	before := len(b.bodies)
	b.add(j.enc.outcome(b.bodies, o), keptRecord)
	j.budget.spend(o.Agent, j.opt.Now(), len(b.bodies)-before)
	j.mayWait(b)
	return nil
}

// Dial records that an upstream connection stands. It may wait and get lost as
// an outcome may, and so does its error mean the same.
func (j *Journal) Dial(d *Dial) error {
	if d.Time.IsZero() {
		d.Time = j.opt.Now()
	}
	if d.Plane == "" {
		d.Plane = j.opt.Plane
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	b := j.pending
	before := len(b.bodies)
	b.add(j.enc.dial(b.bodies, d), keptRecord)
	j.budget.spend(d.Agent, j.opt.Now(), len(b.bodies)-before)
	j.mayWait(b)
	return nil
}

// mayWait leaves the last record of b, which nobody waits for, to a later write.
func (j *Journal) mayWait(b *batch) {
	switch {
	case j.gap != nil:
		j.keep(b)
	case len(b.bodies) >= flushBytes && !j.writing:
		j.commit(b) // its failure is in the gap
	default:
		j.flushes.arm()
	}
}

// keep moves the last record of b to those that wait for the journal to work
// again, or counts it as lost.
func (j *Journal) keep(b *batch) {
	n := len(b.records) - 1
	start := 0
	if n > 0 {
		start = b.records[n-1].end
	}
	j.keepBody(b.bodies[start:])
	b.bodies, b.records = b.bodies[:start], b.records[:n]
}

func (j *Journal) keepBody(body []byte) {
	if len(j.kept.bodies)+len(body) > keepBytes {
		j.gap.Lost++
		return
	}
	j.kept.add(append(j.kept.bodies, body...), keptRecord)
}

// SyncNow returns when every record written before the call is on the disk, or
// could not be brought there: then the caller refuses.
func (j *Journal) SyncNow() error { return j.synced() }

// Close writes what waits, syncs and closes the files. It may be called again.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.flushes.stop()
	j.syncs.stop()
	j.summaries()
	// A write that ends a gap leaves what was kept to one more.
	var err error
	for err == nil && (len(j.pending.records) > 0 || j.gap != nil) {
		err = j.commit(j.pending)
	}
	for j.writing {
		j.done.Wait()
	}
	j.mu.Unlock()
	return errors.Join(err, j.w.close(), j.lock.Close())
}

// commit returns when b has been written or has failed. The first caller that
// finds nobody writing writes the pending batch for all who added to it. mu is
// held before and after, but not during a write.
func (j *Journal) commit(b *batch) error {
	for !b.done {
		if j.writing {
			j.done.Wait()
			continue
		}
		j.write()
	}
	return b.err
}

// write takes the pending batch and writes it. mu is held; nobody writes.
func (j *Journal) write() {
	b := j.pending
	j.pending = &batch{bodies: j.spare.bodies, records: j.spare.records}
	j.spare = batch{}
	if j.gap != nil {
		b.add(j.enc.gap(b.bodies, j.gapNow()), gapRecord)
	}
	j.writing = true
	j.mu.Unlock()
	err := j.w.append(b, j.opt.Now())
	j.mu.Lock()
	j.writing = false
	j.stats.wrote(b, j.opt.Now(), err)
	if err != nil {
		j.fault(b, err)
	} else {
		j.recovered()
	}
	b.done, b.err = true, err
	if cap(b.bodies) <= 2*flushBytes {
		j.spare = batch{bodies: b.bodies[:0], records: b.records[:0]}
	}
	b.bodies, b.records = nil, nil
	if !j.closed {
		j.syncs.arm()
	}
	j.done.Broadcast()
}

func (j *Journal) gapNow() *Gap {
	j.gap.Time = j.opt.Now()
	return j.gap
}

// fault keeps what nobody waits for and counts the rest.
func (j *Journal) fault(b *batch, err error) {
	if j.gap == nil {
		j.gap = &Gap{Plane: j.opt.Plane, From: j.opt.Now(), Error: err.Error()}
		j.opt.Log.Error("the journal cannot be written: refusing all requests", "plane", j.opt.Plane, "err", err)
	}
	start := 0
	for _, r := range b.records {
		switch r.kind {
		case decisionRecord:
			j.gap.Refused++
		case keptRecord:
			j.keepBody(b.bodies[start:r.end])
		}
		start = r.end
	}
	if !j.closed {
		j.flushes.arm() // tries again, also without traffic
	}
}

// recovered is called after each write that worked.
func (j *Journal) recovered() {
	if j.gap == nil {
		return
	}
	j.opt.Log.Info("the journal can be written again", "plane", j.opt.Plane, "refused", j.gap.Refused, "lost", j.gap.Lost)
	j.gap = nil
	// Others may have added to the pending batch and know their place in it:
	// what was kept goes behind.
	start := 0
	for _, r := range j.kept.records {
		j.pending.add(append(j.pending.bodies, j.kept.bodies[start:r.end]...), keptRecord)
		start = r.end
	}
	j.kept = new(batch)
	if len(j.pending.records) > 0 && !j.closed {
		j.flushes.arm()
	}
}

// onFlush writes outcomes that found no company.
func (j *Journal) onFlush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushes.fired()
	if b := j.pending; !j.closed && (len(b.records) > 0 || j.gap != nil) {
		j.commit(b)
	}
}

// onSync runs a second after the first record that was not synced.
func (j *Journal) onSync() {
	j.mu.Lock()
	j.syncs.fired()
	if j.closed {
		j.mu.Unlock()
		return
	}
	j.summaries()
	if b := j.pending; len(b.records) > 0 {
		j.commit(b)
	}
	j.mu.Unlock()
	if err := j.synced(); err != nil {
		j.opt.Log.Error("syncing the journal", "plane", j.opt.Plane, "err", err)
	}
}

// summaries adds the summaries that are due to the pending batch.
func (j *Journal) summaries() {
	now := j.opt.Now()
	for _, s := range j.budget.due() {
		s.Time, s.Plane = now, j.opt.Plane
		j.pending.add(j.enc.summary(j.pending.bodies, s), keptRecord)
	}
}

// add appends a record whose body ends bodies.
func (b *batch) add(bodies []byte, kind recordKind) {
	b.bodies = bodies
	b.records = append(b.records, mark{len(bodies), kind})
}

// A timer does something once, some time after each arming; to arm it again
// before then does nothing. The journal's mu guards it.
type timer struct {
	after time.Duration
	do    func()
	t     *time.Timer
	armed bool
}

func (t *timer) arm() {
	if t.armed {
		return
	}
	t.armed = true
	if t.t == nil {
		t.t = time.AfterFunc(t.after, t.do)
		return
	}
	t.t.Reset(t.after)
}

func (t *timer) fired() { t.armed = false }

func (t *timer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
}
