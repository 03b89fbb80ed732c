// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"

	"bawn/internal/addr"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/verdict"
)

// record puts a verdict on record.
func (x *exchange) record(v verdict.Verdict) error {
	r := &x.rec
	r.Host, r.Port = x.host.String(), x.port
	r.Sensitive, r.Credential, r.Vetted = x.d.Sensitive || addr.IsMetadataHost(r.Host) || addr.IsMetadataHost(r.Asked), x.d.Credential, ""
	if v.Allowed() && x.throughParent() {
		r.Vetted = vettedByParent
	}
	r.Verdict, r.Code, r.Stage, r.Rule, r.Detail = v.Effect, v.Why(), v.Stage, v.Rule, v.Detail
	err := x.c.s.cfg.Recorder.Decide(r)
	if err != nil && !errors.Is(err, audit.ErrQuota) {
		// The journal says once that it cannot be written, and later how many it
		// refused: an agent that goes on asking must not fill the host's log too.
		x.c.s.cfg.Log.Debug("decision cannot be put on record", "agent", r.Agent, "request", r.Request, "error", err)
	}
	return err
}

// commit puts the decision to let the request through on record. The lease may
// have lapsed meanwhile, or another revision be in force: then the request is
// to be judged again.
func (x *exchange) commit(revision uint64) (v verdict.Verdict, again bool) {
	if err := x.record(x.d.Verdict); err != nil {
		return verdict.Refuse("journal", audit.CodeOf(err), err.Error()), false
	}
	x.decided = true
	x.c.s.stage("journaled")
	_, now, v := x.c.s.cfg.Policies.Current()
	switch {
	case !v.Allowed():
		return v, false
	case now != revision:
		return allowed, true
	case x.flow.wasCut() != nil:
		return x.cutVerdict("journal", codes.PolicyDenied, ""), false
	}
	return x.d.Verdict, false
}

// finish puts what came of an allowed request on record.
func (x *exchange) finish() {
	if !x.decided {
		return
	}
	x.decided = false
	now := x.c.s.cfg.Now()
	o := &x.out
	o.Time, o.Request, o.Identity, o.Revision, o.Plane = now, x.rec.Request, x.rec.Identity, x.rec.Revision, x.rec.Plane
	o.Total = audit.Span(now.Sub(x.start))
	if err := x.c.s.cfg.Recorder.Outcome(o); err != nil {
		x.c.s.cfg.Log.Error("outcome cannot be put on record", "agent", o.Agent, "request", o.Request, "error", err)
	}
	x.c.s.stage("outcome")
}

// cutVerdict is the refusal of a request that failed at a stage. If Bawn ended
// the connection itself, that is the reason, whatever failed in consequence.
func (x *exchange) cutVerdict(stage string, code codes.Code, detail string) verdict.Verdict {
	why, over := x.flow.wasCut(), x.over.Load()
	switch {
	case why == nil && over != nil:
		x.out.Cut = cutBudget
		return *over
	case why == nil:
		return verdict.Refuse(stage, code, detail)
	}
	x.out.Cut = why.why
	if why.code != "" {
		code = why.code
	}
	return verdict.Refuse(stage, code, why.detail)
}
