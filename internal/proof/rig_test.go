// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// A rig is a host's state directory with a real journal, a real signer and a
// key.
type rig struct {
	Layout
	key    *SigningKey
	signer *Signer
	log    *bytes.Buffer
	broken []string
	pruned []string
	opt    audit.Options
	j      *audit.Journal
	n      int
	rng    *rand.Rand
}

func newRig(t testing.TB, seed uint64) *rig {
	t.Helper()
	r := &rig{Layout: Layout{Dir: memoryDir(t)}, log: new(bytes.Buffer), rng: rand.New(rand.NewPCG(seed, 17))}
	for _, dir := range []string{r.Journal("proxy"), filepath.Dir(r.Layout.Key()), filepath.Join(r.Dir, "admin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if seed >= fixedFrom {
		r.fix(t)
	}
	k, err := OpenKey(filepath.Join(r.Dir, "admin", "audit.key"), r.Layout.Key(), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r.key = k
	r.opt.Plane, r.opt.FileBytes = "proxy", 6000
	r.restart(t)
	return r
}

// fixedFrom is the seed from which on a rig is the same in every process, down
// to its key and clock: fuzzing has several.
const fixedFrom = 600

func (r *rig) fix(t testing.TB) {
	seed := sha256.Sum256([]byte("the key of a test"))
	line, err := keyLine(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "admin", "audit.key"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	r.opt.Now = func() time.Time { now = now.Add(time.Second); return now }
}

// memoryDir returns a directory in memory where there is one: what is synced
// here is not the disk's business.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "proof")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// restart begins with a new signer, as admin does.
func (r *rig) restart(t testing.TB) {
	t.Helper()
	s, err := OpenSigner(Options{
		Dir: r.Checkpoints(), Journals: []string{r.Journal("proxy")}, Key: r.key,
		Log:    slog.New(slog.NewTextHandler(r.log, nil)),
		Now:    r.opt.Now,
		Broken: func(_, what string) { r.broken = append(r.broken, what) },
		Pruned: func(_, what string) { r.pruned = append(r.pruned, what) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.signer != nil {
		r.signer.close()
	}
	r.signer = s
	t.Cleanup(s.close)
}

func (r *rig) open(t testing.TB) {
	t.Helper()
	j, err := audit.OpenJournal(r.Journal("proxy"), r.opt)
	if err != nil {
		t.Fatal(err)
	}
	r.j = j
}

func (r *rig) close(t testing.TB) {
	t.Helper()
	if r.j != nil {
		if err := r.j.Close(); err != nil {
			t.Fatal(err)
		}
		r.j = nil
	}
}

// write writes n decisions.
func (r *rig) write(t testing.TB, n int) {
	t.Helper()
	if r.j == nil {
		r.open(t)
	}
	for range n {
		r.n++
		d := &audit.Decision{
			Request: fmt.Sprintf("r-%d", r.n), Identity: ids.Identity{Session: "s-1", Agent: []string{"dev", "eve", "bob"}[r.n%3], User: "alice"},
			Revision: 3, Method: "GET", Scheme: "https", Host: "api.example.com", Port: 443,
			Path: "/" + strings.Repeat("x", r.rng.IntN(200)), Verdict: verdict.Allow,
		}
		if err := r.j.Decide(d); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) sign(t testing.TB) {
	t.Helper()
	if err := r.signer.SignNow(); err != nil {
		t.Fatal(err)
	}
}

// fill writes a history: decisions, checkpoints, restarts of both, torn ends.
func (r *rig) fill(t testing.TB, rounds int) {
	t.Helper()
	for range rounds {
		r.write(t, 1+r.rng.IntN(12))
		if r.rng.IntN(4) > 0 {
			r.sign(t)
		}
		switch r.rng.IntN(9) {
		case 0:
			r.restart(t)
		case 1:
			r.close(t)
			r.tear(t)
		}
	}
	r.close(t)
	r.sign(t)
}

// tear leaves what a crash leaves at the end of the newest file.
func (r *rig) tear(t testing.TB) {
	t.Helper()
	files := r.files(t)
	f, err := os.OpenFile(files[len(files)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"v":1,"kind":"decision","ti`); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) files(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.Journal("proxy"), "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func (r *rig) books(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.Checkpoints(), "proxy-*.checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// copied is the same directory again, for a test to change.
func (r *rig) copied(t testing.TB) *rig {
	t.Helper()
	dir := memoryDir(t)
	if err := os.CopyFS(dir, os.DirFS(r.Dir)); err != nil {
		t.Fatal(err)
	}
	return &rig{Layout: Layout{Dir: dir}, key: r.key, rng: r.rng, log: new(bytes.Buffer), opt: r.opt}
}

func (r *rig) verify(t testing.TB, anchors ...Note) Report {
	t.Helper()
	rep, err := Verify(r.Layout, r.key.Key, anchors)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func (r *rig) sound(t testing.TB) SeriesReport {
	t.Helper()
	rep := r.verify(t)
	if !rep.OK() || len(rep.Series) != 1 {
		t.Fatalf("a false alarm: %+v\n%s", rep.All(), r.log)
	}
	return rep.Series[0]
}

// where is one record as it lies in a file.
type where struct {
	path       string
	begin, end int64
	seq        uint64
}

// records lists all records.
func (r *rig) records(t testing.TB) (all []where) {
	t.Helper()
	for _, path := range r.files(t) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for lines := audit.ReadLines(f, 0, true); ; {
			line, err := lines.Next()
			if err != nil {
				break
			}
			if line.Record {
				all = append(all, where{path, line.Begin, line.End, line.Seq})
			}
		}
		f.Close()
	}
	return all
}

func (r *rig) newest(t testing.TB) Note {
	t.Helper()
	list, err := Anchors(r.Checkpoints(), r.key.Key)
	if err != nil || len(list) != 1 {
		t.Fatalf("anchors: %d, %v", len(list), err)
	}
	return list[0]
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
