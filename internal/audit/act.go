// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"strconv"
	"time"

	"bawn/internal/codes"
)

// KindAct is the "kind" of an [Act].
const KindAct = "act"

// An ActName says what was done. The set is closed: [Journal.Act] refuses
// others.
type ActName string

// The acts. OBJECT of a session's act is the session, of an agent's the agent.
const (
	ActAdminStart       ActName = "admin.start"
	ActAdminStop        ActName = "admin.stop"
	ActAgentCreate      ActName = "agent.create"
	ActAgentRemove      ActName = "agent.remove"
	ActAuditExport      ActName = "audit.export"
	ActAuditBreak       ActName = "audit.break"  // a journal is not what was written
	ActAuditPruned      ActName = "audit.pruned" // old files of a journal are gone
	ActBackupMake       ActName = "backup.make"
	ActBackupRestore    ActName = "backup.restore"
	ActCAMake           ActName = "ca.make"
	ActDatabaseMigrate  ActName = "database.migrate"
	ActDoctorRun        ActName = "doctor.run"
	ActGrantAdd         ActName = "grant.add"
	ActGrantEnd         ActName = "grant.end"
	ActIntermediateSign ActName = "intermediate.sign"
	ActKeyMake          ActName = "key.make" // the key that signs checkpoints
	ActPlacementOpen    ActName = "placement.open"
	ActPlacementShut    ActName = "placement.shut"
	ActPolicyApply      ActName = "policy.apply"
	ActPolicyRollback   ActName = "policy.rollback"
	ActSessionEnd       ActName = "session.end"
	ActSessionStart     ActName = "session.start"
)

var actNames = map[ActName]bool{
	ActAdminStart: true, ActAdminStop: true, ActAgentCreate: true, ActAgentRemove: true,
	ActAuditExport: true, ActAuditBreak: true, ActAuditPruned: true, ActBackupMake: true,
	ActBackupRestore: true, ActCAMake: true, ActDatabaseMigrate: true, ActDoctorRun: true,
	ActGrantAdd: true, ActGrantEnd: true, ActIntermediateSign: true, ActKeyMake: true,
	ActPlacementOpen: true, ActPlacementShut: true, ActPolicyApply: true,
	ActPolicyRollback: true, ActSessionEnd: true, ActSessionStart: true,
}

// Known reports whether n is one of the set.
func (n ActName) Known() bool { return actNames[n] }

// An ActResult says what came of an act.
type ActResult string

// The results. An act that is on record without one was begun, and admin ended
// before it did.
const (
	ActBegun   ActResult = ""
	ActDone    ActResult = "done"
	ActRefused ActResult = "refused" // with nothing changed
	ActFailed  ActResult = "failed"  // part of it may have been done
)

// An Act says that an operator, a plane or admin itself does something to what
// there is, not through the gate but to the gate. It is on record before it is
// done, and a second record of the same ID says what came of it. What happens
// in one step has one record, with the result.
type Act struct {
	Seq      uint64     `json:"seq"`
	Time     time.Time  `json:"time"`
	ID       string     `json:"id"` // joins the two records
	Plane    string     `json:"plane"`
	Name     ActName    `json:"act"`
	UID      uint32     `json:"uid"` // who, from the kernel
	Account  string     `json:"account,omitempty"`
	PID      int32      `json:"pid,omitempty"`
	Object   string     `json:"object,omitempty"` // what it is done to
	Agent    string     `json:"agent,omitempty"`  // whom it concerns
	User     string     `json:"user,omitempty"`
	Detail   string     `json:"detail,omitempty"`
	Revision uint64     `json:"revision"`          // in force when this was written: before, and after
	Policy   string     `json:"policy,omitempty"`  // SHA-256 of the text in force then
	Offered  string     `json:"offered,omitempty"` // SHA-256 of the text that the act brings
	Result   ActResult  `json:"result,omitempty"`
	Code     codes.Code `json:"code,omitempty"`
	Error    string     `json:"error,omitempty"`
	Clipped  bool       `json:"clipped,omitempty"`
}

// Act writes a and sets a.Seq. Before an act, with no result, it returns nil
// only when the record is on the disk; after an error the caller must not act,
// and refuses with [codes.JournalUnavailable]. A result that cannot be written
// is kept until the journal works again. A zero a.Time and an empty a.Plane are
// filled in.
func (j *Journal) Act(a *Act) error {
	if !a.Name.Known() {
		return fmt.Errorf("recording act %q: there is no such act", a.Name)
	}
	if a.Time.IsZero() {
		a.Time = j.opt.Now()
	}
	if a.Plane == "" {
		a.Plane = j.opt.Plane
	}
	kind := decisionRecord
	if a.Result != ActBegun {
		kind = keptRecord
	}
	if err := j.act(a, kind); err != nil {
		return fmt.Errorf("recording act %s: %w", a.Name, err)
	}
	if a.Result != ActBegun {
		return nil
	}
	return j.SyncNow()
}

func (j *Journal) act(a *Act, kind recordKind) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	b := j.pending
	at := len(b.records)
	b.add(j.enc.act(b.bodies, a), kind)
	if err := j.commit(b); err != nil {
		return err
	}
	a.Seq = b.first + uint64(at)
	return nil
}

func (e *encoder) act(b []byte, a *Act) []byte {
	b = e.begin(b, KindAct, a.Time)
	b = append(b, `,"id":`...)
	b = e.text1k(b, a.ID)
	b = append(b, `,"plane":`...)
	b = e.text1k(b, a.Plane)
	b = append(b, `,"act":`...)
	b = e.text1k(b, string(a.Name))
	b = append(b, `,"uid":`...)
	b = strconv.AppendUint(b, uint64(a.UID), 10)
	b = e.field(b, `,"account":`, a.Account)
	b = number(b, `,"pid":`, int64(a.PID))
	b = e.field(b, `,"object":`, a.Object)
	b = e.field(b, `,"agent":`, a.Agent)
	b = e.field(b, `,"user":`, a.User)
	b = e.field(b, `,"detail":`, a.Detail)
	b = append(b, `,"revision":`...)
	b = strconv.AppendUint(b, a.Revision, 10)
	b = e.field(b, `,"policy":`, a.Policy)
	b = e.field(b, `,"offered":`, a.Offered)
	b = e.field(b, `,"result":`, string(a.Result))
	b = e.field(b, `,"code":`, string(a.Code))
	b = e.field(b, `,"error":`, a.Error)
	return e.end(b, a.Clipped)
}

// act judges everything but the code, which the result may still bring.
func (f *Filter) act(a *Act) bool {
	return !f.NoActs && f.within(a.Time) && f.Host+f.Session+f.Rule+f.Method+f.Path+f.Request+f.Client == "" && f.Verdict == nil && is(f.Plane, a.Plane) &&
		(f.Agent == "" || f.Agent == a.Agent) && (f.Except == "" || f.Except != a.Agent) &&
		(f.User == "" || f.User == a.User)
}

// act takes in one record of an act: the result goes to the beginning.
func (j *joiner) act(a *Act) {
	key := "act " + a.ID // no request has a space in its id
	if w := j.open[key]; w != nil && a.Result != ActBegun {
		delete(j.open, key)
		w.Result, w.complete = a, true
		if w.gone {
			w.Late = true
			j.queue = append(j.queue, w)
		}
		return
	}
	if !j.filter.act(a) {
		return
	}
	w := &waiting{Entry: Entry{Act: a}, complete: a.Result != ActBegun}
	j.queue = append(j.queue, w)
	if !w.complete {
		if j.open == nil {
			j.open = make(map[string]*waiting)
		}
		j.open[key] = w
	}
}
