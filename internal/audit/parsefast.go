// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/hex"
	"time"

	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// parseFast reads a decision or an outcome in the form in which the journal writes
// it, which is what nearly all lines are, at a fraction of what encoding/json
// takes. It reports false for whatever else, or if in doubt: then encoding/json
// reads the line, and decides.
func parseFast(line []byte) (rec Record, ok bool) {
	const decision, outcome = `{"v":1,"kind":"decision"`, `{"v":1,"kind":"outcome"`
	p := fastParser{}
	switch {
	case bytes.HasPrefix(line, []byte(decision)):
		rec.Decision = &Decision{}
		p.rest = line[len(decision):]
		ok = p.members(func(key []byte) { p.decision(rec.Decision, key) })
		rec.Seq = rec.Decision.Seq
	case bytes.HasPrefix(line, []byte(outcome)):
		rec.Outcome = &Outcome{}
		p.rest = line[len(outcome):]
		ok = p.members(func(key []byte) { p.outcome(rec.Outcome, key) })
		rec.Seq = rec.Outcome.Seq
	}
	rec.Prev = p.prev
	return rec, ok && p.linked
}

// A fastParser is somewhere in a line. Once it is lost it stays so.
type fastParser struct {
	rest   []byte
	lost   bool
	prev   [32]byte
	linked bool // prev was there
}

// members reads what is between the first member and the closing brace.
func (p *fastParser) members(member func(key []byte)) bool {
	for !p.lost {
		if len(p.rest) == 1 && p.rest[0] == '}' {
			return true
		}
		if !p.skip(',') {
			return false
		}
		key := p.quoted()
		if !p.skip(':') {
			return false
		}
		member(key)
	}
	return false
}

func (p *fastParser) skip(c byte) bool {
	if p.lost || len(p.rest) == 0 || p.rest[0] != c {
		p.lost = true
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// quoted reads a string of plain ASCII without escapes.
func (p *fastParser) quoted() []byte {
	if !p.skip('"') {
		return nil
	}
	for i, c := range p.rest {
		switch {
		case c == '"':
			s := p.rest[:i]
			p.rest = p.rest[i+1:]
			return s
		case c == '\\' || c < 0x20 || c >= 0x80:
			p.lost = true
			return nil
		}
	}
	p.lost = true
	return nil
}

func (p *fastParser) text() string { return string(p.quoted()) }

// number reads a number from 0 to most without sign, fraction or exponent.
func (p *fastParser) number(most uint64) uint64 {
	var n uint64
	i := 0
	for ; i < len(p.rest) && i < 18 && p.rest[i] >= '0' && p.rest[i] <= '9'; i++ {
		n = n*10 + uint64(p.rest[i]-'0')
	}
	if i == 0 || i > 1 && p.rest[0] == '0' || n > most || i == len(p.rest) || p.rest[i] != ',' && p.rest[i] != '}' {
		p.lost = true
		return 0
	}
	p.rest = p.rest[i:]
	return n
}

const (
	mostInt  = 1<<31 - 1
	mostLong = 1<<63 - 1
)

// span reads whole microseconds, as many as a Span can hold.
func (p *fastParser) span() Span {
	return Span(time.Duration(p.number(mostLong/1000)) * time.Microsecond)
}

func (p *fastParser) yes() bool {
	if !bytes.HasPrefix(p.rest, []byte("true")) {
		p.lost = true
		return false
	}
	p.rest = p.rest[len("true"):]
	return true
}

// time reads the form that the encoder writes, with six digits of fraction.
func (p *fastParser) time() time.Time {
	s := p.quoted()
	const form = "2006-01-02T15:04:05.000000Z"
	if len(s) != len(form) || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[19] != '.' || s[26] != 'Z' {
		p.lost = true
		return time.Time{}
	}
	year, month, day := p.digits(s[0:4]), p.digits(s[5:7]), p.digits(s[8:10])
	hour, minute, second, micros := p.digits(s[11:13]), p.digits(s[14:16]), p.digits(s[17:19]), p.digits(s[20:26])
	if month < 1 || month > 12 || day < 1 || day > 28 && day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		p.lost = true
		return time.Time{}
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, micros*1000, time.UTC)
}

func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func (p *fastParser) digits(s []byte) (n int) {
	for _, c := range s {
		if c < '0' || c > '9' {
			p.lost = true
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func (p *fastParser) generation() (g ids.Generation) {
	if g.UnmarshalText(p.quoted()) != nil {
		p.lost = true
	}
	return g
}

func (p *fastParser) effect() (e verdict.Effect) {
	if e.UnmarshalText(p.quoted()) != nil {
		p.lost = true
	}
	return e
}

// common reads the members that both kinds have.
func (p *fastParser) common(key []byte, seq *uint64, at *time.Time, request *string, id *ids.Identity, revision *uint64, plane *string) bool {
	switch string(key) {
	case "seq":
		*seq = p.number(mostLong)
	case "prev":
		s := p.quoted()
		n, err := 0, error(nil)
		if len(s) == 2*len(p.prev) {
			n, err = hex.Decode(p.prev[:], s)
		}
		p.linked = err == nil && n == len(p.prev)
		p.lost = p.lost || !p.linked
	case "time":
		*at = p.time()
	case "request":
		*request = p.text()
	case "slot":
		id.Slot = int(p.number(mostInt))
	case "gen":
		id.Gen = p.generation()
	case "session":
		id.Session = p.text()
	case "agent":
		id.Agent = p.text()
	case "user":
		id.User = p.text()
	case "revision":
		*revision = p.number(mostLong)
	case "plane":
		*plane = p.text()
	default:
		return false
	}
	return true
}

func (p *fastParser) decision(d *Decision, key []byte) {
	if p.common(key, &d.Seq, &d.Time, &d.Request, &d.Identity, &d.Revision, &d.Plane) {
		return
	}
	switch string(key) {
	case "message":
		d.Message = int64(p.number(mostLong))
	case "arrival":
		d.Arrival = p.text()
	case "client":
		d.Client = p.text()
	case "proto":
		d.Proto = p.text()
	case "method":
		d.Method = p.text()
	case "scheme":
		d.Scheme = p.text()
	case "asked":
		d.Asked = p.text()
	case "host":
		d.Host = p.text()
	case "port":
		d.Port = uint16(p.number(1<<16 - 1))
	case "sni":
		d.SNI = p.text()
	case "alpn":
		d.ALPN = p.text()
	case "path":
		d.Path = p.text()
	case "query":
		d.Query = p.text()
	case "verdict":
		d.Verdict = p.effect()
	case "code":
		d.Code = codes.Code(p.text())
	case "stage":
		d.Stage = p.text()
	case "rule":
		d.Rule = p.text()
	case "inspect":
		d.Inspect = p.text()
	case "detail":
		d.Detail = p.text()
	case "sensitive":
		d.Sensitive = p.yes()
	case "credential":
		d.Credential = p.text()
	case "vetted":
		d.Vetted = p.text()
	case "clipped":
		d.Clipped = p.yes()
	default:
		p.lost = true
	}
}

func (p *fastParser) outcome(o *Outcome, key []byte) {
	if p.common(key, &o.Seq, &o.Time, &o.Request, &o.Identity, &o.Revision, &o.Plane) {
		return
	}
	switch string(key) {
	case "status":
		o.Status = int(p.number(mostInt))
	case "bytes_up":
		o.BytesUp = int64(p.number(mostLong))
	case "bytes_down":
		o.BytesDown = int64(p.number(mostLong))
	case "messages_up":
		o.MessagesUp = int64(p.number(mostLong))
	case "messages_down":
		o.MessagesDown = int64(p.number(mostLong))
	case "close":
		o.Close = int(p.number(mostInt))
	case "upstream":
		o.Upstream = p.text()
	case "local":
		o.Local = p.text()
	case "reused":
		o.Reused = p.yes()
	case "presented":
		o.Presented = p.text()
	case "certificate":
		o.Certificate = p.text()
	case "queue_us":
		o.Queue = p.span()
	case "dns_us":
		o.DNS = p.span()
	case "dial_us":
		o.Dial = p.span()
	case "tls_us":
		o.TLS = p.span()
	case "ttfb_us":
		o.TTFB = p.span()
	case "total_us":
		o.Total = p.span()
	case "code":
		o.Code = codes.Code(p.text())
	case "error":
		o.Error = p.text()
	case "cut":
		o.Cut = p.text()
	case "clipped":
		o.Clipped = p.yes()
	default:
		p.lost = true
	}
}
