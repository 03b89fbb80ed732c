// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/audit"
	"bawn/internal/termfilter"
)

// logFlags are what `bawn log` was told.
type logFlags struct {
	filters      map[string]*string // by the query parameter
	since, until string
	limit        int
	status       int
	before, by   string
	follow, json bool
}

func (a *app) logCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "log [flags]",
		Short: "Show what agents asked for, what was decided and what came of it",
		Long: `Show what agents asked for, what was decided and what came of it, oldest first.

STATUS is the HTTP status of the answer, UP and DOWN are bytes to and from the
server. A request that was refused has none, and one that goes on or ended within
the last second has none yet. All fields are in --json.

VERDICT is allow or deny. "ended" marks a second row of a request that was allowed:
what came of it, where its first row was printed before that was known (with -f).
With --plane admin it says what came of an operator's act: done, refused (nothing was
changed) or failed; "-" is an act of which no end is on record.
"bawn codes CODE" explains a code.

Filters are answered from the audit index, and all that are given have to hold.
With --limit, what is older than the page follows with --before. --by adds
up instead of listing; its columns are those of "bawn usage", see its --help.`,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, time.Now())
			if err != nil {
				return err
			}
			if f.by != "" {
				return a.printTotals(cmd.Context(), q, f)
			}
			body, err := a.client().Log(cmd.Context(), q)
			if err != nil {
				return err
			}
			defer body.Close()
			err = a.printLog(body, f)
			a.printNote(body.Note)
			if body.More != "" && err == nil {
				fmt.Fprintf(a.stderr, "bawn: there is more: add --before %s\n", termfilter.Line(body.More))
			}
			if cmd.Context().Err() != nil {
				return nil // ended by the operator
			}
			return err
		},
	}
	f.declare(cmd)
	return cmd
}

func (f *logFlags) declare(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.filters = map[string]*string{
		"agent":   fl.String("agent", "", "only of `AGENT`"),
		"user":    fl.String("user", "", "only for `USER`"),
		"host":    fl.String("host", "", "only to `HOST`"),
		"verdict": fl.String("verdict", "", "only this `VERDICT`: allow, deny or ask"),
		"code":    fl.String("code", "", "only with `CODE`, such as host_not_allowed"),

		"session":  fl.String("session", "", "only of `SESSION`"),
		"plane":    fl.String("plane", "", "only from the journal of `PLANE`: proxy, or admin for what operators did"),
		"rule":     fl.String("rule", "", "only decided by the rule with `ID`"),
		"method":   fl.String("method", "", "only with `METHOD`, such as POST; of DNS the type, such as A"),
		"path":     fl.String("path", "", "only with paths that begin with `PREFIX`"),
		"request":  fl.String("request", "", "only `REQUEST`, and the messages on its WebSocket"),
		"client":   fl.String("client", "", "only from `ADDRESS[:PORT]` in the agent's own network"),
		"upstream": fl.String("upstream", "", "only to a server at `ADDRESS[:PORT]`"),
	}
	fl.IntVar(&f.status, "status", 0, "only answered with this HTTP `STATUS`")
	fl.StringVar(&f.before, "before", "", "with --limit: only in front of `PLACE`, which the page before has named")
	fl.StringVar(&f.by, "by", "", "add up by `WHAT`: agent, user, host, code or hour, or several of them with commas")
	fl.StringVar(&f.since, "since", "", "only from `TIME` on: 30m, 2h and 7d count back from now; or a time as the table shows it, or RFC 3339")
	fl.StringVar(&f.until, "until", "", "only before `TIME`")
	fl.IntVar(&f.limit, "limit", 0, "only the newest `N`")
	fl.BoolVarP(&f.follow, "follow", "f", false, "go on as records are written, from now or from --since on")
	fl.BoolVar(&f.json, "json", false, "print JSON lines")
}

// query turns the flags into what admin is asked.
func (f *logFlags) query(cmd *cobra.Command, now time.Time) (url.Values, error) {
	q := url.Values{}
	for k, v := range f.filters {
		if *v != "" {
			q.Set(k, *v)
		} else if cmd.Flags().Changed(k) {
			return nil, wrongUse(cmd, "--%s is empty", k)
		}
	}
	for k, v := range map[string]string{"since": f.since, "until": f.until} {
		if !cmd.Flags().Changed(k) {
			continue
		}
		t, err := parseTime(v, now)
		if err != nil {
			return nil, wrongUse(cmd, "--%s %q: %s", k, v, timeForms)
		}
		q.Set(k, t.Format(time.RFC3339Nano))
	}
	if f.limit < 0 || cmd.Flags().Changed("limit") && f.limit == 0 {
		return nil, wrongUse(cmd, "--limit %d: not a number from 1", f.limit)
	}
	if f.limit > 0 {
		q.Set("limit", strconv.Itoa(f.limit))
	}
	if f.status != 0 || cmd.Flags().Changed("status") {
		q.Set("status", strconv.Itoa(f.status))
	}
	if f.before != "" {
		if f.limit == 0 {
			return nil, wrongUse(cmd, "--before goes with --limit")
		}
		q.Set("before", f.before)
	}
	if f.by != "" {
		if f.follow || f.limit > 0 {
			return nil, wrongUse(cmd, "--by adds everything up, so --limit and --follow do not go with it")
		}
		q.Set("by", f.by)
	}
	if f.follow {
		if f.limit > 0 || f.until != "" {
			return nil, wrongUse(cmd, "--follow goes on for ever, so --limit and --until do not go with it: say --since")
		}
		q.Set("follow", "true")
	}
	return q, nil
}

// timeForms says what parseTime reads.
const timeForms = "neither a time nor a duration such as 30m, 2h, 7d, 2026-01-31, \"2026-01-31 08:00:00\" or 2026-01-31T08:00:00Z"

// parseTime reads a duration before now, or a time: of this place, as the table
// shows it, or with its own zone.
func parseTime(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if n, err := strconv.ParseUint(strings.TrimSuffix(s, "d"), 10, 16); err == nil && strings.HasSuffix(s, "d") {
		return now.Add(-time.Duration(n) * 24 * time.Hour), nil
	}
	for _, layout := range []string{time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Parse(time.RFC3339Nano, s)
}

// logLine is one line of the stream: an entry, or the error that ended it.
type logLine struct {
	audit.Entry
	Error string `json:"error,omitempty"`
}

func (a *app) printLog(body io.Reader, f logFlags) error {
	show, end := a.printers(f)
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && f.follow:
			return errors.Join(end(), errors.New("following the log: admin has gone away"))
		case errors.Is(err, io.EOF):
			return end()
		case err != nil:
			return errors.Join(end(), fmt.Errorf("reading the log: %w", err))
		}
		var l logLine
		if err := json.Unmarshal(line, &l); err != nil {
			return errors.Join(end(), fmt.Errorf("reading the log: %w", err))
		}
		if l.Error != "" {
			return errors.Join(end(), errors.New("reading the log: "+l.Error))
		}
		if err := show(line, l.Entry); err != nil {
			return fmt.Errorf("printing the log: %w", err)
		}
	}
}

// printers returns what prints one entry, and what prints whatever waits.
func (a *app) printers(f logFlags) (show func(line []byte, e audit.Entry) error, end func() error) {
	if f.json {
		show = func(line []byte, _ audit.Entry) error {
			_, err := a.stdout.Write(visible(line))
			return err
		}
		return show, func() error { return nil }
	}
	t := newLogTable(a.stdout, f.follow)
	if f.follow {
		t.flush() // the heads: a sign that somebody waits
	}
	return func(_ []byte, e audit.Entry) error { return t.add(e) }, t.flush
}
