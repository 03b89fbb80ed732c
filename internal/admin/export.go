// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"path/filepath"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/peercred"
	"bawn/internal/proof"
	"bawn/internal/siem"
)

// exportAudit streams records with their proof, one part a file. The last part,
// "end", says whether it is whole.
func (s *Server) exportAudit(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	var ask apitype.ExportAudit
	if err := readJSON(q, &ask); err != nil {
		return err
	}
	switch ask.Format {
	case "whole", "jsonl", "ocsf", "cef":
	default:
		return badRequest("export: format %q is not whole, jsonl, ocsf or cef", ask.Format)
	}
	if ask.Format == "whole" && ask.Agent+ask.User != "" {
		return badRequest("export: whole series are of all agents and users")
	}
	if err := s.signer.SignNow(); err != nil {
		return fmt.Errorf("covering the journals before an export: %w", err)
	}
	parts := multipart.NewWriter(w)
	w.Header().Set("Content-Type", parts.FormDataContentType())
	n, err := s.writeExport(ask, func(name string) (io.Writer, error) { return newPart(parts, name) })
	end := apitype.ExportEnd{Records: n}
	if err != nil {
		end.Error = err.Error()
	}
	deed(q).Detail += fmt.Sprintf(" records=%d", n)
	last, perr := newPart(parts, "end")
	if perr == nil {
		perr = json.NewEncoder(last).Encode(end)
	}
	if err == nil && perr != nil {
		return fmt.Errorf("sending the export: %w", perr)
	}
	parts.Close()
	if err != nil {
		s.o.Log.Error("an export is not whole", "error", err)
		return &exportError{err}
	}
	return nil
}

// An exportError was told to the caller already.
type exportError struct{ error }

func newPart(parts *multipart.Writer, name string) (io.Writer, error) {
	return parts.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {fmt.Sprintf("form-data; name=%q; filename=%q", "file", name)},
		"Content-Type":        {"application/octet-stream"},
		"X-Bawn-File":         {name},
	})
}

func (s *Server) writeExport(ask apitype.ExportAudit, sink proof.Sink) (uint64, error) {
	l := proof.Layout{Dir: s.o.Paths.Lib()}
	if ask.Format == "whole" {
		return proof.Export(l, s.auditKey, ask.Since, ask.Until, sink)
	}
	if ask.Format != "jsonl" {
		out, err := sink("events")
		if err != nil {
			return 0, err
		}
		if err := s.writeEvents(l, ask, out); err != nil {
			return 0, err
		}
	}
	out, err := sink("proof")
	if err != nil {
		return 0, err
	}
	return proof.Choose(out, l, s.auditKey, proof.Wish{Agent: ask.Agent, User: ask.User, Since: ask.Since, Until: ask.Until})
}

// writeEvents writes entries in another form, one a line.
func (s *Server) writeEvents(l proof.Layout, ask apitype.ExportAudit, out io.Writer) error {
	dirs, err := l.Journals()
	if err != nil {
		return err
	}
	f := audit.Filter{Agent: ask.Agent, User: ask.User, Since: truncated(ask.Since), Until: ask.Until}
	for _, dir := range dirs {
		src := siem.Source{Series: filepath.Base(filepath.Dir(dir)), Version: s.o.Version}
		for e, err := range audit.Scan(dir, f) {
			if err != nil {
				return err
			}
			if e.Late {
				continue // it was written without its outcome
			}
			text := []byte(siem.CEF(e, src))
			if ask.Format == "ocsf" {
				if text, err = siem.OCSF(e, src); err != nil {
					return err
				}
			}
			if _, err := out.Write(append(text, '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}

// truncated is t as records can hold it.
func truncated(t time.Time) time.Time { return t.Truncate(time.Microsecond) }
