// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
)

func (a *app) auditExportCommand() *cobra.Command {
	var f struct{ out, since, until, agent, user, format string }
	cmd := &cobra.Command{
		Use:   "export --out PATH",
		Short: "Copy the record with its proof, as whole series or as chosen records",
		Long: `Copy the record so that somebody else can check it with "bawn audit verify", or
with a program of their own (docs/proof.md), and the public key alone.

Without --agent, --user and --format, whole series are copied to the new directory
PATH: nothing can be missing from them, nor, with --since and --until, from that
time. With --agent or --user the chosen records go to the new file PATH, each with
the proof that it is in the record; that there are no others of that agent is not
proven by it.

--format ocsf (Open Cybersecurity Schema Framework 1.9.0, JSON lines) and cef write
events to the new file PATH, and the proof of the records that they are made of to
PATH.proof.jsonl. Names in the events, such as proxy/123, are those of records.`,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ask := apitype.ExportAudit{Format: f.format, Agent: f.agent, User: f.user}
			if err := exportTimes(cmd, f.since, f.until, &ask); err != nil {
				return err
			}
			switch {
			case f.out == "":
				return wrongUse(cmd, "--out is missing")
			case f.format != "jsonl" && f.format != "ocsf" && f.format != "cef":
				return wrongUse(cmd, "--format %q: is not jsonl, ocsf or cef", f.format)
			}
			for _, flag := range []string{"agent", "user"} {
				if cmd.Flags().Changed(flag) && cmd.Flag(flag).Value.String() == "" {
					return wrongUse(cmd, "--%s is empty", flag)
				}
			}
			if f.format == "jsonl" && f.agent == "" && f.user == "" {
				ask.Format = "whole"
			}
			return a.export(cmd, ask, f.out)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.out, "out", "", "new directory or file `PATH`")
	fl.StringVar(&f.since, "since", "", "only from `TIME` on: 30m and 2h count back from now; or a time as the table shows it, or RFC 3339")
	fl.StringVar(&f.until, "until", "", "only before `TIME`")
	fl.StringVar(&f.agent, "agent", "", "only of `AGENT`")
	fl.StringVar(&f.user, "user", "", "only for `USER`")
	fl.StringVar(&f.format, "format", "jsonl", "`FORM`: jsonl, ocsf or cef")
	return cmd
}

func exportTimes(cmd *cobra.Command, since, until string, ask *apitype.ExportAudit) error {
	for flag, to := range map[string]struct {
		text string
		t    *time.Time
	}{"since": {since, &ask.Since}, "until": {until, &ask.Until}} {
		if !cmd.Flags().Changed(flag) {
			continue
		}
		t, err := parseTime(to.text, time.Now())
		if err != nil {
			return wrongUse(cmd, "--%s %q: neither a time nor a duration such as 30m, 2h, 2026-01-31, \"2026-01-31 08:00:00\" or 2026-01-31T08:00:00Z", flag, to.text)
		}
		*to.t = t.UTC()
	}
	return nil
}

// export writes what admin sends. What was written of an export that fails is
// removed again.
func (a *app) export(cmd *cobra.Command, ask apitype.ExportAudit, out string) (err error) {
	e := exporter{out: out, format: ask.Format}
	if ask.Format == "whole" {
		if err := os.Mkdir(out, 0o755); errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("exporting: %s is there already", out)
		} else if err != nil {
			return fmt.Errorf("exporting: %w", err)
		}
	}
	defer func() {
		if err != nil {
			e.remove()
		}
	}()
	end, err := a.client().ExportAudit(cmd.Context(), ask, e.take)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s in %s\n", count(int(end.Records), "record"), strings.Join(e.shown(), " and "))
	return nil
}

// An exporter writes the files of one export.
type exporter struct {
	out, format string
	files       []string
}

// partForm is what a file of an export of whole series may be called.
var partForm = regexp.MustCompile(`^[a-z]+(/[a-z]+)*/[a-z][a-z0-9.-]*$`)

func (e *exporter) take(name string, r io.Reader) error {
	path := e.out
	switch {
	case e.format == "whole":
		if !partForm.MatchString(name) || strings.Contains(name, "..") {
			return fmt.Errorf("exporting: admin sent a file named %q", name)
		}
		path = filepath.Join(e.out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("exporting: %w", err)
		}
	case name == "proof" && e.format != "jsonl":
		path += ".proof.jsonl"
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	e.files = append(e.files, path)
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	return nil
}

func (e *exporter) shown() []string {
	if e.format == "whole" {
		return []string{e.out}
	}
	return e.files
}

// remove takes away what this export has made, and nothing else.
func (e *exporter) remove() {
	if e.format == "whole" {
		os.RemoveAll(e.out)
		return
	}
	for _, f := range e.files {
		os.Remove(f)
	}
}
