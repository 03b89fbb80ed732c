// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/config"
	"bawn/internal/store"
)

const room = 1 << 20

func file(name string) Member {
	return Member{Name: name, Kind: File, Owner: "bawn-admin", Group: "bawn-admin", Mode: 0o600}
}

// archive writes members with the Writer; a file's content is its own name.
func archive(t testing.TB, m Manifest, members ...Member) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, m)
	for _, x := range members {
		var content io.Reader
		if x.Kind == File {
			x.Size, content = int64(len(x.Name)), strings.NewReader(x.Name)
		}
		if err := w.Add(x, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// raw writes an archive by hand, as somebody else may.
func raw(headers []tar.Header, manifest any) []byte {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	t := tar.NewWriter(zip)
	for _, h := range headers {
		h.Format = tar.FormatPAX
		if t.WriteHeader(&h) == nil && h.Typeflag == tar.TypeReg {
			io.CopyN(t, zeros{}, h.Size)
		}
	}
	if manifest != nil {
		text, _ := json.Marshal(manifest)
		t.WriteHeader(&tar.Header{Name: manifestName, Typeflag: tar.TypeReg, Size: int64(len(text))})
		t.Write(text)
	}
	t.Close()
	zip.Close()
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWhatIsWrittenIsRead(t *testing.T) {
	home := Member{Name: "agents/dev/home", Kind: Directory, Owner: "bawn-dev", Group: "bawn-dev", Mode: 0o700}
	link := Member{Name: "agents/dev/home/l", Kind: Link, Owner: "bawn-dev", Group: "bawn-dev", Mode: 0o777, Target: "/etc/passwd"}
	text := archive(t, Manifest{Version: "1", Made: time.Unix(1, 0), Homes: true}, file("admin/bawn.db"), file("proxy/names/x"), home, link)
	m, err := Verify(bytes.NewReader(text), room)
	if err != nil || len(m.Members) != 4 || !m.Homes || m.Journals || m.Version != "1" || !m.Has("admin/bawn.db") {
		t.Fatalf("%+v, %v", m, err)
	}
	var again bytes.Buffer
	w := NewWriter(&again, *m)
	if err := Merge(w, bytes.NewReader(text), m); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || !bytes.Equal(again.Bytes(), text) {
		t.Errorf("merged into an empty one it is another: %v", err)
	}
}

// TestEveryOctetIsCovered flips bits all over an archive.
func TestEveryOctetIsCovered(t *testing.T) {
	text := archive(t, Manifest{}, file("admin/bawn.db"), file("etc/config.yaml"))
	if _, err := Verify(bytes.NewReader(text), room); err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	zip, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(&plain, zip); err != nil {
		t.Fatal(err)
	}
	content := bytes.Index(plain.Bytes(), []byte("admin/bawn.db\x00\x00")) // the file's own text, after its header
	for at := content; at < content+len("admin/bawn.db"); at++ {
		changed := bytes.Clone(plain.Bytes())
		changed[at] ^= 1
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		z.Write(changed)
		z.Close()
		if _, err := Verify(&packed, room); err == nil {
			t.Errorf("a changed octet at %d was taken", at)
		}
	}
	for cut := range len(text) {
		if _, err := Verify(bytes.NewReader(text[:cut]), room); err == nil {
			t.Errorf("cut off at %d of %d it was taken", cut, len(text))
		}
	}
}

func TestHostileArchives(t *testing.T) {
	reg := func(name string, size int64) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Uname: "bawn-admin", Gname: "bawn-admin", Mode: 0o600, Size: size}
	}
	typed := func(flag byte, name, target string) tar.Header {
		h := reg(name, 0)
		h.Typeflag, h.Linkname = flag, target
		return h
	}
	owned := func(name, who string) tar.Header { h := reg(name, 0); h.Uname = who; return h }
	mode := func(m int64) tar.Header { h := reg("admin/x", 0); h.Mode = m; return h }
	agents := func(flag byte, name, target string) tar.Header {
		h := typed(flag, name, target)
		h.Uname, h.Gname = "bawn-dev", "bawn-dev"
		return h
	}
	for name, c := range map[string]struct {
		headers []tar.Header
		want    string
	}{
		"an absolute path":            {[]tar.Header{reg("/etc/passwd", 1)}, "not a plain relative path"},
		"up and out":                  {[]tar.Header{reg("admin/../../etc/passwd", 1)}, "not a plain relative path"},
		"up from the start":           {[]tar.Header{reg("../x", 1)}, "leads out"},
		"a dot":                       {[]tar.Header{reg("admin/./x", 1)}, "not a plain relative path"},
		"no part":                     {[]tar.Header{reg("public/ca.crt", 1)}, "belongs to no part"},
		"the part alone":              {[]tar.Header{reg("admin", 1)}, "belongs to no part"},
		"another file of etc":         {[]tar.Header{reg("etc/shadow", 1)}, "belongs to no part"},
		"a hard link":                 {[]tar.Header{typed(tar.TypeLink, "admin/x", "/etc/shadow")}, "nothing that is put back"},
		"a device":                    {[]tar.Header{typed(tar.TypeBlock, "admin/x", "")}, "nothing that is put back"},
		"a pipe":                      {[]tar.Header{typed(tar.TypeFifo, "admin/x", "")}, "nothing that is put back"},
		"a link of Bawn's own":        {[]tar.Header{typed(tar.TypeSymlink, "admin/x", "/etc")}, "which only agents' files may be"},
		"a file behind a link":        {[]tar.Header{agents(tar.TypeSymlink, "agents/dev/home/l", "/etc"), agents(tar.TypeReg, "agents/dev/home/l/passwd", "")}, "which is a link"},
		"a link before its file":      {[]tar.Header{agents(tar.TypeReg, "agents/dev/home/l/passwd", ""), agents(tar.TypeSymlink, "agents/dev/home/l", "/etc")}, "which is a link"},
		"a file in a file":            {[]tar.Header{reg("admin/x", 1), reg("admin/x/y", 1)}, "which is a file"},
		"twice":                       {[]tar.Header{reg("admin/x", 1), reg("admin/x", 1)}, "there twice"},
		"a directory and a file":      {[]tar.Header{typed(tar.TypeDir, "admin/x/", ""), reg("admin/x", 1)}, "there twice"},
		"set-uid":                     {[]tar.Header{mode(0o4755)}, "more than permissions"},
		"another account":             {[]tar.Header{owned("admin/x", "alice")}, "whom it may not"},
		"an agent's, outside":         {[]tar.Header{owned("admin/x", "bawn-dev")}, "whom it may not"},
		"another agent's":             {[]tar.Header{owned("agents/dev/home/x", "bawn-other")}, "whom it may not"},
		"an agent's, by a bad name":   {[]tar.Header{reg("agents/../home/x", 1)}, "not a plain relative path"},
		"an agent's account, no home": {[]tar.Header{reg("agents/dev/tmp/x", 1)}, "belongs to no part"},
		"a bomb":                      {[]tar.Header{reg("admin/x", room+1)}, "no room"},
		"a bomb in parts":             {[]tar.Header{reg("admin/x", room), reg("admin/y", 1)}, "no room"},
		"nothing":                     {nil, "names 0 members"},
	} {
		m := Manifest{Format: Format}
		for _, h := range c.headers {
			m.Members = append(m.Members, Member{Name: strings.TrimSuffix(h.Name, "/")})
		}
		if c.headers == nil {
			m.Members, c.headers = nil, []tar.Header{reg("admin/x", 1)}
		}
		if _, err := Verify(bytes.NewReader(raw(c.headers, m)), room); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	one := []tar.Header{reg("admin/x", 1)}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"no manifest":             {raw(one, nil), "no manifest"},
		"another format":          {raw(one, Manifest{Format: Format + 1, Version: "9"}), "use the program that made it"},
		"something after it":      {raw(append([]tar.Header{{Name: manifestName, Typeflag: tar.TypeReg}}, one...), nil), "manifest"},
		"a member that is not":    {raw(one, Manifest{Format: Format, Members: []Member{file("admin/x"), file("admin/y")}}), "names 2 members"},
		"no gzip":                 {[]byte("PK\x03\x04"), "no gzip"},
		"another sum":             {raw(one, Manifest{Format: Format, Members: []Member{{Name: "admin/x", Kind: File, Owner: "bawn-admin", Group: "bawn-admin", Mode: 0o600, Size: 1, SHA256: "00"}}}), "was changed"},
		"another mode than it is": {raw(one, Manifest{Format: Format, Members: []Member{{Name: "admin/x", Kind: File, Mode: 0o777, Size: 1, SHA256: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"}}}), "not what the manifest says"},
	} {
		if _, err := Verify(bytes.NewReader(c.text), room); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// host is an installation below a directory, all of it of the account that
// tests run under.
func host(t testing.TB, m *Manifest) *Restore {
	t.Helper()
	p := config.Paths{Root: t.TempDir()}
	for _, d := range []string{p.State("admin"), p.Journal("proxy"), p.Etc(), p.Agents()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	me := func(string) (int, int, error) { return os.Geteuid(), os.Getegid(), nil }
	return &Restore{Paths: p, Manifest: m, Now: time.Unix(2000, 0), Owner: me, Said: func(string) {}}
}

func verified(t testing.TB, text []byte) *Manifest {
	t.Helper()
	m, err := Verify(bytes.NewReader(text), room)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (r *Restore) run(t testing.TB, text []byte) string {
	t.Helper()
	if err := r.Stage(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	before, err := r.Place(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(before) == 0 {
		return ""
	}
	return before[0]
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t testing.TB, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s: %q, %v, want %q", path, text, err, want)
	}
}

func TestWhatIsThereIsReplacedAndKeptAside(t *testing.T) {
	text := archive(t, Manifest{Made: time.Unix(1000, 0)}, file("admin/bawn.db"), file("admin/ca.key"), file("proxy/names/dev"), file("etc/config.yaml"))
	r := host(t, verified(t, text))
	db := r.Paths.Database()
	put(t, db, "old")
	put(t, db+"-wal", "old log")
	put(t, filepath.Join(r.Paths.State("proxy"), "names/other"), "old name")
	put(t, filepath.Join(r.Paths.State("admin"), "index.db"), "index")
	before := r.run(t, text)
	wantFile(t, db, "admin/bawn.db")
	wantFile(t, r.Paths.ConfigFile(), "etc/config.yaml")
	wantFile(t, filepath.Join(r.Paths.State("proxy"), "names/dev"), "proxy/names/dev")
	wantFile(t, filepath.Join(r.Paths.State("admin"), "index.db"), "index")
	wantFile(t, filepath.Join(before, "admin/bawn.db"), "old")
	wantFile(t, filepath.Join(before, "admin/bawn.db-wal"), "old log")
	wantFile(t, filepath.Join(before, "proxy/names/other"), "old name")
	for _, gone := range []string{db + "-wal", filepath.Join(r.Paths.State("proxy"), "names/other"), marker(r.Paths), filepath.Join(r.Paths.Lib(), ".restore")} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	got, err := Took(r.Paths)
	if err != nil || got == nil || !got.Made.Equal(time.Unix(1000, 0)) {
		t.Errorf("told %+v, %v", got, err)
	}
}

// TestI8NumbersGoOnBeyondEveryBackup: those of the host itself exactly, those
// of another host as far as they can have gone.
func TestI8NumbersGoOnBeyondEveryBackup(t *testing.T) {
	then := file("admin/bawn.db.floor")
	for name, c := range map[string]struct {
		here store.Floor // of the host that is restored to
		ca   string      // its CA; the archive's is its name
		want store.Floor
	}{
		"a new host":        {store.Floor{}, "", store.Floor{Epoch: 7 + 10*1001, Revision: 3 + 1001}},
		"another host":      {store.Floor{Epoch: 90, Revision: 5000}, "other", store.Floor{Epoch: 7 + 10*1001, Revision: 5000}},
		"the same host":     {store.Floor{Epoch: 90, Revision: 4}, "admin/ca.crt", store.Floor{Epoch: 90, Revision: 4}},
		"the same, younger": {store.Floor{Epoch: 2, Revision: 1}, "admin/ca.crt", store.Floor{Epoch: 7, Revision: 3}},
	} {
		var out bytes.Buffer
		w := NewWriter(&out, Manifest{Made: time.Unix(1000, 0)})
		floor := `{"epoch":7,"revision":3}`
		then.Size = int64(len(floor))
		ca := file("admin/ca.crt")
		ca.Size = int64(len(ca.Name))
		for _, x := range []struct {
			m    Member
			text string
		}{{then, floor}, {ca, ca.Name}} {
			if err := w.Add(x.m, strings.NewReader(x.text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r := host(t, verified(t, out.Bytes()))
		if c.ca != "" {
			put(t, filepath.Join(r.Paths.State("admin"), "ca.crt"), c.ca)
		}
		if err := store.RaiseFloor(r.Paths.Database(), c.here); err != nil {
			t.Fatal(err)
		}
		r.run(t, out.Bytes())
		if got, err := store.ReadFloor(r.Paths.Database()); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

// TestTheRecordIsNeverSetBack.
func TestTheRecordIsNeverSetBack(t *testing.T) {
	text := archive(t, Manifest{Journals: true}, file("admin/audit.key"), file("admin/checkpoints/1"), file("journal/proxy/proxy-000000001-20260101.jsonl"), file("journal/admin/admin-000000001-20260101.jsonl"))
	r := host(t, verified(t, text))
	there := filepath.Join(r.Paths.Journal("proxy"), "proxy-000000002-20260102.jsonl")
	put(t, there, "went on")
	put(t, r.Paths.AuditKey(), "key")
	r.run(t, text)
	wantFile(t, there, "went on")
	wantFile(t, r.Paths.AuditKey(), "key")
	for _, name := range []string{filepath.Join(r.Paths.Journal("proxy"), "proxy-000000001-20260101.jsonl"), filepath.Join(r.Paths.Checkpoints(), "1")} {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("%s came from the archive", name)
		}
	}
	bare := host(t, verified(t, text))
	bare.run(t, text)
	wantFile(t, bare.Paths.AuditKey(), "admin/audit.key")
	wantFile(t, filepath.Join(bare.Paths.Checkpoints(), "1"), "admin/checkpoints/1")
	wantFile(t, filepath.Join(bare.Paths.Journal("admin"), "admin-000000001-20260101.jsonl"), "journal/admin/admin-000000001-20260101.jsonl")
}

// TestAnArchiveWithoutTheRecordBringsNoPartOfIt: checkpoints of journals that are not
// there would be a fault for ever, and another history under the same key would be
// one that anchors speak against.
func TestAnArchiveWithoutTheRecordBringsNoPartOfIt(t *testing.T) {
	text := archive(t, Manifest{}, file("admin/audit.key"), file("admin/checkpoints/1"), file("admin/ca.key"))
	bare := host(t, verified(t, text))
	bare.run(t, text)
	wantFile(t, bare.place("admin/ca.key"), "admin/ca.key")
	if there(bare.Paths.AuditKey()) || there(bare.Paths.Checkpoints()) {
		t.Error("it brought a part of the record")
	}
}

// TestI13CountsAreNeverSetBack: what an agent has used up since the archive was
// made stays used up; what this host knows nothing of comes from the archive.
func TestI13CountsAreNeverSetBack(t *testing.T) {
	members := []Member{file("proxy/budgets/dev.a-1.used"), file("proxy/budgets/old.a-2.used"), file("proxy/labels/dev.a-1.labels"), file("proxy/names/dev")}
	text := archive(t, Manifest{}, members...)
	r := host(t, verified(t, text))
	state := r.Paths.State("proxy")
	put(t, filepath.Join(state, "budgets/dev.a-1.used"), "more")
	put(t, filepath.Join(state, "labels/dev.a-1.labels"), "more")
	for range 2 { // the second time as after a kill
		r.run(t, text)
		wantFile(t, filepath.Join(state, "budgets/dev.a-1.used"), "more")
		wantFile(t, filepath.Join(state, "labels/dev.a-1.labels"), "more")
		wantFile(t, filepath.Join(state, "budgets/old.a-2.used"), "proxy/budgets/old.a-2.used")
		wantFile(t, filepath.Join(state, "names/dev"), "proxy/names/dev")
	}
	bare := host(t, verified(t, text))
	bare.run(t, text)
	wantFile(t, filepath.Join(bare.Paths.State("proxy"), "budgets/dev.a-1.used"), "proxy/budgets/dev.a-1.used")
}

// TestRestoreFollowsNoLinks of accounts that own a directory: it runs as root.
func TestRestoreFollowsNoLinks(t *testing.T) {
	text := archive(t, Manifest{Journals: true}, file("admin/a"), file("journal/proxy/x.sh"))
	r := host(t, verified(t, text))
	out := filepath.Join(t.TempDir(), "out")
	put(t, out, "root's")
	put(t, filepath.Join(r.Paths.State("admin"), "b"), "")
	if err := os.Symlink(out, filepath.Join(r.Paths.State("admin"), "restored.json")); err != nil {
		t.Fatal(err)
	}
	r.run(t, text)
	wantFile(t, out, "root's")

	r = host(t, verified(t, text))
	put(t, filepath.Join(r.Paths.State("proxy"), "b"), "")
	if err := errors.Join(os.RemoveAll(r.Paths.Journal("proxy")), os.Symlink(filepath.Dir(out), r.Paths.Journal("proxy"))); err != nil {
		t.Fatal(err)
	}
	if err := r.Stage(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Place(t.Context()); err == nil || there(filepath.Join(filepath.Dir(out), "x.sh")) {
		t.Errorf("something was put behind the link: %v", err)
	}
}

// TestI13AnInterruptedRestoreStartsNothing, and the next one ends it.
func TestI13AnInterruptedRestoreStartsNothing(t *testing.T) {
	text := archive(t, Manifest{}, file("admin/a"), file("admin/b"), file("admin/c"))
	r := host(t, verified(t, text))
	put(t, filepath.Join(r.Paths.State("admin"), "a"), "old")
	if err := r.Stage(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.Paths.Lib(), stageName, "admin/b")); err != nil { // where it will fail
		t.Fatal(err)
	}
	if _, err := r.Place(t.Context()); err == nil {
		t.Fatal("placed what is not there")
	}
	if Interrupted(r.Paths) == nil {
		t.Error("what was begun and not ended would be started")
	}
	before := r.run(t, text)
	if err := Interrupted(r.Paths); err != nil {
		t.Error(err)
	}
	wantFile(t, filepath.Join(r.Paths.State("admin"), "b"), "admin/b")
	wantFile(t, filepath.Join(before, "admin/a"), "old")
}

// FuzzVerify: whatever Verify takes can be unpacked, and stays in its place.
func FuzzVerify(f *testing.F) {
	f.Add("admin/bawn.db", "", byte(tar.TypeReg), int64(0o600), "bawn-admin", int64(3))
	f.Add("agents/dev/home/l", "/etc", byte(tar.TypeSymlink), int64(0o777), "bawn-dev", int64(0))
	f.Add("agents/dev/home/../../../x", "", byte(tar.TypeReg), int64(0o600), "root", int64(0))
	f.Add("/etc/passwd", "x", byte(tar.TypeLink), int64(0), "root", int64(0))
	f.Fuzz(func(t *testing.T, name, target string, flag byte, mode int64, owner string, size int64) {
		size = max(0, min(size, 1<<10))
		h := tar.Header{Name: name, Linkname: target, Typeflag: flag, Mode: mode, Uname: owner, Gname: owner, Size: size}
		behind := h
		behind.Name, behind.Typeflag, behind.Linkname = name+"/x", tar.TypeReg, ""
		for _, headers := range [][]tar.Header{{h}, {h, behind}, {behind, h}} {
			var m Manifest
			m.Format = Format
			for _, x := range headers {
				one, err := memberOf(&x)
				if err != nil {
					break
				}
				if one.Kind == File {
					one.SHA256, _ = sumOf(io.LimitReader(zeros{}, x.Size), x.Size)
				}
				m.Members = append(m.Members, one)
			}
			text := raw(headers, m)
			got, err := Verify(bytes.NewReader(text), room)
			if err != nil {
				continue
			}
			r := host(t, got)
			outside := filepath.Join(filepath.Dir(r.Paths.Root), "canary")
			if err := r.Stage(bytes.NewReader(text)); err != nil {
				t.Fatalf("verified, and cannot be unpacked: %v: %+v", err, got.Members)
			}
			for _, x := range got.Members {
				if to := r.place(x.Name); !strings.HasPrefix(to, r.Paths.Root+"/") || !strings.HasPrefix(filepath.Clean(to), r.Paths.Root+"/") {
					t.Fatalf("%q would go to %q", x.Name, to)
				}
				if _, err := os.Lstat(filepath.Join(r.Paths.Lib(), stageName, x.Name)); err != nil {
					t.Fatalf("%q is not where it should be: %v", x.Name, err)
				}
			}
			if _, err := os.Lstat(outside); err == nil {
				t.Fatal("something was written outside")
			}
			os.RemoveAll(r.Paths.Root)
		}
	})
}
