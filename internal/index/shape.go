// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"hash/fnv"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// What an entry is. The numbers are in the database.
const (
	kindDecision = iota + 1
	kindMessage  // a decision about a message of a WebSocket
	kindSummary  // denials that have no record of their own; counted under kindSummed
	kindSummed   // counts alone: the denials of summaries, by code
	kindGap      // the journal could not be written
	kindDamage   // the journal could not be read
	kindLost     // an outcome whose decision is gone
	kindAct      // what an operator did
)

// How far an entry has come.
const (
	stateOpen  = iota // nothing has come of the decision yet, or nothing will
	stateDial         // its upstream connection stands
	stateEnded        // its outcome is known
)

// A shape is what many entries have in common.
type shape struct {
	kind, state    uint64
	id             ids.Identity
	revision       uint64
	plane, arrival string
	proto, method  string
	scheme, host   string
	port           uint64
	sni, alpn      string
	verdict        verdict.Effect
	code           codes.Code
	stage, rule    string
	inspect        string
	flags          uint64 // the constants below
	credential     string
	vetted         string
	status         uint64
	outcode        codes.Code
	cut, presented string
	certificate    string
}

const (
	flagSensitive = 1 << iota
	// flagWide marks a shape without what agents make up (host, port, method,
	// server name): there were so many that they are with each entry instead.
	flagWide
)

func decisionShape(d *audit.Decision) shape {
	s := shape{
		kind: kindDecision, id: d.Identity, revision: d.Revision, plane: d.Plane, arrival: d.Arrival, proto: d.Proto,
		method: d.Method, scheme: d.Scheme, host: d.Host, port: uint64(d.Port), sni: d.SNI, alpn: d.ALPN,
		verdict: d.Verdict, code: d.Code, stage: d.Stage, rule: d.Rule, inspect: d.Inspect,
		credential: d.Credential, vetted: d.Vetted,
	}
	if d.Message != 0 {
		s.kind = kindMessage
	}
	if d.Sensitive {
		s.flags |= flagSensitive
	}
	return s
}

// ends adds what the outcome says.
func (s *shape) ends(o *audit.Outcome) {
	s.state, s.status, s.outcode = stateEnded, uint64(o.Status), o.Code
	s.cut, s.presented, s.certificate = o.Cut, o.Presented, o.Certificate
}

// widen takes out what agents make up.
func (s *shape) widen() {
	s.flags |= flagWide
	s.host, s.port, s.sni, s.method = "", 0, "", ""
}

// decision fills in what the shape knows of a decision.
func (s *shape) decision(d *audit.Decision) {
	d.Identity, d.Revision, d.Plane, d.Arrival, d.Proto = s.id, s.revision, s.plane, s.arrival, s.proto
	d.Scheme, d.ALPN = s.scheme, s.alpn
	d.Verdict, d.Code, d.Stage, d.Rule, d.Inspect = s.verdict, s.code, s.stage, s.rule, s.inspect
	d.Credential, d.Vetted, d.Sensitive = s.credential, s.vetted, s.flags&flagSensitive != 0
	if s.flags&flagWide == 0 {
		d.Method, d.Host, d.Port, d.SNI = s.method, s.host, uint16(s.port), s.sni
	}
}

func (s *shape) outcome(o *audit.Outcome) {
	o.Identity, o.Revision, o.Plane = s.id, s.revision, s.plane
	o.Status, o.Code, o.Cut, o.Presented, o.Certificate = int(s.status), s.outcode, s.cut, s.presented, s.certificate
}

// numbers and texts are the fields in the order of the key.
func (s *shape) numbers() [11]uint64 {
	return [...]uint64{
		s.kind, s.state, uint64(s.id.Slot), s.id.Gen.Epoch, s.id.Gen.Count, s.revision, s.port,
		uint64(s.verdict), s.flags, s.status, 0,
	}
}

func (s *shape) texts() [22]string {
	return [...]string{
		s.id.Session, s.id.Agent, s.id.User, s.plane, s.arrival, s.proto, s.method, s.scheme, s.host, s.sni, s.alpn,
		string(s.code), s.stage, s.rule, s.inspect, s.credential, s.vetted, string(s.outcode), s.cut, s.presented, s.certificate, "",
	}
}

// appendKey appends all of s in one form.
func (s *shape) appendKey(b []byte) []byte {
	for _, n := range s.numbers() {
		b = binary.AppendUvarint(b, n)
	}
	for _, t := range s.texts() {
		b = appendText(b, t)
	}
	return b
}

var errKey = errors.New("the index holds a shape that cannot be read")

func parseShape(key []byte) (*shape, error) {
	r := fields{b: key}
	var n [11]uint64
	var t [22]string
	for i := range n {
		n[i] = r.number()
	}
	for i := range t {
		t[i] = r.text()
	}
	if r.bad {
		return nil, errKey
	}
	return &shape{
		kind: n[0], state: n[1], revision: n[5], port: n[6], verdict: verdict.Effect(n[7]), flags: n[8], status: n[9],
		id: ids.Identity{
			Slot: int(n[2]), Gen: ids.Generation{Epoch: n[3], Count: n[4]},
			Session: t[0], Agent: t[1], User: t[2],
		},
		plane: t[3], arrival: t[4], proto: t[5], method: t[6], scheme: t[7], host: t[8], sni: t[9], alpn: t[10],
		code: codes.Code(t[11]), stage: t[12], rule: t[13], inspect: t[14], credential: t[15], vetted: t[16],
		outcode: codes.Code(t[17]), cut: t[18], presented: t[19], certificate: t[20],
	}, nil
}

func hashOf[T string | []byte](b T) int64 {
	h := fnv.New64a()
	h.Write([]byte(b))
	return int64(h.Sum64())
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// fields reads what appendText and AppendUvarint wrote.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) number() uint64 {
	n, size := binary.Uvarint(f.b)
	if size <= 0 {
		f.bad, f.b = true, nil
		return 0
	}
	f.b = f.b[size:]
	return n
}

func (f *fields) text() string {
	n := f.number()
	if n > uint64(len(f.b)) {
		f.bad, f.b = true, nil
		return ""
	}
	s := string(f.b[:n])
	f.b = f.b[n:]
	return s
}
