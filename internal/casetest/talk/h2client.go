// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A Field is a header field or pseudo-header field of HTTP/2.
type Field struct{ Name, Value string }

// A Request is what a client of HTTP/2 sends next: a request on a stream of its
// own, or exact bytes.
type Request struct {
	Fields []Field
	Body   []byte
	Raw    []byte // instead of the others
}

// An Answer is what came back on a stream.
type Answer struct {
	Stream uint32
	Status string // of the final response, "" for none
	Code   string // of Bawn's refusal, "" for none
	Reset  string // error code with which the stream was reset, "" for none
	Whole  bool   // the response came to its end
}

// A Report is what a client was told: an answer for each stream that it opened,
// in their order.
type Report struct {
	Answers []Answer
	GoAway  string // error code with which the other end gave up, "" for none
	Last    uint32 // the last stream that it has looked at, if it gave up
	Fault   string // what a client would not take; "" for none
}

// Judged counts the streams that the other end has judged: all that it did not
// reset without an answer, nor gave up before it came to them.
func (r *Report) Judged() int {
	n := 0
	for _, a := range r.Answers {
		if a.Status != "" || a.Reset == "" && (r.GoAway == "" || a.Stream <= r.Last) {
			n++
		}
	}
	return n
}

func (a *Answer) ended() bool { return a.Whole || a.Reset != "" }

// A Conn is a connection of which one direction can be ended.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// H2 sends requests and reads what comes back until the other end closes. A
// request is sent when the one before has been answered, so that their order is
// the order in which they are judged; within exact bytes as well, at the end of
// each stream. A stream that the client has not ended may never be answered and is
// not waited for: it ends with the connection.
func H2(c Conn, requests []Request) Report {
	cl := &h2client{conn: c, streams: map[uint32]*h2stream{}, window: 65535, initial: 65535}
	cl.changed = sync.NewCond(&cl.mu)
	cl.raw = len(requests) > 0 && requests[0].Raw != nil
	cl.out = http2.NewFramer(c, nil)
	cl.enc = hpack.NewEncoder(&cl.block)
	if !cl.raw {
		cl.greet() // before anything is read, and so answered
	}
	done := make(chan struct{})
	go func() { defer close(done); cl.read() }()
	cl.send(requests)
	c.CloseWrite() //nolint:errcheck // the other end may have closed
	<-done
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.report()
}

// preface and settings of a client that takes long responses without asking for
// more room.
const bigWindow = 1 << 30

type h2client struct {
	conn Conn
	raw  bool // the case has every byte: nothing is sent beside them

	writing sync.Mutex
	out     *http2.Framer
	enc     *hpack.Encoder
	block   bytes.Buffer

	mu      sync.Mutex
	changed *sync.Cond
	streams map[uint32]*h2stream
	order   []uint32
	window  int64 // of the connection
	initial int64 // of a new stream
	goAway  string
	last    uint32
	fault   string
	over    bool
}

type h2stream struct {
	Answer
	closed bool // by us
	window int64
}

// until waits for a condition, or the end of the connection.
func (cl *h2client) until(met func() bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for !cl.over && !met() {
		cl.changed.Wait()
	}
}

// settled reports whether every stream that we have ended was answered.
func (cl *h2client) settled() bool {
	for _, s := range cl.streams {
		if s.closed && !s.ended() {
			return false
		}
	}
	return true
}

func (cl *h2client) report() Report {
	r := Report{GoAway: cl.goAway, Last: cl.last, Fault: cl.fault}
	for _, id := range cl.order {
		r.Answers = append(r.Answers, cl.streams[id].Answer)
	}
	return r
}

func (cl *h2client) send(requests []Request) {
	for _, q := range requests {
		if q.Raw != nil {
			cl.sendRaw(q.Raw)
		} else {
			cl.request(q)
		}
		cl.until(cl.settled)
	}
}

func (cl *h2client) greet() {
	cl.writing.Lock()
	defer cl.writing.Unlock()
	io.WriteString(cl.conn, http2.ClientPreface) //nolint:errcheck // reading sees the end
	cl.out.WriteSettings(                        //nolint:errcheck // the same
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: bigWindow})
	cl.out.WriteWindowUpdate(0, bigWindow) //nolint:errcheck // the same
}

// open notes a stream.
func (cl *h2client) open(id uint32) *h2stream {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if s := cl.streams[id]; s != nil {
		return s
	}
	s := &h2stream{Answer: Answer{Stream: id}, window: cl.initial}
	cl.streams[id] = s
	cl.order = append(cl.order, id)
	return s
}

func (cl *h2client) close(id uint32) {
	s := cl.open(id)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	s.closed = true
}

func (cl *h2client) next() uint32 {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	last := uint32(0)
	for _, id := range cl.order {
		last = max(last, id)
	}
	return (last + 1) | 1
}

// request sends one request as it stands, whatever a server may think of it.
func (cl *h2client) request(q Request) {
	id := cl.next()
	s := cl.open(id)
	cl.writing.Lock()
	cl.block.Reset()
	for _, f := range q.Fields {
		// Never indexed: no field changes what later bytes mean.
		cl.enc.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value, Sensitive: true}) //nolint:errcheck // to memory
	}
	cl.headers(id, cl.block.Bytes(), len(q.Body) == 0)
	cl.writing.Unlock()
	cl.data(id, s, q.Body)
	cl.close(id)
}

// maxFrame is what every endpoint takes (RFC 9113 section 4.2).
const maxFrame = 16384

func (cl *h2client) headers(id uint32, block []byte, end bool) {
	n := min(len(block), maxFrame)
	cl.out.WriteHeaders(http2.HeadersFrameParam{ //nolint:errcheck // reading sees the end
		StreamID: id, BlockFragment: block[:n], EndStream: end, EndHeaders: n == len(block),
	})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), maxFrame)
		cl.out.WriteContinuation(id, n == len(block), block[:n]) //nolint:errcheck // the same
	}
}

// data sends a body as far as the other end has room for it and wants it.
func (cl *h2client) data(id uint32, s *h2stream, body []byte) {
	for len(body) > 0 {
		n := int64(0)
		cl.until(func() bool {
			n = min(cl.window, s.window, maxFrame, int64(len(body)))
			return n > 0 || s.ended()
		})
		cl.mu.Lock()
		if cl.over || s.ended() {
			cl.mu.Unlock()
			return
		}
		cl.window, s.window = cl.window-n, s.window-n
		cl.mu.Unlock()
		cl.writing.Lock()
		cl.out.WriteData(id, n == int64(len(body)), body[:n]) //nolint:errcheck // reading sees the end
		cl.writing.Unlock()
		body = body[n:]
	}
}

// sendRaw writes exact bytes, and waits for the answer wherever they end a
// stream.
func (cl *h2client) sendRaw(raw []byte) {
	for len(raw) > 0 {
		n, ends := cl.nextFrame(raw)
		if _, err := cl.conn.Write(raw[:n]); err != nil {
			return
		}
		raw = raw[n:]
		if ends {
			cl.until(cl.settled)
		}
	}
}

// nextFrame finds the first frame in raw, notes what it does, and reports
// whether it ends its stream. What is no frame is as long as raw is.
func (cl *h2client) nextFrame(raw []byte) (n int, ends bool) {
	if rest, ok := bytes.CutPrefix(raw, []byte(http2.ClientPreface)); ok {
		return len(raw) - len(rest), false
	}
	const header = 9
	if len(raw) < header {
		return len(raw), false
	}
	length := int(raw[0])<<16 | int(raw[1])<<8 | int(raw[2])
	kind, flags := http2.FrameType(raw[3]), http2.Flags(raw[4])
	id := (uint32(raw[5])<<24 | uint32(raw[6])<<16 | uint32(raw[7])<<8 | uint32(raw[8])) & (1<<31 - 1)
	if len(raw)-header < length || id == 0 {
		return min(header+length, len(raw)), false
	}
	switch kind {
	case http2.FrameHeaders:
		cl.open(id)
		if flags.Has(http2.FlagHeadersEndStream) {
			cl.close(id)
		}
		ends = flags.Has(http2.FlagHeadersEndStream | http2.FlagHeadersEndHeaders)
	case http2.FrameContinuation:
		cl.mu.Lock()
		ends = flags.Has(http2.FlagContinuationEndHeaders) && cl.streams[id] != nil && cl.streams[id].closed
		cl.mu.Unlock()
	case http2.FrameData:
		if ends = flags.Has(http2.FlagDataEndStream) && cl.knows(id); ends {
			cl.close(id)
		}
	}
	return header + length, ends
}

func (cl *h2client) knows(id uint32) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.streams[id] != nil
}

// read takes what comes until the connection ends.
func (cl *h2client) read() {
	in := http2.NewFramer(nil, cl.conn)
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	in.SetMaxReadFrameSize(1<<24 - 1)
	for {
		f, err := in.ReadFrame()
		cl.mu.Lock()
		if err != nil {
			cl.over = true
			if bad, ok := err.(http2.StreamError); ok {
				cl.fault = fmt.Sprintf("a response that is malformed: %v", bad)
			} else if bad, ok := err.(http2.ConnectionError); ok {
				cl.fault = fmt.Sprintf("frames that are malformed: %v", bad)
			}
		} else {
			cl.take(f)
		}
		cl.changed.Broadcast()
		cl.mu.Unlock()
		if err != nil {
			return
		}
		cl.acknowledge(f)
	}
}

func (cl *h2client) take(f http2.Frame) {
	s := cl.streams[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		if s != nil {
			s.head(f)
		}
	case *http2.DataFrame:
		if s != nil {
			s.Whole = s.Whole || f.StreamEnded()
		}
	case *http2.RSTStreamFrame:
		if s != nil {
			s.Reset = f.ErrCode.String()
		}
	case *http2.GoAwayFrame:
		cl.goAway, cl.last = f.ErrCode.String(), f.LastStreamID
	case *http2.WindowUpdateFrame:
		if s != nil {
			s.window += int64(f.Increment)
		} else {
			cl.window += int64(f.Increment)
		}
	case *http2.SettingsFrame:
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for _, s := range cl.streams {
				s.window += int64(v) - cl.initial
			}
			cl.initial = int64(v)
		}
	}
}

// head takes a response or its trailers.
func (s *h2stream) head(f *http2.MetaHeadersFrame) {
	status := f.PseudoValue("status")
	if status != "" && !strings.HasPrefix(status, "1") {
		s.Status = status
		for _, h := range f.RegularFields() {
			if h.Name == "bawn-code" {
				s.Code = h.Value
			}
		}
	}
	s.Whole = s.Whole || f.StreamEnded()
}

// acknowledge answers what has to be answered.
func (cl *h2client) acknowledge(f http2.Frame) {
	if cl.raw {
		return
	}
	cl.writing.Lock()
	defer cl.writing.Unlock()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			cl.out.WriteSettingsAck() //nolint:errcheck // reading sees the end
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			cl.out.WritePing(true, f.Data) //nolint:errcheck // the same
		}
	}
}
