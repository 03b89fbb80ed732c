// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The number of an entry is the microsecond of its day, and ten bits that keep
// entries of one microsecond apart.
const tieBits = 10

const dayMicros = int64(24 * time.Hour / time.Microsecond)

// dayOf gives the part that an entry of a time is in. Times that no clock should
// show are left to the caller.
func dayOf(t time.Time) int64 { return floorDiv(t.UnixMicro(), dayMicros) }

func floorDiv(a, b int64) int64 {
	if q := a / b; a%b >= 0 {
		return q
	}
	return a/b - 1
}

func idOf(t time.Time) int64 { return (t.UnixMicro() - dayOf(t)*dayMicros) << tieBits }

func timeOf(day, id int64) time.Time {
	return time.UnixMicro(day*dayMicros + id>>tieBits).UTC()
}

// maxID is above every number of a part.
const maxID = int64(1) << 47

// hourOf gives the hour of the day, 0 to 23.
func hourOf(id int64) int64 { return id >> tieBits / (dayMicros / 24) }

// hourStart is the first number of an hour.
func hourStart(hour int64) int64 { return hour * (dayMicros / 24) << tieBits }

// The bounds of what a part keeps in memory while it is written to.
const (
	maxPaths = 1 << 17
	maxTexts = 1 << 14
)

// A part is one day as the writer sees it: its statements, and the numbers of
// what it has met.
type part struct {
	day     int64
	conn    *sql.Conn
	known   map[string]int64 // shapes by key
	byID    map[int64]*shape
	shapes  int64 // how many there are
	most    int64 // of them, before new ones are widened
	paths   dictionary
	texts   dictionary
	stmts   map[string]*sql.Stmt
	scratch []byte
}

// A dictionary numbers texts. What it has met lately it knows by heart.
type dictionary struct {
	table string
	most  int
	known map[string]int64
	last  int64 // highest number in use
}

func openPart(ctx context.Context, conn *sql.Conn, day, most int64) (*part, error) {
	p := &part{
		day: day, most: most, conn: conn, known: map[string]int64{}, byID: map[int64]*shape{}, stmts: map[string]*sql.Stmt{},
		paths: dictionary{table: "path", most: maxPaths, known: map[string]int64{}},
		texts: dictionary{table: "text", most: maxTexts, known: map[string]int64{}},
	}
	var there int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM parts WHERE day = ?", day).Scan(&there); err != nil {
		return nil, err
	}
	if there == 0 {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf(partSchema, day)); err != nil {
			return nil, err
		}
		if _, err := conn.ExecContext(ctx, "INSERT INTO parts (day, floor) VALUES (?, 0)", day); err != nil {
			return nil, err
		}
	}
	err := conn.QueryRowContext(ctx, fmt.Sprintf(`SELECT (SELECT count(*) FROM shape_%[1]d),
		(SELECT coalesce(max(id), 0) FROM path_%[1]d), (SELECT coalesce(max(id), 0) FROM text_%[1]d)`, day)).
		Scan(&p.shapes, &p.paths.last, &p.texts.last)
	return p, err
}

func (p *part) close() {
	for _, s := range p.stmts {
		s.Close()
	}
}

// stmt returns a statement, in which _DAY stands for the day.
func (p *part) stmt(text string) (*sql.Stmt, error) {
	if s := p.stmts[text]; s != nil {
		return s, nil
	}
	s, err := p.conn.PrepareContext(context.Background(), strings.ReplaceAll(text, "_DAY", "_"+strconv.FormatInt(p.day, 10)))
	if err == nil {
		p.stmts[text] = s
	}
	return s, err
}

func (p *part) exec(text string, args ...any) (sql.Result, error) {
	s, err := p.stmt(text)
	if err != nil {
		return nil, err
	}
	return s.Exec(args...)
}

// number returns the number of a text; NULL for the empty one.
func (p *part) number(d *dictionary, text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	if n, ok := d.known[text]; ok {
		return n, nil
	}
	res, err := p.exec("INSERT INTO "+d.table+"_DAY (id, text) VALUES (?, ?) ON CONFLICT DO NOTHING", d.last+1, text)
	if err != nil {
		return nil, err
	}
	n := d.last + 1
	if made, err := res.RowsAffected(); err != nil {
		return nil, err
	} else if made == 0 {
		s, err := p.stmt("SELECT id FROM " + d.table + "_DAY WHERE text = ?")
		if err != nil {
			return nil, err
		}
		if err := s.QueryRow(text).Scan(&n); err != nil {
			return nil, err
		}
	} else {
		d.last = n
	}
	if len(d.known) >= d.most {
		clear(d.known)
	}
	d.known[text] = n
	return n, nil
}

// address returns the number of an address and port: that of the address, and
// the port. What is no such thing is a text with port 0.
func (p *part) address(s string) (any, error) {
	host, port := splitAddress(s)
	n, err := p.number(&p.texts, host)
	if n == nil || err != nil {
		return nil, err
	}
	return n.(int64)<<16 | port, nil
}

func splitAddress(s string) (host string, port int64) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0
	}
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s[i+1:] {
		return s, 0
	}
	return s[:i], int64(n)
}

func joinAddress(host string, port int64) string {
	if port == 0 {
		return host
	}
	return host + ":" + strconv.FormatInt(port, 10)
}

// shapeID returns the number of a shape, and gives it one.
func (p *part) shapeID(s *shape) (int64, error) {
	p.scratch = s.appendKey(p.scratch[:0])
	if id, ok := p.known[string(p.scratch)]; ok {
		return id, nil
	}
	key := append([]byte(nil), p.scratch...)
	hash := hashOf(key)
	find, err := p.stmt("SELECT id FROM shape_DAY WHERE hash = ? AND key = ?")
	if err != nil {
		return 0, err
	}
	var id int64
	switch err := find.QueryRow(hash, key).Scan(&id); {
	case errors.Is(err, sql.ErrNoRows):
		id = p.shapes + 1
		_, err := p.exec(`INSERT INTO shape_DAY (id, hash, kind, agent, user, session, host, verdict, code, outcode, plane, rule, method, status, wide, dns, key)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, hash, int64(s.kind), s.id.Agent, s.id.User, s.id.Session, s.host, int64(s.verdict), string(s.code), string(s.outcode),
			s.plane, s.rule, s.method, int64(s.status), int64(s.flags&flagWide), isDNS(s.proto), key)
		if err != nil {
			return 0, err
		}
		p.shapes++
	case err != nil:
		return 0, err
	}
	if len(p.known) >= 1<<17 {
		clear(p.known)
		clear(p.byID)
	}
	p.known[string(key)] = id
	return id, nil
}

// shape returns the shape of a number.
func (p *part) shape(id int64) (*shape, error) {
	if s := p.byID[id]; s != nil {
		return s, nil
	}
	find, err := p.stmt("SELECT key FROM shape_DAY WHERE id = ?")
	if err != nil {
		return nil, err
	}
	var key []byte
	if err := find.QueryRow(id).Scan(&key); err != nil {
		return nil, err
	}
	s, err := parseShape(key)
	if err == nil {
		p.byID[id] = s
	}
	return s, err
}

// insert adds an entry and returns its number: id, or the next that is free.
func (p *part) insert(id int64, shape int64, cols columns) (int64, error) {
	for {
		_, err := p.exec(`INSERT INTO row_DAY (id, shape, path, client, local, upstream, request, body, more)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, shape, cols.path, cols.client, cols.local, cols.upstream, cols.request, cols.body, cols.more)
		e, ok := errors.AsType[*sqlite.Error](err)
		if !ok || e.Code() != sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY && e.Code() != sqlite3.SQLITE_CONSTRAINT_ROWID {
			return id, err
		}
		id++
	}
}

// columns are what an entry has beside number and shape; nil is NULL.
type columns struct {
	path, client, local, upstream, request any
	body, more                             []byte
}
