// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A Server is what ServeH2 tells of, and how it answers.
type Server struct {
	Answer []byte             // the response to each request, as HTTP/1.1 writes it
	Keep   func(raw []byte)   // a whole request in the notation of case files
	Part   func(raw []byte)   // a request that broke off
	Fault  func(fault string) // what a strict server would not take
}

type h2request struct {
	head, trailers []hpack.HeaderField
	body           bytes.Buffer
}

// notation writes a request as case files do, with the line ends of HTTP/1.1 in
// its head: pseudo-header fields, header fields, an empty line, the body, and
// behind another empty line the trailers.
func (q *h2request) notation() []byte {
	var b bytes.Buffer
	for _, f := range q.head {
		b.WriteString(f.Name + ": " + f.Value + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(q.body.Bytes())
	for i, f := range q.trailers {
		if i == 0 {
			b.WriteByte('\n')
		}
		b.WriteString("\n" + f.Name + ": " + f.Value)
	}
	return b.Bytes()
}

// ServeH2 reads requests from r, preface first, and answers each to w, until r
// ends. Given the bytes that a server got and a w that nobody reads, it tells
// what the server was asked for.
func ServeH2(r io.Reader, w io.Writer, s Server) {
	preface := make([]byte, len(http2.ClientPreface))
	if n, err := io.ReadFull(r, preface); err != nil || string(preface) != http2.ClientPreface {
		if n > 0 {
			s.Fault(fmt.Sprintf("no preface of HTTP/2: %q", preface[:n]))
		}
		return
	}
	c := &h2conn{Server: s, f: http2.NewFramer(w, r), open: map[uint32]*h2request{}}
	c.f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: bigWindow}) //nolint:errcheck // reading sees the end
	c.f.WriteWindowUpdate(0, bigWindow)                                                  //nolint:errcheck // the same
	for {
		f, err := c.f.ReadFrame()
		if err != nil {
			c.ended(err)
			return
		}
		c.take(f)
	}
}

type h2conn struct {
	Server
	f    *http2.Framer
	open map[uint32]*h2request
}

// ended notes what was under way, and what was wrong.
func (c *h2conn) ended(err error) {
	for _, q := range c.open {
		c.Part(q.notation())
	}
	_, stream := errors.AsType[http2.StreamError](err)
	_, conn := errors.AsType[http2.ConnectionError](err)
	if stream || conn {
		c.Fault(fmt.Sprintf("what was forwarded is not clear HTTP/2: %v", err))
	}
}

func (c *h2conn) take(f http2.Frame) {
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		if q := c.open[id]; q != nil {
			q.trailers = f.Fields
		} else {
			c.open[id] = &h2request{head: f.Fields}
			c.complete(f)
		}
		if f.StreamEnded() {
			c.answer(id)
		}
	case *http2.DataFrame:
		q := c.open[id]
		if q == nil {
			c.Fault("DATA on a stream that is not open")
			return
		}
		q.body.Write(f.Data())
		if f.StreamEnded() {
			c.answer(id)
		}
	case *http2.RSTStreamFrame:
		if q := c.open[id]; q != nil {
			delete(c.open, id)
			c.Part(q.notation())
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			c.f.WriteSettingsAck() //nolint:errcheck // reading sees the end
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			c.f.WritePing(true, f.Data) //nolint:errcheck // the same
		}
	}
}

// complete knows what a request cannot be without.
func (c *h2conn) complete(f *http2.MetaHeadersFrame) {
	for _, name := range []string{"method", "scheme", "path", "authority"} {
		if f.PseudoValue(name) == "" {
			c.Fault("what was forwarded has no :" + name)
		}
	}
}

// answer keeps a whole request and gives it the response of the case.
func (c *h2conn) answer(id uint32) {
	q := c.open[id]
	delete(c.open, id)
	c.Keep(q.notation())
	rest := c.Answer
	if len(rest) == 0 {
		rest = []byte("HTTP/2 200\r\n\r\n")
	}
	for {
		head, after, _ := bytes.Cut(rest, []byte("\r\n\r\n"))
		fields := responseFields(string(head))
		if strings.HasPrefix(fields[0].Value, "1") {
			c.headers(id, fields, false)
			rest = after
			continue
		}
		if method(q.head) == "HEAD" {
			after = nil
		}
		c.headers(id, fields, len(after) == 0)
		for len(after) > 0 {
			n := min(len(after), maxFrame)
			c.f.WriteData(id, n == len(after), after[:n]) //nolint:errcheck // the same
			after = after[n:]
		}
		return
	}
}

func method(fields []hpack.HeaderField) string {
	for _, f := range fields {
		if f.Name == ":method" {
			return f.Value
		}
	}
	return ""
}

// responseFields turns the head of a response of HTTP/1.1 into fields.
func responseFields(head string) []hpack.HeaderField {
	lines := strings.Split(head, "\r\n")
	status := "200"
	if words := strings.Fields(lines[0]); len(words) > 1 {
		status = words[1]
	}
	fields := []hpack.HeaderField{{Name: ":status", Value: status}}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		name = strings.ToLower(name)
		if name == "transfer-encoding" || name == "connection" || name == "" {
			continue
		}
		fields = append(fields, hpack.HeaderField{Name: name, Value: strings.TrimSpace(value)})
	}
	return fields
}

func (c *h2conn) headers(id uint32, fields []hpack.HeaderField, end bool) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range fields {
		enc.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value, Sensitive: true}) //nolint:errcheck // to memory
	}
	c.f.WriteHeaders(http2.HeadersFrameParam{ //nolint:errcheck // reading sees the end
		StreamID: id, BlockFragment: block.Bytes(), EndStream: end, EndHeaders: true,
	})
}
