// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bytes"
	"errors"
	"io"

	"bawn/internal/codes"
	"bawn/internal/contentcoding"
	"bawn/internal/httpwire"
	"bawn/internal/verdict"
)

// guards asks the guards of the rules that matched. The body is read only if
// one asks for it, whole and within its bound, before anything is sent.
func (x *exchange) guards() verdict.Verdict {
	v, needBody := x.d.Guards.Head(x.viewed())
	if !v.Allowed() || len(needBody) == 0 {
		return v
	}
	if x.body == nil {
		if v := x.readBody(); !v.Allowed() {
			return v
		}
	}
	return needBody.Body(x.viewed())
}

// readBody reads the whole body for the guards, and undoes its coding. The
// framing that goes up is that of what was read.
func (x *exchange) readBody() verdict.Verdict {
	limit := x.c.s.lim.GuardBody
	coding, err := contentcoding.Of(x.q.Fields.Values("content-encoding"))
	if err != nil {
		return undecodable(err)
	}
	if x.q.Framing.Kind == httpwire.Length && x.q.Framing.Length > limit {
		return verdict.Refuse("body", codes.BodyTooLarge, "more than a guard can judge")
	}
	if x.q.Expect {
		x.sendContinue()
		x.q.Expect = false
		x.q.Fields.Del("expect")
	}
	x.flow.await(phaseBody)
	var all bytes.Buffer
	n, err := io.Copy(&all, io.LimitReader(x.leg.body(), limit+1))
	switch {
	case err != nil:
		x.q.Close = true
		v := badBody(err)
		return x.cutVerdict(v.Stage, v.Code, v.Detail)
	case n > limit:
		x.q.Close = true
		return verdict.Refuse("body", codes.BodyTooLarge, "more than a guard can judge")
	}
	x.body, x.taken = all.Bytes(), true
	if x.body == nil {
		x.body = []byte{}
	}
	x.q.SetFraming(httpwire.Framing{Kind: httpwire.Length, Length: n})
	// The server gets the octets as they came: they can be decoded in one way.
	if x.clear, err = contentcoding.Decode(coding, x.body, contentcoding.Limits{Octets: limit}); err != nil {
		return undecodable(err)
	}
	return allowed
}

// undecodable makes the refusal of a body whose coding cannot be undone.
func undecodable(err error) verdict.Verdict {
	if e, ok := errors.AsType[*contentcoding.Error](err); ok {
		return verdict.Refuse("body", e.Code, e.Detail)
	}
	return verdict.Refuse("body", codes.BodyUndecodable, err.Error())
}

// badBody makes the refusal of a body that could not be read.
func badBody(err error) verdict.Verdict {
	if e, ok := errors.AsType[*httpwire.Error](err); ok {
		return verdict.Refuse("body", e.Code, e.Detail)
	}
	return verdict.Refuse("body", codes.BodyTruncated, "reading from the agent: "+err.Error())
}
