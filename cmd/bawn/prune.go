// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"bawn/internal/audit"
	"bawn/internal/config"
)

// A pruner deletes the old files of a plane's own journal, as far as admin is
// through with them: nobody else may write in that directory.
type pruner struct {
	dir     string
	keep    audit.Keep
	log     *slog.Logger
	through atomic.Pointer[map[string]string] // by series, as admin said last
}

// pruneEvery is how often old files are looked for.
const pruneEvery = time.Minute

func newPruner(dir string, a config.Audit, log *slog.Logger) *pruner {
	age, size := a.Bounds()
	return &pruner{dir: dir, keep: audit.Keep{Age: age, Size: size}, log: log}
}

func (p *pruner) hear(through map[string]string) { p.through.Store(&through) }

// run deletes what is too old until ctx is done.
func (p *pruner) run(ctx context.Context) error {
	for {
		if t := p.through.Load(); t != nil {
			p.prune(*t, time.Now())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pruneEvery):
		}
	}
}

func (p *pruner) prune(through map[string]string, now time.Time) {
	for plane, before := range through {
		gone, err := audit.Prune(p.dir, plane, before, p.keep, now)
		for _, name := range gone {
			p.log.Info("an old file of the journal is deleted; it is indexed and covered", "file", name)
		}
		if err != nil {
			p.log.Error("old files of the journal cannot be deleted", "error", err)
		}
	}
}
