// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// file is one member of an archive.
type file struct{ name, text string }

// tarball packs the files below "package/", as npm wants them.
func tarball(files []file) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	t := tar.NewWriter(z)
	for _, f := range files {
		_ = t.WriteHeader(&tar.Header{Name: "package/" + f.name, Mode: 0o644, Size: int64(len(f.text)), Format: tar.FormatUSTAR})
		_, _ = t.Write([]byte(f.text))
	}
	_ = t.Close()
	_ = z.Close()
	return buf.Bytes()
}

func zipped(files []file) []byte {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err == nil {
			_, _ = w.Write([]byte(f.text))
		}
	}
	_ = z.Close()
	return buf.Bytes()
}

// pages serves fixed bytes by path.
type pages map[string]page

type page struct {
	kind string
	body []byte
}

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, ok := p[r.URL.Path]
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "read only", http.StatusMethodNotAllowed)
	default:
		w.Header().Set("Content-Type", at.kind)
		_, _ = w.Write(at.body)
	}
}

// npmPages is a registry with the package "greeting", which needs "words".
func npmPages(host string) http.Handler {
	p := pages{}
	add := func(name string, deps map[string]string, code string) {
		manifest := map[string]any{"name": name, "version": "1.0.0", "main": "index.js", "dependencies": deps}
		text, _ := json.Marshal(manifest)
		tgz := tarball([]file{{"package.json", string(text)}, {"index.js", code}})
		s1, s512 := sha1.Sum(tgz), sha512.Sum512(tgz)
		path := "/" + name + "/-/" + name + "-1.0.0.tgz"
		manifest["dist"] = map[string]string{
			"tarball":   "https://" + host + path,
			"shasum":    hex.EncodeToString(s1[:]),
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(s512[:]),
		}
		meta, _ := json.Marshal(map[string]any{
			"name": name, "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": manifest},
		})
		p["/"+name] = page{"application/json", meta}
		p[path] = page{"application/octet-stream", tgz}
	}
	add("words", nil, "module.exports = ['hello', 'world']\n")
	add("greeting", map[string]string{"words": "^1.0.0"}, "module.exports = require('words').join(' ')\n")
	return p
}

// pypiPages is a simple index with the package "greeting".
func pypiPages() http.Handler {
	const info = "greeting-1.0.dist-info/"
	wheel := zipped([]file{
		{"greeting.py", "text = 'hello world'\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: world\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "greeting.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	})
	const name = "greeting-1.0-py3-none-any.whl"
	sum := sha256.Sum256(wheel)
	index := fmt.Sprintf("<!DOCTYPE html><html><body><a href=\"/files/%s#sha256=%x\">%s</a></body></html>\n", name, sum, name)
	return pages{
		"/simple/greeting/": {"text/html", []byte(index)},
		"/files/" + name:    {"application/zip", wheel},
	}
}

// goPages is a module proxy with the module example.com/greeting.
func goPages() http.Handler {
	const at = "/example.com/greeting/@v/"
	const mod = "module example.com/greeting\n\ngo 1.21\n"
	const in = "example.com/greeting@v1.0.0/"
	code := strings.Join([]string{"package greeting", "", "// Text greets.", "const Text = \"hello world\"", ""}, "\n")
	info := []byte(`{"Version":"v1.0.0","Time":"2026-01-02T03:04:05Z"}`)
	return pages{
		at + "list":                     {"text/plain", []byte("v1.0.0\n")},
		at + "v1.0.0.info":              {"application/json", info},
		"/example.com/greeting/@latest": {"application/json", info},
		at + "v1.0.0.mod":               {"text/plain", []byte(mod)},
		at + "v1.0.0.zip":               {"application/zip", zipped([]file{{in + "go.mod", mod}, {in + "greeting.go", code}})},
	}
}
