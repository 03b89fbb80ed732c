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
	"bawn/internal/verdict"
)

func (a *app) logCommand() *cobra.Command {
	var follow, asJSON bool
	var since, until string
	var limit int
	q := url.Values{}
	filters := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show what agents asked for, what was decided and what came of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for k, v := range filters {
				setIf(q, k, *v)
			}
			if err := setTimes(q, since, until); err != nil {
				return err
			}
			if limit > 0 {
				q.Set("limit", strconv.Itoa(limit))
			}
			if follow {
				q.Set("follow", "true")
			}
			body, err := a.client().Log(cmd.Context(), q)
			if err != nil {
				return err
			}
			defer body.Close()
			err = a.printLog(body, asJSON)
			if cmd.Context().Err() != nil {
				return nil // ended by the operator
			}
			return err
		},
	}
	fl := cmd.Flags()
	for name, usage := range map[string]string{"agent": "of this agent", "user": "for this user", "host": "to this host", "verdict": "allow, deny or ask", "code": "with this code"} {
		filters[name] = fl.String(name, "", "only "+usage)
	}
	fl.StringVar(&since, "since", "", "only from this time on: 2h, 30m, or RFC 3339")
	fl.StringVar(&until, "until", "", "only before this time")
	fl.IntVar(&limit, "limit", 0, "only the newest so many")
	fl.BoolVarP(&follow, "follow", "f", false, "go on as records are written")
	fl.BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func setIf(q url.Values, k, v string) {
	if v != "" {
		q.Set(k, v)
	}
}

func setTimes(q url.Values, since, until string) error {
	for k, v := range map[string]string{"since": since, "until": until} {
		if v == "" {
			continue
		}
		t, err := parseTime(v)
		if err != nil {
			return &usageError{fmt.Sprintf("%s %q: neither a time (RFC 3339) nor a duration", k, v), `for example --since 2h, or --since 2026-01-31T08:00:00Z`}
		}
		q.Set(k, t.Format(time.RFC3339Nano))
	}
	return nil
}

func parseTime(s string) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return time.Now().Add(-d), nil
	}
	return time.Parse(time.RFC3339Nano, s)
}

// logLine is one line of the stream: an entry, or the error that ended it.
type logLine struct {
	audit.Entry
	Error string `json:"error,omitempty"`
}

func (a *app) printLog(body io.Reader, asJSON bool) error {
	lines := bufio.NewReader(body)
	if !asJSON {
		fmt.Fprintf(a.stdout, logFormat, "TIME", "AGENT", "USER", "VERDICT", "CODE", "WHAT", "CAME OF IT")
	}
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		var l logLine
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		if l.Error != "" {
			return errors.New("reading the log: " + l.Error)
		}
		if asJSON {
			_, err = a.stdout.Write(line) // control characters are escaped in JSON
		} else {
			_, err = io.WriteString(a.stdout, logText(l.Entry))
		}
		if err != nil {
			return err
		}
	}
}

const logFormat = "%-19s  %-10s  %-12s  %-7s  %-22s  %s  %s\n"

// logText gives an entry as a table's line. Everything in it may be what an
// agent wrote.
func logText(e audit.Entry) string {
	switch {
	case e.Decision != nil:
		d := e.Decision
		return fmt.Sprintf(logFormat, d.Time.Local().Format(time.DateTime), termfilter.Line(d.Agent), termfilter.Line(d.User),
			d.Verdict, dash(string(codeOf(e))), termfilter.Line(what(d)), termfilter.Line(cameOf(e)))
	case e.Summary != nil:
		s := e.Summary
		return fmt.Sprintf(logFormat, s.To.Local().Format(time.DateTime), termfilter.Line(s.Agent), termfilter.Line(s.User),
			verdict.Deny, "-", fmt.Sprintf("%d more denials, beyond the record budget", s.Denials), "")
	case e.Gap != nil:
		return fmt.Sprintf("%-19s  the journal could not be written from here on: %s (%d requests refused)\n", e.Gap.From.Local().Format(time.DateTime), termfilter.Line(e.Gap.Error), e.Gap.Refused)
	case e.Damage != nil:
		return fmt.Sprintf("damaged line in %s at byte %d: %s\n", termfilter.Line(e.Damage.File), e.Damage.Offset, termfilter.Line(e.Damage.Error))
	}
	return ""
}

func codeOf(e audit.Entry) string {
	if e.Decision.Code == "" && e.Outcome != nil {
		return string(e.Outcome.Code)
	}
	return string(e.Decision.Code)
}

// what says what was asked for: "GET https://host/path", "dns name", "tls
// host:port".
func what(d *audit.Decision) string {
	host := d.Host
	switch {
	case host == "":
		host = d.Asked // as the agent wrote it, port and all
	case d.Port != 0 && d.Port != 443 && (d.Port != 80 || d.Scheme != "http"):
		host += ":" + strconv.Itoa(int(d.Port))
	}
	if d.Method == "" || d.Method == "CONNECT" || d.Scheme == "" {
		return strings.TrimSpace(strings.Join([]string{d.Method, d.Proto, host}, " "))
	}
	return d.Method + " " + d.Scheme + "://" + host + d.Path
}

func cameOf(e audit.Entry) string {
	o := e.Outcome
	if o == nil {
		return ""
	}
	s := fmt.Sprintf("%d, %d up, %d down", o.Status, o.BytesUp, o.BytesDown)
	if o.Cut != "" {
		s += ", cut: " + o.Cut
	}
	if o.Error != "" {
		s += ", " + o.Error
	}
	return s
}
