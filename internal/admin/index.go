// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/index"
	"bawn/internal/peercred"
)

// openIndex opens the audit index. Admin does not depend on it: without it the
// log is read from the journals.
func (s *Server) openIndex(ctx context.Context) *index.Index {
	p := s.o.Paths
	return index.Open(ctx, index.Options{
		Path: p.Index(), Journals: []string{p.Journal("proxy"), p.Journal("admin")}, Keep: s.keep(), Log: s.o.Log, Now: s.o.Now,
	})
}

func (s *Server) keep() audit.Keep {
	age, size := s.o.Config.Audit.Bounds()
	return audit.Keep{Age: age, Size: size}
}

// Index is the audit index: its health is for metrics and the doctor.
func (s *Server) Index() *index.Index { return s.index }

// through names the file of a plane's series in front of which nothing is needed
// any more.
func (s *Server) through(plane string) map[string]string {
	indexed, covered := s.index.Indexed(plane), s.signer.Covered(plane).File
	if indexed == "" || covered == "" {
		return nil
	}
	return map[string]string{plane: min(indexed, covered)} // names of one series are ordered as their files are
}

// pruneEvery is how often old files of admin's own journal are looked for.
const pruneEvery = time.Minute

// prune deletes the old files of admin's own journal.
func (s *Server) prune(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pruneEvery):
		}
		gone, err := audit.Prune(s.o.Paths.Journal("admin"), "admin", s.through("admin")["admin"], s.keep(), s.o.Now())
		for _, name := range gone {
			s.o.Log.Info("an old file of the journal is deleted; it is indexed and covered", "file", name)
		}
		if err != nil {
			s.o.Log.Error("old files of the journal cannot be deleted", "error", err)
		}
	}
}

// catchUpTime is how long a question waits for the newest records to be indexed.
const catchUpTime = time.Second

// note brings the index up to the end of the journals, and says in which way it
// is not, if it is not.
func (s *Server) note(ctx context.Context) (note string, caughtUp bool) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	caughtUp = s.index.CatchUp(ctx)
	h := s.index.Health()
	var notes []string
	if !caughtUp {
		notes = append(notes, fmt.Sprintf("the audit index is behind: %d bytes of the journals are not in it yet", h.Behind))
		if h.Alarm != "" {
			notes = append(notes, h.Alarm)
		}
	}
	if h.Damages > 0 {
		for _, ser := range h.Series {
			if ser.Damage != "" {
				notes = append(notes, fmt.Sprintf("%d places of the journal of %s could not be read or linked, the last: %s", ser.Damages, ser.Plane, ser.Damage))
			}
		}
	}
	return strings.Join(notes, "; "), caughtUp
}

// log streams entries as JSON lines, oldest first: from the index, or where that
// is behind or cannot be read, from the proxy's journal.
func (s *Server) log(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	values := q.URL.Query()
	before, err := parseBefore(values)
	if err != nil {
		return err
	}
	f, follow, err := parseFilter(values)
	if err != nil {
		return err
	}
	f.NoActs = f.Plane == ""
	dir := s.o.Paths.Journal("proxy")
	if follow {
		return stream(w, q, audit.Follow(q.Context(), dir, f))
	}
	note, caughtUp := s.note(q.Context())
	if !caughtUp && before == (index.Cursor{}) {
		setNote(w, note+"; this was read from the journal itself")
		return stream(w, q, audit.Scan(dir, f))
	}
	setNote(w, note)
	if f.Limit == 0 {
		return stream(w, q, s.index.Entries(q.Context(), f))
	}
	page, more, err := s.index.Page(q.Context(), f, before)
	if err != nil {
		return err
	}
	if more != (index.Cursor{}) {
		w.Header().Set(apitype.HeadMore, more.String())
	}
	return stream(w, q, func(yield func(audit.Entry, error) bool) {
		for _, e := range page {
			if !yield(e, nil) {
				return
			}
		}
	})
}

// setNote puts a note into a head, which holds one line of plain text.
func setNote(w http.ResponseWriter, note string) {
	if note != "" {
		w.Header().Set(apitype.HeadNote, strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '?'
			}
			return r
		}, note))
	}
}

// parseBefore takes the cursor out of a query.
func parseBefore(q url.Values) (index.Cursor, error) {
	list, ok := q["before"]
	if !ok {
		return index.Cursor{}, nil
	}
	q.Del("before")
	c, err := index.ParseCursor(list[0])
	if err != nil || len(list) != 1 || q.Get("limit") == "" {
		return c, badRequest("log: before %q is no place that a page with a limit gave", list[0])
	}
	return c, nil
}

// groups are what totals can be grouped by.
var groups = map[string]int{
	"agent": index.ByAgent, "user": index.ByUser, "host": index.ByHost, "code": index.ByCode, "hour": index.ByHour,
}

// logTotals adds up what a filter chooses.
func (s *Server) logTotals(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	values := q.URL.Query()
	by := 0
	for _, name := range strings.Split(values.Get("by"), ",") {
		if groups[name] == 0 {
			return badRequest("log: by %q is none of agent, user, host, code and hour", name)
		}
		by |= groups[name]
	}
	values.Del("by")
	return s.answerTotals(w, q.Context(), values, by)
}

// usage adds up by agent and host.
func (s *Server) usage(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	return s.answerTotals(w, q.Context(), q.URL.Query(), index.ByAgent|index.ByHost)
}

func (s *Server) answerTotals(w http.ResponseWriter, ctx context.Context, values url.Values, by int) error {
	f, follow, err := parseFilter(values)
	if err != nil {
		return err
	}
	if follow || f.Limit != 0 {
		return badRequest("log: totals are of everything, so limit and follow do not go with them")
	}
	out := apitype.Totals{Totals: []apitype.Total{}}
	out.Note, _ = s.note(ctx)
	list, err := s.index.Totals(ctx, f, by)
	if err != nil {
		return err
	}
	for _, t := range list {
		out.Totals = append(out.Totals, totalOf(t))
	}
	out.Since, out.Until = known(f.Since), known(f.Until)
	writeJSON(w, http.StatusOK, out)
	return nil
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func totalOf(t index.Total) apitype.Total {
	return apitype.Total{
		Agent: t.Agent, User: t.User, Host: t.Host, Code: t.Code, Hour: known(t.Hour),
		Requests: t.Requests, Denied: t.Denied, DNS: t.DNS, Messages: t.Messages, Up: t.Up, Down: t.Down,
	}
}

// who says which session was behind an address.
func (s *Server) who(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	a, err := parseAsking(q.URL.Query())
	if err != nil {
		return err
	}
	out := apitype.Who{Address: a.Address, At: a.At, Found: []apitype.Suspect{}}
	out.Note, _ = s.note(q.Context())
	f, err := s.index.Who(q.Context(), a)
	if err != nil {
		return err
	}
	out.Side, out.Certain = f.Side, f.Certain()
	for _, x := range f.Suspects {
		out.Found = append(out.Found, suspectOf(x))
	}
	out.Why = whyOf(f)
	writeJSON(w, http.StatusOK, out)
	return nil
}

func parseAsking(q url.Values) (a index.Asking, err error) {
	for k := range q {
		switch k {
		case "address", "upstream", "at", "within", "agent":
		default:
			return a, badRequest("who: %q is unknown", k)
		}
	}
	ap, err := netip.ParseAddrPort(q.Get("address"))
	if err != nil || ap.Port() == 0 {
		return a, badRequest("who: %q is not ADDRESS:PORT", q.Get("address"))
	}
	a.Address = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
	a.Upstream, a.Agent = q.Get("upstream") == "true", q.Get("agent")
	if a.At, err = filterTime("at", q.Get("at")); err != nil || a.At.IsZero() {
		return a, badRequest("who: at %q is not a time (RFC 3339)", q.Get("at"))
	}
	if within := q.Get("within"); within != "" {
		if a.Within, err = time.ParseDuration(within); err != nil || a.Within < 0 || a.Within > time.Hour {
			return a, badRequest("who: within %q is not a duration up to an hour", within)
		}
	}
	return a, nil
}

func suspectOf(x index.Suspect) apitype.Suspect {
	d := x.Entry.Decision
	out := apitype.Suspect{
		Identity: x.Identity, Certainty: x.Certainty.String(), Request: d.Request, What: whatOf(d),
		Verdict: d.Verdict.String(), Code: string(d.Code), Client: d.Client, From: x.From, To: known(x.To),
	}
	switch {
	case x.Entry.Outcome != nil:
		out.Local, out.Upstream = x.Entry.Outcome.Local, x.Entry.Outcome.Upstream
	case x.Entry.Dial != nil:
		out.Local, out.Upstream = x.Entry.Dial.Local, x.Entry.Dial.Upstream
	}
	return out
}

func whatOf(d *audit.Decision) string {
	parts := []string{d.Method, d.Host + d.Path}
	if d.Method == "" || d.Proto == "dns" {
		parts = append([]string{d.Proto}, parts...)
	}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

// whyOf says in words what an answer rests on.
func whyOf(f *index.Found) string {
	if len(f.Suspects) == 0 {
		return "nothing on record has the address near that time"
	}
	best, strong := f.Suspects[0].Certainty, 0
	for _, s := range f.Suspects {
		if s.Certainty >= index.Between {
			strong++
		}
	}
	switch {
	case f.More:
		return "more requests had the address near that time than were looked at, so that others may have been behind it: ask for Bawn's own end of the connection, or name the agent"
	case f.Certain():
		return "a request was under way then, and no other session had the address"
	case strong > 1 && f.Side == "server":
		return fmt.Sprintf("%d sessions were connected to the server then", strong)
	case strong > 1:
		return fmt.Sprintf("%d sessions had the address: each network slot has addresses of its own, so name the agent", strong)
	case best == index.Carried:
		return "a request was under way then; other sessions had the address at other times"
	case best == index.Between:
		return "no request was under way, but this session had the address before and after"
	case best == index.Earlier:
		return "no request was under way; this is the last one before that had the address"
	}
	return "no request was under way; this is the first one after that had the address"
}
