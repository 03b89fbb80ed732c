// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resolver answers the DNS queries of agents without asking anybody.
//
// A name that policy allows gets a synthetic address, which means nothing but
// that name to that agent (see [Table]); the agent's network leads the address
// to the egress proxy, which turns it back into the name and resolves it
// itself. Every other name is refused. So no query that an agent wrote leaves
// the host (I3), names cannot be used to carry data out, and an answer cannot
// lead an agent anywhere that policy did not name.
//
// # The road of a query
//
// [Server.ServeUDP] and [Server.ServeTCP] read queries from listeners that stand
// inside one agent's network: which listener accepted is who asks (I9).
// [Server.Answer] then does the same with each query: parse, judge, count, give
// an address, record (I7), judge again, reply. A query that cannot be recorded is
// refused, and so is one that makes the code panic.
//
// # What is answered
//
//	name allowed, type A                  a synthetic address, TTL 60
//	name allowed, type AAAA, HTTPS, SVCB  no data, which may be kept as long
//	name allowed, any other type or class REFUSED, dns_type_denied
//	name not allowed                      REFUSED, dns_name_not_allowed
//	too many names under a wildcard       REFUSED, dns_label_budget
//	more questions than the agent may ask REFUSED, rate_limited or budget_exceeded
//	anything else that policy or lease say REFUSED with their code
//	not a query that can be read          FORMERR, NOTIMP or BADVERS; dns_malformed on record
//
// Refusals carry the code in an extended error where the query has EDNS.
package resolver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"time"

	"bawn/internal/addr"
	"bawn/internal/audit"
	"bawn/internal/budget"
	"bawn/internal/codes"
	"bawn/internal/dnswire"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/quota"
	"bawn/internal/verdict"
)

// ttl is how long agents may keep a synthetic address. The address itself stays
// true for as long as the agent's table is kept; the TTL makes agents ask again
// soon after policy has changed.
const ttl = 60 * time.Second

// Policies gives the policy in force and its revision, or the refusal that
// stands for it.
type Policies interface {
	Current() (*policy.Policy, uint64, verdict.Verdict)
}

// A Recorder puts decisions on record before they are acted on. After an error
// the query is refused.
type Recorder interface {
	Decide(*audit.Decision) error
}

// Addresses gives the synthetic address of a name for an agent; [Table] does.
// An [*Error] carries the code of a refusal.
type Addresses interface {
	Synthetic(agent string, h names.Host) (netip.Addr, error)
}

// A Budget bounds the names that an agent makes up under wildcards: it judges
// one that the wildcard under lets in, and counts it. The zero pattern stands for
// a name that a rule names. The detail of a verdict that allows is for the record.
type Budget interface {
	Take(agent string, h names.Host, under names.Pattern, now time.Time) verdict.Verdict
}

// A Config is what a [Server] is made of. Policies, Recorder, Addresses and
// Budget must be set.
type Config struct {
	Policies  Policies
	Recorder  Recorder
	Addresses Addresses
	Budget    Budget
	Meter     *budget.Meter // nil: budgets are counted in memory, by this server
	Limits    Limits
	Log       *slog.Logger     // nil: none
	Now       func() time.Time // nil: time.Now
}

// A Source says on whose behalf the queries of one listener come.
type Source struct {
	Identity ids.Identity
	Client   string // who asks, address and port, for the record; the Serve methods set it
}

// A Server answers queries. It may be used by many goroutines.
type Server struct {
	cfg Config
	lim Limits
}

// New returns a server. It opens nothing.
func New(cfg Config) *Server {
	if cfg.Meter == nil {
		cfg.Meter = budget.NewMeter()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Server{cfg: cfg, lim: cfg.Limits.orDefault()}
}

// Answer judges one message and returns the reply to send, or nil where none is
// due. It keeps no reference to msg.
func (s *Server) Answer(src Source, msg []byte) (reply []byte) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Log.Error("panic while answering a query", "agent", src.Identity.Agent, "panic", p, "stack", string(debug.Stack()))
			reply = s.afterPanic(src, msg)
		}
	}()
	if len(msg) > maxQuery {
		s.refuse(src, verdict.Refuse(stage, codes.DNSMalformed, fmt.Sprintf("query of more than %d bytes", maxQuery)))
		return nil
	}
	q, err := dnswire.ParseQuery(msg)
	if err != nil {
		return s.malformed(src, err)
	}
	return s.answer(src, &q)
}

// answer judges a query that could be read.
func (s *Server) answer(src Source, q *dnswire.Query) []byte {
	v, under, revision := s.judge(src, q)
	if spent := s.spend(src); !spent.Allowed() {
		v = spent
	}
	if v.Allowed() {
		v = s.count(src, q.Host, under, v)
	}
	var address netip.Addr
	if v.Allowed() && q.Type == dnswire.TypeA {
		address, v = s.synthetic(src, q.Host, v)
	}
	d := s.decision(src, q, v, revision)
	if address.IsValid() {
		d.Detail = joined(address.String(), d.Detail)
	}
	if err := s.cfg.Recorder.Decide(d); err != nil {
		code := audit.CodeOf(err)
		if code == codes.AuditQuota {
			s.refuse(src, verdict.Refuse(stage, code, err.Error()))
		} else {
			// The journal has said so, once for all who go on asking.
			s.cfg.Log.Debug("query refused: it cannot be recorded", "agent", src.Identity.Agent, "err", err)
		}
		return q.Refuse(code)
	}
	if !v.Allowed() {
		return q.Refuse(v.Why())
	}
	// The record may have waited for the disk: what allowed the query then need
	// not stand now.
	if again, _, revision := s.judge(src, q); !again.Allowed() {
		_ = s.cfg.Recorder.Decide(s.decision(src, q, again, revision)) // refused either way
		return q.Refuse(again.Why())
	}
	if address.IsValid() {
		return q.Address(address, ttl)
	}
	return q.NoData(ttl)
}

// spend counts the question against the agent's budgets, whatever the answer.
func (s *Server) spend(src Source) verdict.Verdict {
	current, _, held := s.cfg.Policies.Current()
	if !held.Allowed() {
		return held
	}
	return s.cfg.Meter.Once(src.Identity.Agent, quota.Queries, current.Agent(src.Identity.Agent).Budgets(), s.cfg.Now())
}

// judge decides about the name first and the type second, so that a refusal for
// the type tells that the name would have been allowed. under is the wildcard
// that lets the name in, if only one does.
func (s *Server) judge(src Source, q *dnswire.Query) (v verdict.Verdict, under names.Pattern, revision uint64) {
	current, revision, held := s.cfg.Policies.Current()
	if !held.Allowed() {
		return held, under, revision
	}
	if q.HostErr != nil {
		return verdict.Refuse(stage, codes.DNSNameNotAllowed, q.HostErr.Error()), under, revision
	}
	d := current.Agent(src.Identity.Agent).Host(q.Host, s.cfg.Now())
	v = d.Verdict
	switch {
	case !v.Allowed():
		v.Stage = stage
		// A resolver hears of no port: without a rule for any, it is the name.
		if c := v.Why(); c == codes.HostNotAllowed || c == codes.PortNotAllowed {
			v.Code = codes.DNSNameNotAllowed
		}
		return v, under, revision
	case q.Class != dnswire.ClassIN:
		return verdict.Refuse(stage, codes.DNSTypeDenied, fmt.Sprintf("class %d", q.Class)), under, revision
	}
	switch q.Type {
	case dnswire.TypeA, dnswire.TypeAAAA, dnswire.TypeHTTPS, dnswire.TypeSVCB:
		return v, d.Under, revision
	}
	return verdict.Refuse(stage, codes.DNSTypeDenied, "type "+q.Type.String()), under, revision
}

// stage is what verdicts of this plane name.
const stage = "name"

// count counts an allowed name, if the agent made it up, or turns the verdict.
func (s *Server) count(src Source, h names.Host, under names.Pattern, v verdict.Verdict) verdict.Verdict {
	b := s.cfg.Budget.Take(src.Identity.Agent, h, under, s.cfg.Now())
	if !b.Allowed() {
		return b
	}
	v.Detail = joined(v.Detail, b.Detail)
	return v
}

// joined puts what a record says together.
func joined(one, other string) string {
	if one == "" || other == "" {
		return one + other
	}
	return one + ", " + other
}

// synthetic finds the address for an allowed name, or turns the verdict.
func (s *Server) synthetic(src Source, h names.Host, v verdict.Verdict) (netip.Addr, verdict.Verdict) {
	a, err := s.cfg.Addresses.Synthetic(src.Identity.Agent, h)
	if err == nil {
		return a, v
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return netip.Addr{}, verdict.Refuse(stage, e.Code, e.Detail)
	}
	s.cfg.Log.Error("no synthetic address", "agent", src.Identity.Agent, "host", h.String(), "err", err)
	return netip.Addr{}, verdict.Refuse(stage, codes.InternalError, "no synthetic address: "+err.Error())
}

// decision is the record of what was decided about q.
func (s *Server) decision(src Source, q *dnswire.Query, v verdict.Verdict, revision uint64) *audit.Decision {
	d := s.blank(src, v, revision)
	d.Method, d.Host = q.Type.String(), q.Host.String()
	if q.Name != d.Host {
		d.Asked = q.Name
	}
	d.Sensitive = addr.IsMetadataHost(q.Name)
	return d
}

// blank is the record of a verdict about a query of which nothing is known.
func (s *Server) blank(src Source, v verdict.Verdict, revision uint64) *audit.Decision {
	return &audit.Decision{
		Request: ids.NewRequest(), Identity: src.Identity, Client: src.Client, Revision: revision, Proto: "dns",
		Verdict: v.Effect, Code: codeOf(v), Stage: v.Stage, Rule: v.Rule, Detail: v.Detail,
	}
}

func codeOf(v verdict.Verdict) codes.Code {
	if v.Allowed() {
		return ""
	}
	return v.Why()
}

// malformed records a message that could not be read and gives its reply.
func (s *Server) malformed(src Source, err error) []byte {
	var reply []byte
	if e, ok := errors.AsType[*dnswire.QueryError](err); ok {
		reply = e.Reply
	}
	s.refuse(src, verdict.Refuse(stage, codes.DNSMalformed, err.Error()))
	return reply
}

// refuse records a refusal that stands whether or not it can be recorded.
func (s *Server) refuse(src Source, v verdict.Verdict) {
	_, revision, _ := s.cfg.Policies.Current()
	if err := s.cfg.Recorder.Decide(s.blank(src, v, revision)); err != nil {
		s.cfg.Log.Debug("a refused query cannot be recorded", "agent", src.Identity.Agent, "err", err)
	}
}

// afterPanic ends the query that caused a panic: denied and recorded. Should
// that panic too, there is no reply.
func (s *Server) afterPanic(src Source, msg []byte) (reply []byte) {
	defer func() {
		if recover() != nil {
			reply = nil
		}
	}()
	s.refuse(src, verdict.Refuse(stage, codes.InternalError, "panic"))
	q, err := dnswire.ParseQuery(msg)
	if err != nil {
		return nil
	}
	return q.Fail(codes.InternalError)
}

// overLimit refuses a query that came too fast.
func (s *Server) overLimit(src Source, msg []byte) []byte {
	s.refuse(src, verdict.Refuse(stage, codes.RateLimited, fmt.Sprintf("more than %d queries a second", s.lim.PerSecond)))
	q, err := dnswire.ParseQuery(msg)
	if err != nil {
		return nil
	}
	return q.Refuse(codes.RateLimited)
}
