// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"bawn/internal/casetest/talk"
	"bawn/internal/codes"
)

// A Verdict is what came of one request, message or question, or of a connection
// without any.
type Verdict struct {
	Verdict string     `json:"verdict"` // allow, deny, nodata, or close of a WebSocket
	Code    codes.Code `json:"code"`
	Stage   string     `json:"stage"`
	Rule    string     `json:"rule"`
	Status  int        `json:"status,omitempty"` // of a close frame
	detail  string
	late    bool // it was allowed first
}

// String gives verdict and code as a want line does.
func (v Verdict) String() string {
	words := []string{v.Verdict}
	if v.Code != "" {
		words = append(words, string(v.Code))
	}
	if v.Status != 0 {
		words = append(words, strconv.Itoa(v.Status))
	}
	return strings.Join(words, " ")
}

// meets reports whether v is what a line wants. A message that policy refuses is
// denied by closing its WebSocket, and may be called either.
func (v Verdict) meets(w Want) bool {
	kind := v.Verdict == w.Verdict || v.Verdict == "close" && v.Status == 1008 && w.Verdict == "deny"
	return kind && (w.Code == "" || w.Code == v.Code) && (w.Status == "" || w.Status == strconv.Itoa(v.Status))
}

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
	Recorded  int       `json:"-"`   // of the results, those that are on record one by one
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
		if got.meets(w) {
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
// text is quoted. Messages follow, a line each.
func shown(requests [][]byte, messages []talk.Message) string {
	var b strings.Builder
	for _, raw := range requests {
		if text := string(raw); utf8.ValidString(text) && !strings.ContainsFunc(text, unreadable) {
			b.WriteString(strings.ReplaceAll(text, "\r\n", "\n"))
		} else {
			b.WriteString(strconv.Quote(text) + "\n")
		}
	}
	for _, m := range messages {
		b.WriteString(m.Notation() + "\n")
	}
	return b.String()
}

func unreadable(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f }
