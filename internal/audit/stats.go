// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import "time"

// Stats is what a journal says of itself.
type Stats struct {
	Records   uint64 // written since it was opened
	Bytes     uint64 // likewise, without what the chain adds
	Errors    uint64 // writes and syncs that failed
	Available bool   // the last write worked
	Waiting   int    // records that are not written yet
	Unsynced  time.Duration
}

// stats are the counts behind Stats. The journal's mu guards them.
type stats struct {
	records, bytes, errors uint64
	dirty                  time.Time // of the oldest write that is not on the disk; zero: there is none
}

// wrote counts a write.
func (s *stats) wrote(b *batch, now time.Time, err error) {
	if err != nil {
		s.errors++
		return
	}
	s.records += uint64(len(b.records))
	s.bytes += uint64(len(b.bodies))
	if s.dirty.IsZero() {
		s.dirty = now
	}
}

// Stats returns the state of the journal.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Stats{
		Records: j.stats.records, Bytes: j.stats.bytes, Errors: j.stats.errors, Available: j.gap == nil && !j.closed,
		Waiting: len(j.pending.records) + len(j.kept.records),
	}
	if !j.stats.dirty.IsZero() {
		s.Unsynced = max(0, j.opt.Now().Sub(j.stats.dirty))
	}
	return s
}

// synced runs a sync and counts what came of it.
func (j *Journal) synced() error {
	j.mu.Lock()
	before := j.stats.dirty
	j.mu.Unlock()
	err := j.w.sync()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil:
		j.stats.errors++
	case j.stats.dirty.Equal(before):
		j.stats.dirty = time.Time{} // what was written meanwhile shows a second later
	}
	return err
}
