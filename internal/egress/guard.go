// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"

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
	if !x.c.t.judge(x.ctx) {
		return x.cutVerdict("body", codes.BodyTruncated, "the agent has gone")
	}
	defer x.c.t.judged()
	if v := x.decode(); !v.Allowed() {
		return v
	}
	return needBody.Body(x.viewed())
}

// readBody reads the whole body for the guards. The framing that goes up is that
// of what was read.
func (x *exchange) readBody() verdict.Verdict {
	limit := x.c.s.lim.GuardBody
	if _, err := x.coding(); err != nil {
		return undecodable(err)
	}
	if x.q.Framing.Kind == httpwire.Length {
		if x.q.Framing.Length > limit {
			return verdict.Refuse("body", codes.BodyTooLarge, "more than a guard can judge")
		}
		limit = x.q.Framing.Length
	}
	if x.q.Expect {
		x.sendContinue()
		x.q.Expect = false
		x.q.Fields.Del("expect")
	}
	x.flow.await(phaseBody)
	all, err := collect([]byte{}, x.leg.body(), limit, &x.kept)
	switch {
	case errors.Is(err, errNoRoom):
		x.q.Close = true
		return verdict.Refuse("body", codes.ConcurrencyExceeded, err.Error())
	case err != nil:
		x.q.Close = true
		v := badBody(err)
		return x.cutVerdict(v.Stage, v.Code, v.Detail)
	case int64(len(all)) > limit:
		x.q.Close = true
		return verdict.Refuse("body", codes.BodyTooLarge, "more than a guard can judge")
	}
	x.body, x.taken = all, true
	x.q.SetFraming(httpwire.Framing{Kind: httpwire.Length, Length: int64(len(all))})
	return allowed
}

func (x *exchange) coding() (contentcoding.Coding, error) {
	return contentcoding.Of(x.q.Fields.Values("content-encoding"))
}

// decode undoes the coding of the body for the guards. The server gets the octets
// as they came: they can be decoded in one way.
func (x *exchange) decode() verdict.Verdict {
	if x.clear != nil {
		return allowed
	}
	coding, err := x.coding()
	if err == nil {
		x.clear, err = contentcoding.Decode(coding, x.body, contentcoding.Limits{Octets: x.c.s.lim.GuardBody})
	}
	switch {
	case err != nil:
		return undecodable(err)
	case coding != contentcoding.Identity && !x.kept.take(int64(len(x.clear))):
		return verdict.Refuse("body", codes.ConcurrencyExceeded, errNoRoom.Error())
	}
	return allowed
}

// letGo gives back what was kept for the guards, once it has gone up or will not.
func (x *exchange) letGo() {
	x.body, x.clear = nil, nil
	x.kept.release()
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
