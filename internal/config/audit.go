// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Audit bounds how much of the record is kept: of each journal, and of the index.
type Audit struct {
	Keep    string `yaml:"keep"`     // days, such as 90d
	MaxSize string `yaml:"max_size"` // bytes with MB, GB or TB behind them
}

// The least that is kept: less would lose what has just happened.
const (
	minKeepDays = 1
	maxKeepDays = 36500
	minAudit    = 300e6
)

func (a Audit) validate() []error {
	var errs []error
	if _, err := parseDays(a.Keep); err != nil {
		errs = append(errs, fmt.Errorf("audit keep: %w", err))
	}
	if _, err := parseSize(a.MaxSize); err != nil {
		errs = append(errs, fmt.Errorf("audit max_size: %w", err))
	}
	return errs
}

// Bounds returns the age and the bytes of an Audit that [Parse] has taken.
func (a Audit) Bounds() (age time.Duration, size int64) {
	age, _ = parseDays(a.Keep)
	size, _ = parseSize(a.MaxSize)
	return age, size
}

func parseDays(s string) (time.Duration, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "d"))
	if err != nil || !strings.HasSuffix(s, "d") || n < minKeepDays || n > maxKeepDays {
		return 0, fmt.Errorf("%q is not %d to %d days, such as 90d", s, minKeepDays, maxKeepDays)
	}
	return time.Duration(n) * 24 * time.Hour, nil
}

func parseSize(s string) (int64, error) {
	for _, u := range []struct {
		unit  string
		bytes int64
	}{{"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}} {
		digits, ok := strings.CutSuffix(s, u.unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 16)
		if err == nil && n*u.bytes >= minAudit {
			return n * u.bytes, nil
		}
	}
	return 0, fmt.Errorf("%q is not a size from 300MB on, such as 20GB", s)
}
