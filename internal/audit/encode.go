// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/hex"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"bawn/internal/ids"
)

// Bounds of strings in records, in bytes. The line bound leaves room for every
// field at its bound with each byte escaped six-fold, so that what the journal
// writes the reader always takes.
const (
	maxPath  = 16 << 10
	maxText  = 1 << 10
	maxLine  = 256 << 10
	maxCodes = 64 // codes in one summary
)

// An encoder appends record bodies: everything but "seq" and "prev", which
// [chain] adds when the record's place is known. It keeps the text of the
// current second, since formatting time is the dearest part.
type encoder struct {
	second  int64
	text    []byte // "2006-01-02T15:04:05"
	clipped bool
}

const secondForm = "2006-01-02T15:04:05"

// time appends t as RFC 3339 in UTC with exactly six digits of fraction.
func (e *encoder) time(b []byte, t time.Time) []byte {
	if s := t.Unix(); s != e.second || e.text == nil {
		e.second = s
		e.text = t.UTC().AppendFormat(e.text[:0], secondForm)
	}
	b = append(b, '"')
	b = append(b, e.text...)
	b = append(b, '.')
	us := t.Nanosecond() / 1000
	for div := 100000; div > 0; div /= 10 {
		b = append(b, byte('0'+us/div%10))
	}
	return append(b, 'Z', '"')
}

func (e *encoder) begin(b []byte, kind string, t time.Time) []byte {
	e.clipped = false
	b = append(b, `{"v":1,"kind":"`...)
	b = append(b, kind...)
	b = append(b, `","time":`...)
	return e.time(b, t)
}

func (e *encoder) identity(b []byte, id *ids.Identity) []byte {
	b = append(b, `,"slot":`...)
	b = strconv.AppendInt(b, int64(id.Slot), 10)
	b = append(b, `,"gen":"`...)
	b = strconv.AppendUint(b, id.Gen.Epoch, 10)
	b = append(b, '.')
	b = strconv.AppendUint(b, id.Gen.Count, 10)
	b = append(b, `","session":`...)
	b = e.text1k(b, id.Session)
	b = append(b, `,"agent":`...)
	b = e.text1k(b, id.Agent)
	b = append(b, `,"user":`...)
	return e.text1k(b, id.User)
}

// text1k appends s as a JSON string, cut at maxText.
func (e *encoder) text1k(b []byte, s string) []byte { return appendString(b, e.clip(s, maxText)) }

// field appends a member whose key holds its own comma, quotes and colon;
// nothing for the empty string.
func (e *encoder) field(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	b = append(b, key...)
	return e.text1k(b, s)
}

func number[T int | int64 | uint16 | uint64](b []byte, key string, n T) []byte {
	if n == 0 {
		return b
	}
	b = append(b, key...)
	if n < 0 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

func span(b []byte, key string, s Span) []byte {
	if s == 0 {
		return b
	}
	b = append(b, key...)
	return strconv.AppendInt(b, time.Duration(s).Microseconds(), 10)
}

// clip cuts s at limit, between characters.
func (e *encoder) clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	e.clipped = true
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

func (e *encoder) end(b []byte, clipped bool) []byte {
	if e.clipped || clipped {
		b = append(b, `,"clipped":true`...)
	}
	return b
}

func (e *encoder) decision(b []byte, d *Decision) []byte {
	b = e.begin(b, KindDecision, d.Time)
	b = append(b, `,"request":`...)
	b = e.text1k(b, d.Request)
	b = number(b, `,"message":`, d.Message)
	b = e.identity(b, &d.Identity)
	b = append(b, `,"revision":`...)
	b = strconv.AppendUint(b, d.Revision, 10)
	b = append(b, `,"plane":`...)
	b = e.text1k(b, d.Plane)
	b = e.field(b, `,"arrival":`, d.Arrival)
	b = e.field(b, `,"client":`, d.Client)
	b = e.field(b, `,"proto":`, d.Proto)
	b = e.field(b, `,"method":`, d.Method)
	b = e.field(b, `,"scheme":`, d.Scheme)
	b = e.field(b, `,"asked":`, d.Asked)
	b = e.field(b, `,"host":`, d.Host)
	b = number(b, `,"port":`, d.Port)
	b = e.field(b, `,"sni":`, d.SNI)
	b = e.field(b, `,"alpn":`, d.ALPN)
	if d.Path != "" {
		b = append(b, `,"path":`...)
		b = appendString(b, e.clip(d.Path, maxPath))
	}
	b = e.field(b, `,"query":`, d.Query)
	b = append(b, `,"verdict":"`...)
	b = append(b, d.Verdict.String()...)
	b = append(b, '"')
	b = e.field(b, `,"code":`, string(d.Code))
	b = e.field(b, `,"stage":`, d.Stage)
	b = e.field(b, `,"rule":`, d.Rule)
	b = e.field(b, `,"inspect":`, d.Inspect)
	b = e.field(b, `,"detail":`, d.Detail)
	if d.Sensitive {
		b = append(b, `,"sensitive":true`...)
	}
	b = e.field(b, `,"credential":`, d.Credential)
	b = e.field(b, `,"vetted":`, d.Vetted)
	return e.end(b, d.Clipped)
}

func (e *encoder) outcome(b []byte, o *Outcome) []byte {
	b = e.begin(b, KindOutcome, o.Time)
	b = append(b, `,"request":`...)
	b = e.text1k(b, o.Request)
	b = e.identity(b, &o.Identity)
	b = append(b, `,"revision":`...)
	b = strconv.AppendUint(b, o.Revision, 10)
	b = append(b, `,"plane":`...)
	b = e.text1k(b, o.Plane)
	b = number(b, `,"status":`, o.Status)
	b = number(b, `,"bytes_up":`, o.BytesUp)
	b = number(b, `,"bytes_down":`, o.BytesDown)
	b = number(b, `,"messages_up":`, o.MessagesUp)
	b = number(b, `,"messages_down":`, o.MessagesDown)
	b = number(b, `,"close":`, o.Close)
	b = e.field(b, `,"upstream":`, o.Upstream)
	b = e.field(b, `,"local":`, o.Local)
	if o.Reused {
		b = append(b, `,"reused":true`...)
	}
	b = e.field(b, `,"presented":`, o.Presented)
	b = e.field(b, `,"certificate":`, o.Certificate)
	b = span(b, `,"queue_us":`, o.Queue)
	b = span(b, `,"dns_us":`, o.DNS)
	b = span(b, `,"dial_us":`, o.Dial)
	b = span(b, `,"tls_us":`, o.TLS)
	b = span(b, `,"ttfb_us":`, o.TTFB)
	b = span(b, `,"total_us":`, o.Total)
	b = e.field(b, `,"code":`, string(o.Code))
	b = e.field(b, `,"error":`, o.Error)
	b = e.field(b, `,"cut":`, o.Cut)
	return e.end(b, o.Clipped)
}

func (e *encoder) dial(b []byte, d *Dial) []byte {
	b = e.begin(b, KindDial, d.Time)
	b = append(b, `,"request":`...)
	b = e.text1k(b, d.Request)
	b = e.identity(b, &d.Identity)
	b = append(b, `,"plane":`...)
	b = e.text1k(b, d.Plane)
	b = append(b, `,"local":`...)
	b = e.text1k(b, d.Local)
	b = append(b, `,"upstream":`...)
	return e.text1k(b, d.Upstream)
}

func (e *encoder) summary(b []byte, s *Summary) []byte {
	b = e.begin(b, KindSummary, s.Time)
	b = e.identity(b, &s.Identity)
	b = append(b, `,"revision":`...)
	b = strconv.AppendUint(b, s.Revision, 10)
	b = append(b, `,"plane":`...)
	b = e.text1k(b, s.Plane)
	// From and To often fall in other seconds than Time: not worth the cache.
	b = append(b, `,"from":`...)
	b = e.time(b, s.From)
	b = append(b, `,"to":`...)
	b = e.time(b, s.To)
	b = append(b, `,"denials":`...)
	b = strconv.AppendUint(b, s.Denials, 10)
	b = append(b, `,"codes":{`...)
	for i, c := range sortedKeys(s.Codes) {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.text1k(b, string(c))
		b = append(b, ':')
		b = strconv.AppendUint(b, s.Codes[c], 10)
	}
	return append(b, '}')
}

func (e *encoder) gap(b []byte, g *Gap) []byte {
	b = e.begin(b, KindGap, g.Time)
	b = append(b, `,"plane":`...)
	b = e.text1k(b, g.Plane)
	b = append(b, `,"from":`...)
	b = e.time(b, g.From)
	b = number(b, `,"refused":`, g.Refused)
	b = number(b, `,"lost":`, g.Lost)
	b = append(b, `,"error":`...)
	return e.text1k(b, g.Error)
}

func (e *encoder) head(b []byte, h *FileHead) []byte {
	b = e.begin(b, KindFile, h.Time)
	b = append(b, `,"plane":`...)
	b = e.text1k(b, h.Plane)
	b = append(b, `,"file":`...)
	b = e.text1k(b, h.File)
	b = e.field(b, `,"after":`, h.After)
	if len(h.Torn) == 0 {
		return b
	}
	b = append(b, `,"torn":[`...)
	for i, t := range h.Torn {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"file":`...)
		b = e.text1k(b, t.File)
		b = append(b, `,"from":`...)
		b = strconv.AppendInt(b, t.From, 10)
		b = append(b, `,"bytes":`...)
		b = strconv.AppendInt(b, t.Bytes, 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// chain closes a record body with its place in the series, and a newline.
func chain(b []byte, seq uint64, prev *[32]byte) []byte {
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, `,"prev":"`...)
	b = hex.AppendEncode(b, prev[:])
	return append(b, '"', '}', '\n')
}

// plain marks the ASCII bytes that a JSON string holds as they are. DEL is
// escaped as well: see the package comment.
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := byte(0x20); c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendString appends s as a JSON string. Bytes that are no UTF-8 become
// U+FFFD, as in encoding/json; characters that steer a terminal or the
// direction of text are escaped.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			b = appendEscape(b, rune(c))
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if (r == utf8.RuneError && size == 1) || steers(r) {
			b = append(b, s[start:i]...)
			b = appendEscape(b, r)
			start = i + size
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// steers reports whether r is a C1 control, a line separator or a character
// that changes the direction of the text around it.
func steers(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f, r == 0x061c, r == 0x200e, r == 0x200f,
		r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0xfeff:
		return true
	}
	return false
}

func appendEscape(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	if r == '"' || r == '\\' {
		return append(b, '\\', byte(r))
	}
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
