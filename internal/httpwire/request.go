// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import (
	"bufio"
	"strconv"
	"strings"

	"bawn/internal/codes"
)

// A Form is the form of a request target (RFC 9112 section 3.2).
type Form uint8

// The forms.
const (
	Origin    Form = iota // /path?query
	Absolute              // http://authority/path?query
	Authority             // host:port, of CONNECT only
	Asterisk              // *, of OPTIONS only
)

// A FramingKind says how the end of a body is found (RFC 9112 section 6.3).
type FramingKind uint8

// The kinds of framing.
const (
	None       FramingKind = iota // no body
	Length                        // as many octets as Content-Length says
	Chunked                       // Transfer-Encoding: chunked
	UntilClose                    // all until the end of the connection; responses only
)

// Framing is how the end of a body is found. Length is in octets and counts
// only for [Length].
type Framing struct {
	Kind   FramingKind
	Length int64
}

// HasBody reports whether any octet of a body may follow.
func (f Framing) HasBody() bool {
	return f.Kind == Chunked || f.Kind == UntilClose || f.Kind == Length && f.Length > 0
}

// A Request is the parsed head of a request.
type Request struct {
	Method string
	Target string // as sent
	Form   Form
	// Scheme and Authority are those of an absolute-form target; the
	// authority-form sets Authority alone. Both are as sent, not yet judged
	// as names; Scheme is in lower case.
	Scheme    string
	Authority string
	// PathQuery is the target in origin-form, as sent: what [CanonicalTarget]
	// takes. It is empty for the authority-form and the asterisk-form.
	PathQuery string
	Minor     int    // of the version HTTP/1.Minor; 0 for HTTP/0.9
	Host      string // value of the Host field; empty and HasHost false if there is none
	HasHost   bool
	Fields    Fields
	Framing   Framing
	Close     bool   // the client wants the connection closed after the response
	Expect    bool   // the client waits for 100 (Continue) before it sends the body
	Upgrade   string // value of the Upgrade field where Connection names it
	Dropped   int    // malformed fields that were left out, see the package comment
}

// ReadRequest reads the head of a request. It is for callers that do not read
// many; see [Request.Read].
func ReadRequest(r *bufio.Reader, lim Limits) (*Request, error) {
	q := new(Request)
	if err := q.Read(r, lim); err != nil {
		return nil, err
	}
	return q, nil
}

// Read reads the head of a request into q and leaves r at its body. It returns
// io.EOF, or the error of the connection, when no octet of a request came, and
// an [*Error] when what came is refused.
func (q *Request) Read(r *bufio.Reader, lim Limits) error {
	lim = lim.orDefault()
	head, err := readHead(r, lim.Head)
	if err != nil {
		return err
	}
	*q = Request{Fields: q.Fields[:0]}
	line, rest := cutLine(head)
	if err := q.startLine(line); err != nil {
		return err
	}
	p := headParser{fields: q.Fields, request: true, limit: lim.Fields}
	if err := p.parse(rest); err != nil {
		return err
	}
	q.Fields, q.Dropped = p.fields, p.dropped
	return q.settle(&p)
}

// startLine reads the request line (RFC 9112 section 3): method, target and
// version with one space between them.
func (q *Request) startLine(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || !validName(method) {
		return refuse(codes.ProtocolError, "the request line does not begin with a method and a space")
	}
	if method == "PRI" {
		return refuse(codes.ProtocolError, "the preface of HTTP/2 on a connection that speaks HTTP/1.1")
	}
	q.Method = method
	for rest != "" && rest[len(rest)-1] == ' ' {
		rest = rest[:len(rest)-1] // after the version, RFC 9112 section 3
	}
	end := strings.LastIndexByte(rest, ' ')
	if end < 0 {
		return q.simple(rest)
	}
	if err := q.version(rest[end+1:]); err != nil {
		return err
	}
	return q.target(escapeQuery(rest[:end]))
}

// escapeQuery escapes spaces in a query, which careless clients send raw. The
// escaped form is what is judged and sent. A space before the query is left
// for [Request.target] to refuse: there it could end the path for one reader
// and not for another.
func escapeQuery(target string) string {
	if strings.IndexByte(target, ' ') < 0 {
		return target
	}
	path, query, ok := strings.Cut(target, "?")
	if !ok {
		return target
	}
	return path + "?" + strings.ReplaceAll(query, " ", "%20")
}

// simple reads a request line without a version, which is HTTP/0.9.
func (q *Request) simple(target string) error {
	if q.Method != "GET" {
		return refuse(codes.ProtocolError, "the request line has no version")
	}
	q.Close = true
	return q.target(target)
}

// version reads the protocol version. A higher minor version is processed as
// HTTP/1.1 (RFC 9110 section 2.5) and HTTP/0.9 as HTTP/1.0; the request that
// is written is HTTP/1.1 in either case.
func (q *Request) version(s string) error {
	switch {
	case s == "HTTP/1.1":
		q.Minor = 1
	case s == "HTTP/1.0":
	case len(s) == 8 && s[:7] == "HTTP/1." && s[7] >= '2' && s[7] <= '9':
		q.Minor = 1
	case s == "HTTP/0.9" && q.Method == "GET":
		q.Close = true
	default:
		return refuse(codes.ProtocolError, "the request line does not end in a version of HTTP/1")
	}
	return nil
}

// target sorts a request target into its form. The rules of the path are
// those of [CanonicalTarget].
func (q *Request) target(t string) error {
	if t == "" {
		return refuse(codes.TargetInvalid, "no request target")
	}
	for i := range len(t) {
		if octets[t[i]]&isTarget == 0 || t[i] == '#' {
			return refuse(codes.TargetInvalid, "an octet that no request target may hold")
		}
	}
	q.Target = t
	switch {
	case q.Method == "CONNECT":
		q.Form, q.Authority = Authority, t
		if strings.ContainsAny(t, "/?*") {
			return refuse(codes.TargetInvalid, "CONNECT with a target that is not an authority")
		}
		return nil
	case t[0] == '/':
		q.Form, q.PathQuery = Origin, t
		return nil
	case t == "*":
		if q.Method != "OPTIONS" {
			return refuse(codes.TargetInvalid, "the target * with a method other than OPTIONS")
		}
		q.Form = Asterisk
		return nil
	}
	return q.absolute(t)
}

// absolute reads the absolute-form (RFC 9112 section 3.2.2) of http and https.
func (q *Request) absolute(t string) error {
	scheme, rest, ok := strings.Cut(t, "://")
	switch {
	case ok && equalLower(scheme, "http"):
		q.Scheme = "http"
	case ok && equalLower(scheme, "https"):
		q.Scheme = "https"
	default:
		return refuse(codes.TargetInvalid, "the target is neither a path nor an http address")
	}
	q.Form = Absolute
	end := strings.IndexAny(rest, "/?")
	switch {
	case end < 0:
		q.Authority, q.PathQuery = rest, "/"
	case rest[end] == '?':
		q.Authority, q.PathQuery = rest[:end], "/"+rest[end:]
	default:
		q.Authority, q.PathQuery = rest[:end], rest[end:]
	}
	if q.Authority == "" || strings.ContainsAny(q.Authority, `@\`) {
		return refuse(codes.TargetInvalid, "the target has no authority, or more than a host and a port in it")
	}
	return nil
}

// settle draws from the fields what they say about the message.
func (q *Request) settle(p *headParser) error {
	q.Host, q.HasHost = p.host, p.hosts == 1
	if p.hosts > 1 {
		return refuse(codes.HostHeaderInvalid, "more than one Host field")
	}
	if p.hosts == 0 && q.Minor == 1 {
		return refuse(codes.HostHeaderInvalid, "no Host field")
	}
	if err := q.frame(p); err != nil {
		return err
	}
	switch {
	case p.expects > 0 && !equalLower(p.expectation, "100-continue"):
		return refuse(codes.HeaderInvalid, "an expectation other than 100-continue")
	case p.expects > 0 && q.Minor == 1:
		q.Expect = q.Framing.HasBody()
	}
	q.Close = q.Close || p.close || q.Minor == 0 && !p.keepAlive
	if p.upgrades && q.Minor == 1 {
		q.Upgrade = p.upgrade
	}
	return nil
}

// frame applies RFC 9112 section 6.3 and refuses what it would have to guess.
func (q *Request) frame(p *headParser) error {
	f, err := p.framing(q.Minor)
	if err != nil {
		return err
	}
	q.Framing = f
	if p.follows == noBody && f.HasBody() {
		return errNoBody
	}
	if q.Method == "CONNECT" && f.HasBody() {
		return refuse(codes.FramingInvalid, "CONNECT with a body")
	}
	if q.Method == "TRACE" && f.HasBody() {
		return refuse(codes.FramingInvalid, "TRACE with a body")
	}
	return nil
}

// BodyUnexpected reports whether the request has a body that its method gives
// no meaning to (RFC 9110 section 9.3). A server may overlook such a body and
// take it for the next request, so the connection that carried one must not
// carry another.
func (q *Request) BodyUnexpected() bool {
	switch q.Method {
	case "GET", "HEAD", "DELETE", "OPTIONS":
		return q.Framing.HasBody()
	}
	return false
}

// SetFraming changes the framing and the fields that say so.
func (q *Request) SetFraming(f Framing) {
	q.Framing = f
	q.Fields = setFraming(q.Fields, f)
}

// AppendRequest appends the head of q to dst: method, the target given (in
// origin-form, already canonical), HTTP/1.1, the fields in their order, and
// Connection: close where [Request.BodyUnexpected] asks for it. The hop-by-hop
// fields that q came with must have been removed.
func AppendRequest(dst []byte, q *Request, target string) []byte {
	dst = append(dst, q.Method...)
	dst = append(dst, ' ')
	dst = append(dst, target...)
	dst = append(dst, " HTTP/1.1\r\n"...)
	dst = appendFields(dst, q.Fields)
	if q.BodyUnexpected() {
		dst = append(dst, "Connection: close\r\n"...)
	}
	return append(dst, "\r\n"...)
}

func appendFields(dst []byte, fields Fields) []byte {
	for i := range fields {
		dst = append(dst, fields[i].Name...)
		dst = append(dst, ": "...)
		dst = append(dst, fields[i].Value...)
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// setFraming makes the framing fields say f, in the place of the first one
// that is there.
func setFraming(fields Fields, f Framing) Fields {
	var want Field
	switch f.Kind {
	case Length:
		want = Field{"Content-Length", strconv.FormatInt(f.Length, 10)}
	case Chunked:
		want = Field{"Transfer-Encoding", "chunked"}
	}
	out := fields[:0]
	for _, x := range fields {
		if k := kindOf(x.Name); k != contentLength && k != transferEncoding {
			out = append(out, x)
			continue
		}
		if want.Name != "" {
			out = append(out, want)
			want.Name = ""
		}
	}
	if want.Name != "" {
		out = append(out, want)
	}
	return out
}
