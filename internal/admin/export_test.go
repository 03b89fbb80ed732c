// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/ids"
	"bawn/internal/proof"
	"bawn/internal/verdict"
)

// TestAnExportIsCheckedWithTheKeyAlone asks admin for each form and checks it
// as a third party would.
func TestAnExportIsCheckedWithTheKeyAlone(t *testing.T) {
	s, c, _ := newServer(t)
	j, err := audit.OpenJournal(s.o.Paths.Journal("proxy"), audit.Options{Plane: "proxy"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		d := audit.Decision{Request: "r", Identity: ids.Identity{Agent: []string{"dev", "eve"}[i%2], User: "al|ice"}, Method: "GET", Scheme: "https", Host: "a.example", Path: "/\x1b[2J=|", Verdict: verdict.Deny}
		if err := j.Decide(&d); err != nil {
			t.Fatal(err)
		}
	}
	defer j.Close()
	key, err := proof.ReadKey(s.o.Paths.AuditPub())
	if err != nil {
		t.Fatal(err)
	}
	get := func(ask apitype.ExportAudit) map[string][]byte {
		files := map[string][]byte{}
		end, err := c.ExportAudit(t.Context(), ask, func(name string, r io.Reader) error {
			var err error
			files[name], err = io.ReadAll(r)
			return err
		})
		if err != nil || end.Records == 0 {
			t.Fatalf("%+v: %v, %d records", ask, err, end.Records)
		}
		return files
	}
	dir := t.TempDir()
	for name, text := range get(apitype.ExportAudit{Format: "whole"}) {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := proof.Verify(proof.Layout{Dir: dir}, key, nil)
	if err != nil || !rep.OK() || len(rep.Series) != 2 || rep.Series[1].Covered != 31 {
		t.Errorf("whole: %v, %+v", err, rep)
	}
	for _, form := range []string{"jsonl", "ocsf", "cef"} {
		files := get(apitype.ExportAudit{Format: form, Agent: "dev"})
		rep, err := proof.ReadChoice(bytes.NewReader(files["proof"]), "x", key, nil)
		if err != nil || !rep.OK() || rep.Choice.Records != 15 {
			t.Errorf("%s: %v, %+v", form, err, rep)
		}
		if n := bytes.Count(files["events"], []byte("\n")); (form == "jsonl") != (n == 0) || form != "jsonl" && n != 15 {
			t.Errorf("%s: %d events", form, n)
		}
		if bytes.ContainsAny(files["events"], "\x1b") {
			t.Errorf("%s holds an escape sequence", form)
		}
	}
	list := actsOf(t, s)
	last := list[len(list)-1]
	if last.Act.Name != audit.ActAuditExport || !strings.Contains(last.Act.Detail, "format=cef agent=dev") || !strings.Contains(last.Result.Detail, "records=15") {
		t.Errorf("on record: %+v %+v", last.Act, last.Result)
	}
	for _, bad := range []apitype.ExportAudit{{}, {Format: "pdf"}, {Format: "whole", Agent: "dev"}} {
		if _, err := c.ExportAudit(t.Context(), bad, nil); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	// A journal that was changed gives no choice, and says so.
	names, _ := filepath.Glob(filepath.Join(s.o.Paths.Journal("proxy"), "*.jsonl"))
	raw, _ := os.ReadFile(names[0])
	os.WriteFile(names[0], bytes.Replace(raw, []byte(`"dev"`), []byte(`"eve"`), 1), 0o600)
	if _, err := c.ExportAudit(t.Context(), apitype.ExportAudit{Format: "jsonl", Agent: "dev"}, func(string, io.Reader) error { return nil }); err == nil || !strings.Contains(err.Error(), "audit verify") {
		t.Errorf("a choice from a changed journal: %v", err)
	}
}
