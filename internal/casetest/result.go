// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"bawn/internal/codes"
)

// A Verdict is what came of one request, or of a connection without requests.
type Verdict struct {
	Verdict string     `json:"verdict"` // allow or deny
	Code    codes.Code `json:"code"`
	Stage   string     `json:"stage"`
	Rule    string     `json:"rule"`
	detail  string
}

// String gives verdict and code as a want line does.
func (v Verdict) String() string { return strings.TrimSpace(v.Verdict + " " + string(v.Code)) }

// A Result is what came of a case. Its JSON form is what "policy test -json"
// prints.
type Result struct {
	File      string    `json:"file"`
	Agent     string    `json:"agent"`
	Results   []Verdict `json:"results"`
	Forwarded string    `json:"forwarded"`
	Wanted    []string  `json:"wanted"`
	OK        bool      `json:"ok"`
	Why       string    `json:"why"` // why it is not OK; empty when it is
}

// fail makes r a failure and keeps the first reason.
func (r *Result) fail(format string, args ...any) {
	if r.OK || r.Why == "" {
		r.Why = fmt.Sprintf(format, args...)
	}
	r.OK = false
}

// compare holds the verdicts against the want section.
func (r *Result) compare(wants []Want) {
	if len(r.Results) != len(wants) {
		r.fail("%d verdicts were wanted, %d were given: %s", len(wants), len(r.Results), r.said())
		return
	}
	for i, w := range wants {
		got := r.Results[i]
		if got.Verdict == w.Verdict && (w.Code == "" || got.Code == w.Code) {
			continue
		}
		detail := ""
		if got.detail != "" {
			detail = " (" + got.detail + ")"
		}
		r.fail("verdict %d: wanted %s, got %s%s", i+1, w, got, detail)
		return
	}
}

// said lists the verdicts.
func (r *Result) said() string {
	list := make([]string, len(r.Results))
	for i, v := range r.Results {
		list[i] = v.String()
	}
	return strings.Join(list, ", ")
}

// shown gives the bytes that went up in the notation of requests; what is not
// text is quoted.
func shown(requests [][]byte) string {
	var b strings.Builder
	for _, raw := range requests {
		if text := string(raw); utf8.ValidString(text) && !strings.ContainsFunc(text, unreadable) {
			b.WriteString(strings.ReplaceAll(text, "\r\n", "\n"))
		} else {
			b.WriteString(strconv.Quote(text) + "\n")
		}
	}
	return b.String()
}

func unreadable(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f }
