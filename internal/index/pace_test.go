// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"testing"
	"time"
)

func TestTheIndexWaitsForTheTraffic(t *testing.T) {
	for _, c := range []struct {
		took  time.Duration
		idle  float64
		asked bool
		want  time.Duration
	}{
		{time.Second / 2, 1, false, 0},
		{time.Second / 2, idleEnough, false, 0},
		{time.Second / 2, 0.1, false, 4500 * time.Millisecond},
		{time.Second / 2, 0.1, true, 0},
		{time.Millisecond, 0, false, 9 * time.Millisecond},
		{time.Minute, 0, false, longestPut},
	} {
		if got := rest(c.took, c.idle, c.asked); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestProcessors(t *testing.T) {
	texts := []string{
		"cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n", // since the start: 8 of 10
		"cpu  190 0 100 705 105 0 0 0 0 0\n",             // 10 of 100
		"cpu  190 0 100 705 105 0 0 0 0 0\n",             // no tick
		"cpu  1 0 1 1 1 0 0 0 0 0\n",                     // it went back
		"cpu  x\n", "",
	}
	p := processors{read: func() ([]byte, error) {
		if len(texts) == 0 {
			return nil, errors.New("no such file")
		}
		text := texts[0]
		texts = texts[1:]
		return []byte(text), nil
	}}
	for i, want := range []float64{0.8, 0.1, 1, 1, 1, 1, 1} {
		if got := p.unused(); got != want {
			t.Errorf("reading %d: %v, want %v", i, got, want)
		}
	}
	host := hostProcessors()
	if idle := host.unused(); idle <= 0 || idle >= 1 {
		t.Errorf("this host: %v", idle)
	}
}

func FuzzTimes(f *testing.F) {
	f.Add([]byte("cpu  100 0 100 700 100 0 0 0 0 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		idle, all, ok := times(text)
		if !ok && (idle != 0 || all != 0) {
			t.Errorf("%d, %d of what is no such line", idle, all)
		}
	})
}
