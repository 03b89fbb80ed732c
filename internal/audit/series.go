// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A fileName is the name of one file of a series, taken apart.
type fileName struct {
	plane string
	index uint64
	day   string // 20060102, UTC, of the first record
}

var (
	fileForm  = regexp.MustCompile(`^([a-z][a-z0-9]*)-(\d{9})-(\d{8})\.jsonl$`)
	planeForm = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
)

const dayForm = "20060102"

func (n fileName) String() string {
	return fmt.Sprintf("%s-%09d-%s.jsonl", n.plane, n.index, n.day)
}

func parseFileName(s string) (fileName, bool) {
	m := fileForm.FindStringSubmatch(s)
	if m == nil {
		return fileName{}, false
	}
	index, err := strconv.ParseUint(m[2], 10, 64)
	if err != nil || index == 0 {
		return fileName{}, false
	}
	return fileName{m[1], index, m[3]}, true
}

// listSeries returns the files of each plane's series in dir, oldest first.
// Other files are left out. A series with two files of one number is an error.
func listSeries(dir string) (map[string][]fileName, error) {
	series, twice, err := readSeries(dir)
	if err == nil && len(twice) > 0 {
		return nil, fmt.Errorf("journal %s: files %s and %s have one number", dir, twice[0], twice[1])
	}
	return series, err
}

// readSeries is [listSeries] that goes on where two files of a series have one
// number, and names the first two that do.
func readSeries(dir string) (_ map[string][]fileName, twice []fileName, _ error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("listing journal: %w", err)
	}
	series := make(map[string][]fileName)
	for _, e := range entries {
		if n, ok := parseFileName(e.Name()); ok && e.Type().IsRegular() {
			series[n.plane] = append(series[n.plane], n)
		}
	}
	for _, files := range series {
		slices.SortFunc(files, func(a, b fileName) int {
			if a.index != b.index {
				return int(int64(a.index) - int64(b.index))
			}
			return strings.Compare(a.day, b.day)
		})
		for i := 1; i < len(files); i++ {
			if files[i].index == files[i-1].index && twice == nil {
				twice = files[i-1 : i+1]
			}
		}
	}
	return series, twice, nil
}

// dayNumber counts the days of UTC since 1970: cheaper to compare than text.
func dayNumber(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

func dayOf(t time.Time) string { return t.UTC().Format(dayForm) }
