// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/proof"
	"bawn/internal/termfilter"
)

func (a *app) auditCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "audit", Short: "Prove the record: check it, export it, keep its anchors; show operators' acts",
	},
		a.auditVerifyCommand(), a.auditExportCommand(), a.auditAnchorsCommand(), a.auditActsCommand(),
	)
}

// statusTampered is the exit status of `bawn audit verify` where something is
// not what was written. That it could not be read is 1, as everywhere.
const statusTampered = 3

func (a *app) auditVerifyCommand() *cobra.Command {
	var f struct {
		key, anchor string
		json        bool
	}
	cmd := &cobra.Command{
		Use:   "verify [DIR|FILE]",
		Short: "Check journals and checkpoints, or an export, with nothing but the public key",
		Long: `Check that the record is what was written: nothing changed, removed, moved or
replayed. DIR is a state directory (/var/lib/bawn, the default) or an export of
whole series, FILE an export of chosen records. Neither admin nor a database is
asked.

The key is that of --key. Without it the one that lies with the record is taken,
which proves nothing against somebody who could replace both. --anchor is a file
of checkpoints that were kept elsewhere ("bawn audit anchors" prints them): it
shows that the record was not taken back to an earlier state. An export ends when
it is made: of anchors that were signed later, it is said that it does not cover
them, which is no fault.

Exit status: 0 everything is as it was written, 3 something is not, 1 it could
not be read, 2 wrong use.`,
		Args: atMost("DIR|FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := a.paths().Lib()
			if len(args) == 1 {
				path = args[0]
			}
			rep, notes, err := verify(path, a.paths().Lib(), f.key, f.anchor)
			if err != nil {
				return readable(err)
			}
			if f.json {
				err = printJSON(a.stdout, struct {
					OK bool `json:"ok"`
					proof.Report
				}{rep.OK(), rep})
			} else {
				err = printProof(a.stdout, rep, notes)
			}
			if err == nil && !rep.OK() {
				return &statusError{statusTampered}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&f.key, "key", "", "`FILE` with the public key, from elsewhere than the record")
	cmd.Flags().StringVar(&f.anchor, "anchor", "", "`FILE` of checkpoints that were kept elsewhere")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// atMost takes no argument or the named one.
func atMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return wants(name)(cmd, args)
	}
}

// readable says what to do where the record is not for the caller to read.
func readable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &apitype.Error{Message: err.Error(), Hint: `the journals on the host are for root to read: use sudo; or "bawn audit export" gives an operator a copy to check`}
	}
	return err
}

// sameDirectory reports whether two paths are one directory.
func sameDirectory(info fs.FileInfo, path string) bool {
	other, err := os.Stat(path)
	return err == nil && os.SameFile(info, other)
}

// verify checks what is at path; lib is this host's own state directory. The notes
// say what the result does not cover.
func verify(path, lib, keyFile, anchorFile string) (rep proof.Report, notes []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return rep, nil, err
	}
	l := proof.Layout{Dir: path}
	l.Export = !sameDirectory(info, lib) && !l.Host()
	if keyFile == "" && info.IsDir() {
		keyFile = l.Key()
		notes = append(notes, "the key is the one that lies with the record: against somebody who could replace both, give --key")
	}
	if keyFile == "" {
		return rep, nil, &usageError{message: "audit verify: --key is missing", hint: "an export of chosen records holds no key; /var/lib/bawn/public/audit.pub of the host is it"}
	}
	key, err := proof.ReadKey(keyFile)
	if err != nil {
		return rep, nil, err
	}
	var anchors []proof.Note
	var bad []proof.Fault
	if anchorFile != "" {
		text, err := os.ReadFile(anchorFile)
		if err != nil {
			return rep, nil, fmt.Errorf("reading anchors: %w", err)
		}
		if anchors, bad = proof.ParseAnchors(text, key); len(anchors)+len(bad) == 0 {
			return rep, nil, fmt.Errorf("reading anchors: %s holds no checkpoint", anchorFile)
		}
	} else {
		notes = append(notes, "without --anchor it cannot be told whether all of it was taken back to an earlier state")
	}
	if info.IsDir() {
		rep, err = proof.Verify(l, key, anchors)
	} else {
		rep, err = proof.CheckChoice(path, key, anchors)
	}
	rep.Faults = append(rep.Faults, bad...)
	return rep, notes, err
}

// printProof prints what was found. Names of files, and of nothing else, are not
// Bawn's own.
func printProof(out io.Writer, rep proof.Report, notes []string) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintln(&b, termfilter.Line(fmt.Sprintf(format, args...))) }
	line("key %s", rep.Key)
	for _, s := range rep.Series {
		line("%s: records %d to %d in %s; %s cover up to record %d (signed %s)", s.Series, s.First, s.Last, count(s.Files, "file"), count(int(s.Checkpoints), "checkpoint"), s.Covered, since(s.Signed))
		if s.Gone {
			line("  older files are gone, as retention removes them: nothing is said of records before %d (%s)", s.First, since(s.Oldest))
		}
		if s.Beyond > 0 {
			line("  %s behind that: held by the chain alone, and the newest by nothing", counted(int64(s.Beyond), "record"))
		}
		for _, t := range s.Torn {
			line("  torn by a crash, no fault: %d bytes at byte %d of %s", t.Bytes, t.From, t.File)
		}
	}
	if c := rep.Choice; c != nil {
		line("%s proven to be in the record as written", counted(int64(c.Records), "record"))
		line("chosen, as the file says: %s", c.Says)
		if c.Unrelated > 0 {
			line("%s of another size than the checkpoints in the file, and nothing is said by that: export whole series to compare", count(c.Unrelated, "anchor"))
		}
		line("that these are all of that kind is not proven: only an export of whole series is")
	}
	for _, n := range notes {
		line("note: %s", n)
	}
	all := rep.All()
	for _, f := range all {
		line("FAULT %s: %s%s: %s", f.Kind, where(f.Place), numbers(f), f.Detail)
	}
	late := rep.Uncovered()
	for _, n := range late {
		ends := "this export has nothing of that series"
		if n.Ends > 0 {
			ends = fmt.Sprintf("this export ends with record %d", n.Ends)
		}
		line("NOT COVERED by this export: the anchor of %s signed at %s proves records up to %d, and %s", n.Series, since(n.Signed), n.Anchor, ends)
	}
	switch {
	case len(all) == 0 && len(late) > 0:
		line("everything that is here is as it was written; whether more should be here, an export cannot show: check the host, or an export that was made after the anchor")
	case len(all) == 0:
		line("everything is as it was written")
	default:
		line("NOT as it was written: %s", count(len(all), "fault"))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func since(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

func where(p proof.Place) string {
	if p.File == "" {
		return "-"
	}
	return p.String()
}

func numbers(f proof.Fault) string {
	switch {
	case f.Record == 0:
		return ""
	case f.Record == f.To || f.To == 0:
		return fmt.Sprintf(", record %d", f.Record)
	}
	return fmt.Sprintf(", records %d to %d", f.Record, f.To)
}

func (a *app) auditAnchorsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "anchors [DIR]",
		Short: "Print the newest checkpoints, to be kept where nobody on this host can change them",
		Long: `Print the newest signed checkpoint of each journal. On paper, in a mail, in another
log: whoever holds one can tell later whether the record was taken back or made
anew, even by root ("bawn audit verify --anchor FILE"). DIR is a state directory
or an export; without it admin is asked.`,
		Args: atMost("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			anchors, err := a.readAnchors(cmd, args)
			if err != nil {
				return readable(err)
			}
			if asJSON {
				return printJSON(a.stdout, anchors)
			}
			var b bytes.Buffer
			fmt.Fprintf(&b, "key %s\n", termfilter.Line(anchors.Key))
			for _, n := range anchors.Notes {
				b.WriteByte('\n')
				for l := range strings.Lines(n) {
					fmt.Fprintln(&b, termfilter.Line(strings.TrimSuffix(l, "\n")))
				}
			}
			_, err = a.stdout.Write(b.Bytes())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) readAnchors(cmd *cobra.Command, args []string) (apitype.Anchors, error) {
	if len(args) == 0 {
		return a.client().Anchors(cmd.Context())
	}
	l := proof.Layout{Dir: args[0]}
	key, err := proof.ReadKey(l.Key())
	if err != nil {
		return apitype.Anchors{}, err
	}
	notes, err := proof.Anchors(l.Checkpoints(), key)
	out := apitype.Anchors{Key: key.String()}
	for _, n := range notes {
		out.Notes = append(out.Notes, string(n.Text))
	}
	return out, err
}

// journalRow is the line of a journal in the status.
func journalRow(j apitype.JournalState) string {
	detail := fmt.Sprintf("%s: signed up to record %d", j.Series, j.Record)
	switch {
	case j.Broken != "":
		detail = fmt.Sprintf("%s: NOT WHAT WAS WRITTEN, found %s: %s", j.Series, clock(j.BrokenAt), j.Broken)
	case j.Fault != "":
		detail += ", and cannot be signed further: " + j.Fault
	case j.Waiting > 0:
		detail += fmt.Sprintf(", %d wait", j.Waiting)
	}
	return statusRow("record", okWord(j.Broken == "" && j.Fault == ""), termfilter.Line(detail))
}
