// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"bawn/internal/audit"
	"bawn/internal/ids"
	"bawn/internal/proof"
	"bawn/internal/roottest"
	"bawn/internal/verdict"
)

// recorded makes a state directory with a signed record.
func recorded(t *testing.T) (lib string) {
	t.Helper()
	l := proof.Layout{Dir: t.TempDir()}
	for _, dir := range []string{l.Journal("proxy"), filepath.Dir(l.Key())} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.MkdirAll(filepath.Join(l.Dir, "admin"), 0o755)
	record(t, l.Dir)
	return l.Dir
}

// record writes some records, and signs them.
func record(t *testing.T, lib string) {
	t.Helper()
	l := proof.Layout{Dir: lib}
	key, err := proof.OpenKey(filepath.Join(l.Dir, "admin", "audit.key"), l.Key(), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	j, err := audit.OpenJournal(l.Journal("proxy"), audit.Options{Plane: "proxy", FileBytes: 3000})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		d := audit.Decision{Request: "r", Identity: ids.Identity{Agent: "dev"}, Host: "\x1b[31mevil\u202e.example", Verdict: verdict.Deny}
		if err := j.Decide(&d); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	s, err := proof.OpenSigner(proof.Options{Dir: l.Checkpoints(), Journals: []string{l.Journal("proxy")}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SignNow(); err != nil {
		t.Fatal(err)
	}
}

func runAudit(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run(t.Context(), append([]string{"audit"}, args...), strings.NewReader(""), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// TestAuditVerifyForScripts: exit status and JSON, with what is found and where.
func TestAuditVerifyForScripts(t *testing.T) {
	lib := recorded(t)
	anchors := filepath.Join(t.TempDir(), "anchors.txt")
	status, out, errs := runAudit(t, "anchors", lib)
	if status != 0 || !strings.Contains(out, "\u2014 bawn-") {
		t.Fatalf("anchors: %d %s %s", status, out, errs)
	}
	if err := os.WriteFile(anchors, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(lib, "public", "audit.pub")
	status, out, errs = runAudit(t, "verify", lib, "--key", key, "--anchor", anchors)
	if status != 0 || !strings.Contains(out, "everything is as it was written") || strings.Contains(out, "note:") {
		t.Errorf("sound: %d %s %s", status, out, errs)
	}
	if status, out, _ := runAudit(t, "verify", lib); status != 0 || strings.Count(out, "note:") != 2 {
		t.Errorf("without key and anchor: %d %s", status, out)
	}
	files, _ := filepath.Glob(filepath.Join(lib, "proxy", "journal", "*.jsonl"))
	raw, _ := os.ReadFile(files[1])
	os.WriteFile(files[1], bytes.Replace(raw, []byte(`"dev"`), []byte(`"eve"`), 1), 0o600)
	status, out, _ = runAudit(t, "verify", lib, "--json")
	var rep struct {
		OK     bool
		Series []struct {
			Faults []struct {
				Kind, File string
				Record     int
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatal(err)
	}
	if f := rep.Series[0].Faults; status != 3 || rep.OK || len(f) != 1 || f[0].Kind != "changed" || f[0].File != filepath.Base(files[1]) || f[0].Record == 0 {
		t.Errorf("changed: %d %s", status, out)
	}
	if status, out, _ := runAudit(t, "verify", lib); status != 3 || !strings.Contains(out, "FAULT changed: "+filepath.Base(files[1])) {
		t.Errorf("changed: %d %s", status, out)
	}
	for _, args := range [][]string{{"verify", "/nonexistent"}, {"verify", t.TempDir()}, {"verify", lib, "--key", files[0]}, {"verify", lib, "--anchor", files[0]}} {
		if status, _, errs := runAudit(t, args...); status != 1 || errs == "" {
			t.Errorf("%v: %d %s", args, status, errs)
		}
	}
	for _, args := range [][]string{{"verify", lib, "x"}, {"verify", ""}, {"export"}, {"export", "--out", "x", "--format", "pdf"}, {"export", "--out", "x", "--agent", ""}, {"verify", files[0]}} {
		if status, _, errs := runAudit(t, args...); status != 2 || !strings.Contains(errs, "hint") {
			t.Errorf("%v: %d %s", args, status, errs)
		}
	}
}

// TestARecordThatMayNotBeReadIsNotMissing.
func TestARecordThatMayNotBeReadIsNotMissing(t *testing.T) {
	roottest.Require(t)
	lib := recorded(t)
	for dir := lib; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"admin", "proxy"} {
		if err := os.Chmod(filepath.Join(lib, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread() // and its thread ends with the test
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	status, out, errs := runAudit(t, "verify", lib)
	syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0)
	if status != 1 || !strings.Contains(errs, "permission denied") || !strings.Contains(errs, "use sudo") {
		t.Errorf("%d %s %s", status, out, errs)
	}
}

// TestAnAnchorOfAfterAnExport is the order in which one does it without thinking.
func TestAnAnchorOfAfterAnExport(t *testing.T) {
	lib, export := recorded(t), t.TempDir()
	os.Remove(filepath.Join(lib, "proxy", "journal", "proxy.lock"))
	if err := os.CopyFS(export, os.DirFS(lib)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(export, "admin", "audit.key")); err != nil { // no export has it
		t.Fatal(err)
	}
	record(t, lib)
	_, text, _ := runAudit(t, "anchors", lib)
	anchors := filepath.Join(t.TempDir(), "anchors.txt")
	if err := os.WriteFile(anchors, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(lib, "public", "audit.pub")
	status, out, errs := runAudit(t, "verify", export, "--key", key, "--anchor", anchors)
	if status != 0 || !strings.Contains(out, "NOT COVERED by this export: the anchor of proxy") || strings.Contains(out, "everything is as it was written") {
		t.Errorf("%d %s %s", status, out, errs)
	}
	if err := os.WriteFile(filepath.Join(export, "admin", "audit.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, errs := runAudit(t, "verify", export, "--key", key, "--anchor", anchors); status != 3 || !strings.Contains(out, "FAULT rollback") {
		t.Errorf("a host's: %d %s %s", status, out, errs)
	}
}

// TestI14FileNamesInAReportAreInert: a directory is somebody else's as well.
func TestI14FileNamesInAReportAreInert(t *testing.T) {
	lib := recorded(t)
	dir := filepath.Join(lib, "x\x1b]52;c;YQ==\x07", "journal")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(lib, "proxy", "journal", "*.jsonl"))
	raw, _ := os.ReadFile(files[0])
	os.WriteFile(filepath.Join(dir, filepath.Base(files[0])), raw, 0o600)
	status, out, errs := runAudit(t, "verify", lib)
	if status != 3 || strings.ContainsAny(out+errs, "\x1b\x07") {
		t.Errorf("%d %q %q", status, out, errs)
	}
}

// TestI14ActsAreInert: what an operator or an agent had put into an act does
// nothing on the terminal of who reads it, and stays in its row.
func TestI14ActsAreInert(t *testing.T) {
	e := audit.Entry{
		Act:    &audit.Act{Name: audit.ActPolicyApply, Account: "al\x1b[2Jice", Detail: "why=\u202e\x1b]52;c;YQ==\x07", UID: 1},
		Result: &audit.Act{Name: audit.ActPolicyApply, Object: "a\nb", Result: audit.ActRefused, Error: "line 1\nline 2\r", Revision: 2},
	}
	var body, out bytes.Buffer
	if err := json.NewEncoder(&body).Encode(e); err != nil {
		t.Fatal(err)
	}
	text := body.String()
	for _, asJSON := range []bool{false, true} {
		out.Reset()
		a := app{stdout: &out}
		if err := a.printActs(strings.NewReader(text), asJSON); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\x07\r\u202e") || !asJSON && strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%q", out.String())
		}
	}
}
