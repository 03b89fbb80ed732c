// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// FuzzParseCheckpoint: what is taken is written back byte by byte, and its first
// lines mean to the module's own parser of tree heads what they mean here.
func FuzzParseCheckpoint(f *testing.F) {
	c := Checkpoint{
		Key: "bawn-1", Series: "proxy", Tree: 2, Size: 3, First: 7, Begin: Place{"proxy-000000001-20261130.jsonl", 5},
		End: Place{"proxy-000000002-20261130.jsonl", 9}, Time: time.Unix(1e9, 0), Break: "after record 6: it was changed",
	}
	var tree Frontier
	for i := range 3 {
		tree.Add(tlog.RecordHash([]byte{byte(i)}))
	}
	c.Root = tree.Root()
	f.Add(c.Text())
	c.Frontier = tree.Nodes()
	f.Add(c.Text())
	c.Break = ""
	f.Add(c.Text())
	f.Add(strings.Replace(c.Text(), "chain", "Chain", 1))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCheckpoint(text)
		if err != nil {
			return
		}
		if c.Text() != text {
			t.Fatalf("%q is read and written as %q", text, c.Text())
		}
		_, rest, _ := strings.Cut(text, "\n")
		head, err := tlog.ParseTree([]byte("go.sum database tree\n" + rest))
		if err != nil || head.N != c.Size || head.Hash != c.Root {
			t.Errorf("the module reads %v, %v", head, err)
		}
		if c.Last() < c.First || strings.ContainsAny(text, "\x1b\r\t") {
			t.Errorf("%+v", c)
		}
	})
}

// FuzzReadChoice: a choice is never sound unless each of its records is in the
// tree that was signed; and nothing in it makes the reader fall over.
func FuzzReadChoice(f *testing.F) {
	r := newRig(f, 600)
	r.fill(f, 8)
	sound := r.choose(f, Wish{Agent: "eve"})
	f.Add(sound)
	for _, l := range bytes.SplitAfter(sound, []byte("\n")) {
		f.Add(l)
	}
	f.Add(bytes.Replace(sound, []byte(`"record":`), []byte(`"record_base64":`), 1))
	raw := map[string]bool{}
	for _, l := range bytes.SplitAfter(r.choose(f, Wish{}), []byte("\n")) {
		if _, a, ok := bytes.Cut(l, []byte(`"record":`)); ok {
			b, _, _ := bytes.Cut(a, []byte(`,"proof"`))
			raw[string(b)] = true
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rep, err := ReadChoice(bytes.NewReader(text), "x", r.key.Key, nil)
		if err != nil || !rep.OK() {
			return
		}
		n := uint64(0)
		for _, l := range bytes.SplitAfter(text, []byte("\n")) {
			if _, a, ok := bytes.Cut(l, []byte(`"record":`)); ok {
				b, _, _ := bytes.Cut(a, []byte(`,"proof"`))
				if raw[string(b)] {
					n++
				}
			}
		}
		if rep.Choice.Records > uint64(len(raw)) {
			t.Errorf("%d records are proven of %d, %d of them known", rep.Choice.Records, len(raw), n)
		}
	})
}

// FuzzParseKey: what is taken for a key is one Ed25519 key, and the same text
// comes out.
func FuzzParseKey(f *testing.F) {
	r := newRig(f, 601)
	f.Add(r.key.String() + "\n")
	f.Add("PRIVATE+KEY+" + r.key.String())
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseSigningKey(text); err == nil {
			msg, err := note.Sign(&note.Note{Text: "x\n"}, s.signer)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := note.Open(msg, note.VerifierList(s.verifier)); err != nil {
				t.Errorf("the halves of %q do not fit: %v", text, err)
			}
		}
		k, err := ParseKey(text)
		if err != nil {
			return
		}
		parts := strings.SplitN(k.String(), "+", 3)
		raw, err := base64.StdEncoding.DecodeString(parts[2])
		if err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != 1 || parts[0] != k.Name() {
			t.Errorf("%q was taken for a key", text)
		}
		if again, err := ParseKey(k.String()); err != nil || again.String() != k.String() {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// FuzzAnchors: whatever surrounds a checkpoint, only what the key has signed is
// an anchor.
func FuzzAnchors(f *testing.F) {
	r := newRig(f, 602)
	r.fill(f, 5)
	n := r.newest(f)
	f.Add(n.Text)
	f.Add([]byte("hello\r\n\r\n" + string(n.Text) + "\nbye"))
	f.Fuzz(func(t *testing.T, text []byte) {
		notes, _ := ParseAnchors(text, r.key.Key)
		for _, a := range notes {
			if a.Checkpoint.Text() != n.Checkpoint.Text() {
				t.Errorf("an anchor that was never signed: %s", a.Text)
			}
		}
	})
}
