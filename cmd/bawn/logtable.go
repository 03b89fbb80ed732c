// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/verdict"
)

// logTable prints entries in columns that grow with what is in them. What can be
// long comes last.
type logTable struct {
	out    io.Writer
	widths []int
	held   [][]string // rows that wait, so that the first are as wide as the rest
	most   int        // rows that may wait
	follow bool       // heads are printed again when a column has grown
	grown  bool
}

// heldRows is how many rows a table that is not followed looks ahead.
const heldRows = 500

// columns are the heads, and how wide they are from the beginning where nothing
// is known of what comes.
var columns = []struct {
	head  string
	width int
}{
	{"TIME", len(time.DateTime)}, {"AGENT", 10}, {"USER", 20}, {"VERDICT", 7}, {"CODE", longestCode()}, {"STATUS", 6}, {"UP", 8}, {"DOWN", 8}, {"WHAT", 0},
}

func newLogTable(out io.Writer, follow bool) *logTable {
	t := &logTable{out: out, widths: make([]int, len(columns)), follow: follow}
	if !follow {
		t.most = heldRows
	}
	for i, c := range columns {
		if follow {
			t.widths[i] = c.width
		}
	}
	t.hold(heads())
	t.grown = false
	return t
}

func heads() []string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.head
	}
	return list
}

func longestCode() (n int) {
	for _, e := range codes.Catalogue() {
		n = max(n, len(e.Code))
	}
	return n
}

// hold lets a row wait and makes room for it. Everything in it may be what an
// agent wrote.
func (t *logTable) hold(row []string) {
	for i := range row {
		row[i] = dash(row[i])
		n := utf8.RuneCountInString(row[i])
		t.grown = t.grown || n > t.widths[i] && i < len(row)-1 // nothing is behind the last
		t.widths[i] = max(t.widths[i], n)
	}
	t.held = append(t.held, row)
}

// add prints e, at once or when more is known of what comes.
func (t *logTable) add(e audit.Entry) error {
	if row := cells(e); row != nil {
		t.hold(row)
	}
	if len(t.held) > t.most {
		return t.flush()
	}
	return nil
}

// flush prints what waits.
func (t *logTable) flush() error {
	var b strings.Builder
	if t.follow && t.grown {
		t.held = append([][]string{heads()}, t.held...)
	}
	t.grown = false
	for _, row := range t.held {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	t.held = nil
	_, err := io.WriteString(t.out, b.String())
	return err
}

// cells gives an entry in the order of the columns.
func cells(e audit.Entry) []string {
	switch {
	case e.Decision != nil:
		return decisionCells(e)
	case e.Summary != nil:
		s := e.Summary
		return []string{clock(s.To), s.Agent, s.User, verdict.Deny.String(), "", "", "", "", fmt.Sprintf("%d more denials, beyond the record budget", s.Denials)}
	case e.Outcome != nil: // without its decision
		return lostCells(e)
	case e.Act != nil:
		return actCells(e)
	case e.Gap != nil:
		return []string{clock(e.Gap.From), "", "", "", "", "", "", "",
			fmt.Sprintf("the journal could not be written from here on: %s (%d requests refused)", e.Gap.Error, e.Gap.Refused)}
	case e.Damage != nil:
		return []string{"", "", "", "", "", "", "", "", fmt.Sprintf("damaged line in %s at byte %d: %s", e.Damage.File, e.Damage.Offset, e.Damage.Error)}
	}
	return nil
}

func lostCells(e audit.Entry) []string {
	row := decisionCells(audit.Entry{Decision: &audit.Decision{Time: e.Outcome.Time, Identity: e.Outcome.Identity}, Outcome: e.Outcome})
	row[3], row[8] = "", strings.TrimSpace("(request "+e.Outcome.Request+": "+e.Lost+")"+row[8])
	return row
}

// actCells gives what an operator did.
func actCells(e audit.Entry) []string {
	last := e.Act
	if e.Result != nil {
		last = e.Result
	}
	by := last.Account
	if by == "" {
		by = fmt.Sprintf("uid %d", last.UID)
	}
	what := strings.Join(strings.Fields(string(last.Name)+" "+last.Object), " ") + " by " + by
	if last.Error != "" {
		what += " (" + strings.ReplaceAll(last.Error, "\n", "; ") + ")"
	}
	return []string{clock(e.Act.Time), last.Agent, last.User, string(last.Result), string(last.Code), "", "", "", what}
}

// ended stands for the verdict where a request comes a second time, with its
// outcome.
const ended = "ended"

func decisionCells(e audit.Entry) []string {
	d, o := e.Decision, e.Outcome
	row := []string{clock(d.Time), d.Agent, d.User, d.Verdict.String(), string(d.Code), "", "", "", what(d)}
	if d.Credential != "" {
		row[8] += " (credential: " + d.Credential + ")"
	}
	if o == nil {
		return row
	}
	if e.Late {
		row[0], row[3] = clock(o.Time), ended
	}
	if d.Code == "" {
		row[4] = string(o.Code)
	}
	if o.Status != 0 {
		row[5] = strconv.Itoa(o.Status)
	}
	row[6], row[7] = strconv.FormatInt(o.BytesUp, 10), strconv.FormatInt(o.BytesDown, 10)
	if o.Cut != "" {
		row[8] += " (cut: " + o.Cut + ")"
	}
	if o.Error != "" {
		row[8] += " (" + strings.ReplaceAll(o.Error, "\n", "; ") + ")"
	}
	return row
}

func clock(t time.Time) string { return t.Local().Format(time.DateTime) }

// what says what was asked for: "GET https://host/path", "dns TXT name",
// "CONNECT host:port", "tcp address:port".
func what(d *audit.Decision) string {
	host := d.Host
	switch {
	case host == "":
		host = d.Asked // as the agent wrote it, port and all
	case d.Port != 0 && d.Port != 443 && (d.Port != 80 || d.Scheme != "http"):
		host += ":" + strconv.Itoa(int(d.Port))
	}
	switch {
	case d.Proto == "dns":
		return strings.TrimSpace("dns " + dnsType(d.Method) + " " + host)
	case d.Method == "CONNECT":
		return "CONNECT " + host
	case d.Method == "" || d.Scheme == "":
		return strings.TrimSpace(strings.Join([]string{d.Method, d.Proto, host}, " "))
	}
	if d.Message != 0 {
		return "message " + strconv.FormatInt(d.Message, 10) + " on " + d.Scheme + "://" + host + d.Path
	}
	return d.Method + " " + d.Scheme + "://" + host + d.Path
}

// dnsType names the types that a tunnel likes, which the record has in the form
// of RFC 3597.
func dnsType(t string) string {
	known := map[string]string{"TYPE2": "NS", "TYPE10": "NULL", "TYPE12": "PTR", "TYPE15": "MX", "TYPE16": "TXT", "TYPE33": "SRV", "TYPE255": "ANY"}
	if name := known[t]; name != "" {
		return name
	}
	return t
}
