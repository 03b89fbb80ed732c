// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"encoding/json"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
	"bawn/internal/quota"
	"bawn/internal/verdict"
	"bawn/internal/wswire"
)

// A denial is the body of a refusal: for the agent's eyes, so it says what to
// do and nothing of the policy's inside but the rule's id.
type denial struct {
	Code        codes.Code `json:"code"`
	Asked       string     `json:"asked"`
	Rule        string     `json:"rule"`
	Why         string     `json:"why"`
	AskOperator string     `json:"ask_operator"`
	RequestID   string     `json:"request_id"`
}

// deny refuses the request, on record, and tells the agent. It reports whether
// the connection can carry another request.
func (x *exchange) deny(v verdict.Verdict) (keep bool) {
	status := x.statusOf(v)
	if x.decided {
		x.out.Code, x.out.Error = v.Why(), v.Detail
	} else if err := x.record(v); err == nil {
		x.c.s.stage("journaled")
	}
	if x.answered || x.mute || x.flow.wasCut() != nil {
		x.finish()
		x.leg.abort()
		return false
	}
	x.out.Status = status
	x.finish()
	x.answered = true
	return x.leg.answer(x.denial(v, status))
}

// statusOf gives the status of a refusal: that of its code, but for a WebSocket
// of another version, whose client has to hear which one there is (RFC 6455
// section 4.4).
func (x *exchange) statusOf(v verdict.Verdict) int {
	if x.ws != nil && x.ws.otherVersion && v.Why() == codes.WebSocketProtocolError {
		return 426
	}
	return codes.StatusOf(v.Why())
}

// denial makes the response of a refusal; of a call of gRPC, without a body.
func (x *exchange) denial(v verdict.Verdict, status int) (*httpwire.Response, []byte) {
	entry, _ := codes.Lookup(v.Why())
	why := entry.Meaning
	if v.Stage == quota.Stage {
		why += " Here " + quota.ForAgents(v.Detail) + "."
	}
	if x.call {
		return x.grpcDenial(v, why, entry.Agent), nil
	}
	body, err := json.Marshal(denial{
		Code: v.Why(), Asked: x.asked(), Rule: v.Rule,
		Why: why, AskOperator: entry.Agent, RequestID: x.rec.Request,
	})
	if err != nil {
		body = []byte("{}") // nothing in a denial fails to marshal
	}
	body = append(body, '\n')
	p := &httpwire.Response{Status: status, Reason: reason(status), Fields: httpwire.Fields{
		{Name: "Content-Type", Value: "application/json"},
		{Name: "Content-Length", Value: strconv.Itoa(len(body))},
		{Name: "Cache-Control", Value: "no-store"},
		{Name: "Bawn-Code", Value: string(v.Why())},
	}, Framing: httpwire.Framing{Kind: httpwire.Length, Length: int64(len(body))}}
	if status == 426 {
		p.Fields = append(p.Fields, httpwire.Field{Name: "Upgrade", Value: "websocket"},
			httpwire.Field{Name: "Sec-WebSocket-Version", Value: wswire.Version})
	}
	return p, body
}

// maxAsked bounds what a denial repeats of a request.
const maxAsked = 512

// asked says what was refused, without the query, as far as it is known.
func (x *exchange) asked() string {
	var b strings.Builder
	b.WriteString(x.q.Method)
	b.WriteByte(' ')
	switch {
	case x.q.Method == "CONNECT" && x.host.IsZero():
		b.WriteString(x.q.Authority)
	case x.host.IsZero():
		target, _, _ := strings.Cut(x.q.Target, "?")
		b.WriteString(target)
	case x.q.Method == "CONNECT":
		b.WriteString(net.JoinHostPort(x.host.String(), strconv.Itoa(int(x.port))))
	default:
		b.WriteString(scheme(x.c.plain) + "://" + x.host.String())
		if x.port != schemePort(x.c.plain) {
			b.WriteString(":" + strconv.Itoa(int(x.port)))
		}
		b.WriteString(x.path)
	}
	s := strings.ToValidUTF8(b.String(), "?")
	if len(s) > maxAsked {
		s = strings.ToValidUTF8(s[:maxAsked], "") + "..."
	}
	return strings.TrimSpace(s)
}

func reason(status int) string {
	switch status {
	case 400:
		return "Bad Request"
	case 403:
		return "Forbidden"
	case 413:
		return "Content Too Large"
	case 415:
		return "Unsupported Media Type"
	case 421:
		return "Misdirected Request"
	case 426:
		return "Upgrade Required"
	case 429:
		return "Too Many Requests"
	case 431:
		return "Request Header Fields Too Large"
	case 500:
		return "Internal Server Error"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	}
	return "Refused"
}

// linger ends the connection so that the agent can read the answer: what it
// still sends is read and thrown away for a while, since a close with unread
// octets is a reset that may overtake the answer.
func (c *conn) linger() {
	if half, ok := c.cl.(interface{ CloseWrite() error }); ok {
		half.CloseWrite() //nolint:errcheck // the close follows
	}
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok && c.cl != c.raw {
		half.CloseWrite() //nolint:errcheck // the close follows
	}
	if err := c.raw.SetReadDeadline(time.Now().Add(c.s.lim.Linger)); err != nil {
		return
	}
	io.Copy(io.Discard, c.raw) //nolint:errcheck // nothing depends on it
}
