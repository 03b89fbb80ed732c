// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Keep bounds how much of a series stays on the disk.
type Keep struct {
	Age  time.Duration // records younger than this stay, unless there are too many; 0: no bound
	Size int64         // bytes of all files; 0: no bound
}

// Prune deletes the oldest files of a series that are beyond a bound: whole
// files only, in front of the file named before, and never the newest. Before is
// how far whoever reads the journal is through with it; the empty name deletes
// nothing. It returns what it has deleted. The chain goes on: what is left begins
// with a higher number.
func Prune(dir, plane, before string, keep Keep, now time.Time) (deleted []string, err error) {
	limit, ok := parseFileName(before)
	if !ok || limit.plane != plane {
		return nil, nil
	}
	series, err := listSeries(dir)
	if err != nil {
		return nil, err
	}
	files := series[plane]
	sizes, total, err := sizesOf(dir, files)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(files)-1 && files[i].index < limit.index; i++ {
		tooMuch := keep.Size > 0 && total > keep.Size
		if !tooMuch && !tooOld(files[i+1], keep, now) {
			break
		}
		if err := os.Remove(filepath.Join(dir, files[i].String())); err != nil {
			return deleted, fmt.Errorf("deleting journal file: %w", err)
		}
		total -= sizes[i]
		deleted = append(deleted, files[i].String())
	}
	return deleted, nil
}

// tooOld reports whether everything in front of next is older than is kept: a
// file begins on the day in its name.
func tooOld(next fileName, keep Keep, now time.Time) bool {
	day, err := time.Parse(dayForm, next.day)
	return keep.Age > 0 && err == nil && day.Before(now.Add(-keep.Age).Truncate(24*time.Hour))
}

func sizesOf(dir string, files []fileName) (sizes []int64, total int64, err error) {
	for _, f := range files {
		info, err := os.Stat(filepath.Join(dir, f.String()))
		if err != nil {
			return nil, 0, fmt.Errorf("looking at journal file: %w", err)
		}
		sizes = append(sizes, info.Size())
		total += info.Size()
	}
	return sizes, total, nil
}
