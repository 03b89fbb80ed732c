// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"bawn/internal/apitype"
)

// ContentType is that of what [Write] returns.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write gives samples in the text format of Prometheus, version 0.0.4. Those that
// [Check] refuses are left out; of two of one series the last counts.
func Write(samples []apitype.Sample) []byte {
	of := map[string]map[string]apitype.Sample{}
	for _, s := range samples {
		if Check(s) != nil {
			continue
		}
		if of[s.Name] == nil {
			of[s.Name] = map[string]apitype.Sample{}
		}
		of[s.Name][strings.Join(s.Labels, "\x00")] = s
	}
	var b bytes.Buffer
	for i := range families {
		f := &families[i]
		if len(of[f.Name]) == 0 {
			continue
		}
		b.WriteString("# HELP " + f.Name + " " + f.Help + "\n# TYPE " + f.Name + " " + string(f.Kind) + "\n")
		var keys []string
		for k := range of[f.Name] {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			f.write(&b, of[f.Name][k])
		}
	}
	return b.Bytes()
}

func (f *Family) write(b *bytes.Buffer, s apitype.Sample) {
	if f.Kind != Histogram {
		b.WriteString(f.Name + f.labels(s.Labels, "") + " " + number(s.Value) + "\n")
		return
	}
	sum := uint64(0)
	for i, n := range s.Buckets {
		sum += n
		le := "+Inf"
		if i < len(buckets) {
			le = number(buckets[i])
		}
		b.WriteString(f.Name + "_bucket" + f.labels(s.Labels, le) + " " + strconv.FormatUint(sum, 10) + "\n")
	}
	b.WriteString(f.Name + "_sum" + f.labels(s.Labels, "") + " " + number(s.Value) + "\n")
	b.WriteString(f.Name + "_count" + f.labels(s.Labels, "") + " " + strconv.FormatUint(sum, 10) + "\n")
}

// labels writes the labels of a series. Values are of closed sets of plain words,
// so that none needs an escape.
func (f *Family) labels(values []string, le string) string {
	var parts []string
	for i, l := range f.Labels {
		parts = append(parts, l.Name+`="`+values[i]+`"`)
	}
	if le != "" {
		parts = append(parts, `le="`+le+`"`)
	}
	if parts == nil {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
