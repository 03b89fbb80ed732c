// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import (
	"strconv"
	"strings"

	"bawn/internal/codes"
)

// A headParser reads the fields of one head and remembers those that say
// something about the message.
type headParser struct {
	fields  Fields
	request bool
	limit   int // fields
	dropped int
	follows follows

	host        string
	hosts       int
	length      int64
	lengths     int
	codings     int
	close       bool
	keepAlive   bool
	upgrades    bool // Connection names Upgrade
	upgrade     string
	expectation string
	expects     int
}

// parse reads the field lines in s up to the empty line that ends them.
func (p *headParser) parse(s string) error {
	for {
		line, rest := cutLine(s)
		if line == "" {
			return nil
		}
		s = rest
		if len(p.fields) == p.limit {
			return refuse(codes.HeadTooLarge, "more fields than the limit")
		}
		f, raw, state := parseField(line)
		switch state {
		case fieldBad:
			return refuse(codes.HeaderInvalid, "a line that is not a field")
		case fieldDrop:
			p.dropped++
			continue
		}
		if k := kindOf(f.Name); k != plain {
			if err := p.note(k, &f, raw); err != nil {
				return err
			}
		}
		p.fields = append(p.fields, f)
	}
}

// note takes in a field that the codec acts on.
func (p *headParser) note(k kind, f *Field, raw string) error {
	switch k {
	case host:
		p.host, p.hosts = f.Value, p.hosts+1
	case contentLength:
		return p.noteLength(f)
	case transferEncoding:
		return p.noteCoding(f, raw)
	case lookalike:
		return refuse(codes.FramingInvalid, "a field that some servers read as a framing field")
	case connection:
		return p.noteConnection(f.Value)
	case upgrade:
		if p.upgrade != "" {
			return refuse(codes.HeaderDuplicate, "more than one Upgrade field")
		}
		p.upgrade = f.Value
	case expect:
		p.expectation, p.expects = f.Value, p.expects+1
		return p.once(f.Name)
	case single:
		return p.once(f.Name)
	}
	return nil
}

// once refuses a second field of a name that has one value. Responses may
// repeat theirs: what they mean is for the agent to say, and the agent is not
// whom the boundary protects from the upstream's fields.
func (p *headParser) once(name string) error {
	if !p.request {
		return nil
	}
	for i := range p.fields {
		if equalFold(p.fields[i].Name, name) {
			return refuse(codes.HeaderDuplicate, "more than one "+name+" field")
		}
	}
	return nil
}

// noteLength reads a Content-Length: digits only, once (RFC 9112 section 6.3,
// where even equal repetitions may be refused).
func (p *headParser) noteLength(f *Field) error {
	p.lengths++
	if p.lengths > 1 {
		return refuse(codes.FramingInvalid, "more than one Content-Length field")
	}
	v := f.Value
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return refuse(codes.FramingInvalid, "a Content-Length that is not digits")
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return refuse(codes.FramingInvalid, "a Content-Length that is empty or too large")
	}
	if v[0] == '0' && len(v) > 1 {
		f.Value = strconv.FormatInt(n, 10)
	}
	p.length = n
	return nil
}

// noteCoding reads a Transfer-Encoding: exactly chunked, once. Blanks after it
// and tabs are refused too, since servers have read such a value as another
// coding.
func (p *headParser) noteCoding(f *Field, raw string) error {
	p.codings++
	if p.codings > 1 {
		return refuse(codes.FramingInvalid, "more than one Transfer-Encoding field")
	}
	if !equalLower(strings.TrimLeft(raw, " "), "chunked") {
		return refuse(codes.FramingInvalid, "a Transfer-Encoding other than chunked")
	}
	f.Value = "chunked"
	return nil
}

// noteConnection reads the options of a Connection field (RFC 9110 section
// 7.6.1). Options that name end-to-end fields have no effect, see [HopByHop].
func (p *headParser) noteConnection(v string) error {
	for more := true; more; {
		var option string
		option, v, more = strings.Cut(v, ",")
		option = trimBlank(option)
		switch {
		case option == "":
		case !validName(option):
			return refuse(codes.HeaderInvalid, "a Connection option that is not a token")
		case equalLower(option, "close"):
			p.close = true
		case equalLower(option, "keep-alive"):
			p.keepAlive = true
		case equalLower(option, "upgrade"):
			p.upgrades = true
		}
	}
	return nil
}

// framing gives the framing that the fields declare, [None] if none.
func (p *headParser) framing(minor int) (Framing, error) {
	switch {
	case p.codings > 0 && p.lengths > 0:
		return Framing{}, refuse(codes.FramingInvalid, "both Content-Length and Transfer-Encoding")
	case p.codings > 0 && minor == 0:
		return Framing{}, refuse(codes.FramingInvalid, "Transfer-Encoding in HTTP/1.0")
	case p.codings > 0:
		return Framing{Kind: Chunked}, nil
	case p.lengths > 0:
		return Framing{Kind: Length, Length: p.length}, nil
	case p.follows == aBody:
		return Framing{Kind: Chunked}, nil
	}
	return Framing{}, nil
}
