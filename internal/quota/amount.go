// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxLimit bounds every budget, so that adding to a count never overflows.
const MaxLimit = 1 << 56

// MaxNames bounds a budget of names, each of which is remembered.
const MaxNames = 100_000

var errForm = errors.New("wants NUMBER[UNIT]/PERIOD, such as 500MB/day or 600/min")

// The units of octets, each a multiple of the one before among its own kind.
var units = []struct {
	name string
	size int64
}{
	{"B", 1},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"kiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
}

// Parse reads the value of a budget: "500MB/day", "600/min", "256".
func Parse(w What, text string) (limit int64, per Period, err error) {
	number, period, has := strings.Cut(text, "/")
	if has == (w == Connections) {
		if has {
			return 0, 0, errors.New("wants a number: connections are counted at a time")
		}
		return 0, 0, errForm
	}
	if has {
		if per, has = ParsePeriod(period); !has {
			return 0, 0, fmt.Errorf("%q is no period: write s, min, h or day", period)
		}
	}
	if w == Names && per < Hour {
		return 0, 0, errors.New("names are counted by the hour or the day")
	}
	if limit, err = parseAmount(w, number); err != nil {
		return 0, 0, err
	}
	return limit, per, nil
}

// ParseUsed reads how much was used: an amount without a period, or nothing.
func ParseUsed(w What, text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	return parseAmount(w, text)
}

func parseAmount(w What, number string) (int64, error) {
	size := int64(1)
	if w.Bytes() {
		digits := strings.TrimRight(number, "kMGTiB")
		unit := number[len(digits):]
		if size = sizeOf(unit); size == 0 {
			return 0, fmt.Errorf("%q is no unit of bytes: write B, kB, MB, GB, TB, or kiB, MiB, GiB, TiB", unit)
		}
		number = digits
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != number {
		return 0, errForm
	}
	most := int64(MaxLimit)
	if w == Names {
		most = MaxNames
	}
	if n > most/size {
		return 0, fmt.Errorf("more than the largest budget, %s", amount(w, most))
	}
	return n * size, nil
}

func sizeOf(unit string) int64 {
	for _, u := range units {
		if u.name == unit {
			return u.size
		}
	}
	return 0
}

// amount writes a number so that [Parse] reads it again, in the largest unit that
// leaves it whole.
func amount(w What, n int64) string {
	if !w.Bytes() {
		return strconv.FormatInt(n, 10)
	}
	best := units[0]
	for _, u := range units {
		if n != 0 && n%u.size == 0 && u.size > best.size {
			best = u
		}
	}
	return strconv.FormatInt(n/best.size, 10) + best.name
}

// Show writes a number for people: octets in the largest unit of which there is
// one, with a digit behind the point.
func Show(w What, n int64) string {
	if !w.Bytes() {
		return strconv.FormatInt(n, 10)
	}
	for i := 4; i > 0; i-- {
		if u := units[i]; n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
