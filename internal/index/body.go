// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"bawn/internal/audit"
)

// What an entry has for itself is in two columns: the decision's part, or the
// whole of what is no decision, and what came of it. The first octet says how.
const (
	bodyPacked = iota // the fields below
	bodyJSON          // the record as the API gives it: of what is rare, or unlike what Bawn writes
)

// requestKey gives the number by which entries are found that belong to a
// request. It is made of the id where that has the form of all ids.
func requestKey(request string) int64 {
	if key, ok := plainRequest(request); ok {
		return key
	}
	return hashOf(request)
}

func plainRequest(request string) (int64, bool) {
	digits, ok := strings.CutPrefix(request, "r-")
	var b [8]byte
	if !ok || len(digits) != 16 {
		return 0, false
	}
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil || strings.ToLower(digits) != digits {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b[:])), true
}

func requestOf(key int64) string {
	return "r-" + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(key)))
}

// The flags of a packed body.
const (
	packedClipped = 1 << iota
	packedRequest // the request id is spelt out
	packedWide    // and so is what the shape leaves out
	packedReused
)

// packDecision gives the decision's own part. Path, client and what the shape
// knows are kept elsewhere; at is the time that the entry's number says.
func packDecision(b []byte, d *audit.Decision, at time.Time, wide bool) []byte {
	var flags uint64
	if d.Clipped {
		flags |= packedClipped
	}
	_, plain := plainRequest(d.Request)
	if !plain {
		flags |= packedRequest
	}
	if wide {
		flags |= packedWide
	}
	b = append(b, bodyPacked)
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, d.Seq)
	b = binary.AppendVarint(b, d.Time.Sub(at).Microseconds())
	b = binary.AppendVarint(b, d.Message)
	b = appendText(b, d.Asked)
	b = appendText(b, d.Query)
	b = appendText(b, d.Detail)
	if !plain {
		b = appendText(b, d.Request)
	}
	if wide {
		b = appendText(b, d.Host)
		b = binary.AppendUvarint(b, uint64(d.Port))
		b = appendText(b, d.SNI)
		b = appendText(b, d.Method)
	}
	return b
}

func (f *fields) signed() int64 {
	n, size := binary.Varint(f.b)
	if size <= 0 {
		f.bad, f.b = true, nil
		return 0
	}
	f.b = f.b[size:]
	return n
}

// unpackDecision fills in what packDecision kept.
func unpackDecision(body []byte, d *audit.Decision, at time.Time, request int64) error {
	if len(body) > 0 && body[0] == bodyJSON {
		return unpackJSON(body, d)
	}
	f := fields{b: body}
	f.number() // bodyPacked
	flags := f.number()
	d.Seq, d.Time, d.Message = f.number(), at.Add(time.Duration(f.signed())*time.Microsecond), f.signed()
	d.Asked, d.Query, d.Detail = f.text(), f.text(), f.text()
	d.Clipped = flags&packedClipped != 0
	if d.Request = requestOf(request); flags&packedRequest != 0 {
		d.Request = f.text()
	}
	if flags&packedWide != 0 {
		d.Host, d.Port, d.SNI, d.Method = f.text(), uint16(f.number()), f.text(), f.text()
	}
	if f.bad {
		return errBody
	}
	return nil
}

var errBody = fmt.Errorf("the index holds an entry that cannot be read")

// packOutcome gives the outcome's own part, behind a decision of time at.
func packOutcome(b []byte, o *audit.Outcome, at time.Time) []byte {
	var flags uint64
	if o.Clipped {
		flags |= packedClipped
	}
	if o.Reused {
		flags |= packedReused
	}
	b = append(b, bodyPacked)
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, o.Seq)
	b = binary.AppendVarint(b, o.Time.Sub(at).Microseconds())
	for _, n := range [...]int64{o.BytesUp, o.BytesDown, o.MessagesUp, o.MessagesDown, int64(o.Close)} {
		b = binary.AppendVarint(b, n)
	}
	for _, s := range [...]audit.Span{o.Queue, o.DNS, o.Dial, o.TLS, o.TTFB, o.Total} {
		b = binary.AppendVarint(b, time.Duration(s).Microseconds())
	}
	return appendText(b, o.Error)
}

func unpackOutcome(body []byte, o *audit.Outcome, at time.Time) error {
	if len(body) > 0 && body[0] == bodyJSON {
		return unpackJSON(body, o)
	}
	f := fields{b: body}
	f.number() // bodyPacked
	flags := f.number()
	o.Clipped, o.Reused = flags&packedClipped != 0, flags&packedReused != 0
	o.Seq, o.Time = f.number(), at.Add(time.Duration(f.signed())*time.Microsecond)
	o.BytesUp, o.BytesDown, o.MessagesUp, o.MessagesDown, o.Close = f.signed(), f.signed(), f.signed(), f.signed(), int(f.signed())
	for _, s := range [...]*audit.Span{&o.Queue, &o.DNS, &o.Dial, &o.TLS, &o.TTFB, &o.Total} {
		*s = audit.Span(time.Duration(f.signed()) * time.Microsecond)
	}
	if o.Error = f.text(); f.bad {
		return errBody
	}
	return nil
}

// packJSON keeps a record as it is.
func packJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append([]byte{bodyJSON}, text...), err
}

func unpackJSON(body []byte, v any) error {
	if len(body) == 0 || body[0] != bodyJSON {
		return errBody
	}
	return json.Unmarshal(body[1:], v)
}
