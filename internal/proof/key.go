// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"bawn/internal/ca"
)

// A Key checks what was signed with it. Its text, a line NAME+HASH+KEY, is that
// of a signed note's verifier.
type Key struct {
	text     string
	verifier note.Verifier
}

// maxKey bounds the file of a key, in bytes.
const maxKey = 4 << 10

// ParseKey reads the public half of a key, one line of text.
func ParseKey(text string) (Key, error) {
	line := strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	v, err := note.NewVerifier(line)
	if err != nil || len(line) > maxKey {
		return Key{}, errors.New("reading key: not NAME+HASH+KEY of an Ed25519 key, in one line")
	}
	if !originForm.MatchString(v.Name() + "/x/1") {
		return Key{}, fmt.Errorf("reading key: name %q cannot be that of a checkpoint's key", v.Name())
	}
	return Key{line, v}, nil
}

// ReadKey reads the public half of a key from a file.
func ReadKey(path string) (Key, error) {
	text, err := readBounded(path, maxKey)
	if err != nil {
		return Key{}, fmt.Errorf("reading key: %w", err)
	}
	k, err := ParseKey(string(text))
	if err != nil {
		return k, fmt.Errorf("%w: %s", err, path)
	}
	return k, nil
}

// Name is the key's name, which is made of the key itself.
func (k Key) Name() string { return k.verifier.Name() }

// String is the line that [ParseKey] reads.
func (k Key) String() string { return k.text }

// errForeign is the error of open for a note that another key has signed.
var errForeign = errors.New("is not signed by this key")

// open checks the signature of a note and reads its text. What a checkpoint
// says counts only once the error is nil.
func (k Key) open(msg []byte) (Checkpoint, error) {
	if len(msg) > 2*maxText {
		return Checkpoint{}, errForm
	}
	n, err := note.Open(msg, note.VerifierList(k.verifier))
	if u := new(note.UnverifiedNoteError); errors.As(err, &u) {
		c, _ := ParseCheckpoint(u.Note.Text)
		return c, errForeign
	}
	if _, bad := errors.AsType[*note.InvalidSignatureError](err); bad {
		return Checkpoint{}, errors.New("its signature is not that of its text")
	}
	if err != nil {
		return Checkpoint{}, errors.New("is no signed note")
	}
	c, err := ParseCheckpoint(n.Text)
	if err == nil && c.Key != k.Name() {
		return c, fmt.Errorf("its origin names another key: %q", c.Key)
	}
	return c, err
}

// A SigningKey signs checkpoints.
type SigningKey struct {
	Key
	signer note.Signer
}

// OpenKey loads the key that is kept in the file named path, and publishes its
// public half at pub, for everybody to read. Where there is none it makes one,
// after having called making; that a key is gone which others rely on (its
// public half is there) is an error and no reason to make a new one.
func OpenKey(path, pub string, making func() error) (*SigningKey, error) {
	k, err := loadSigningKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(pub); err == nil {
			return nil, fmt.Errorf("opening the key of checkpoints: %s is gone and %s is there: restore it, or move %s and the checkpoints away for a new one", path, pub, pub)
		}
		if err := making(); err != nil {
			return nil, err
		}
		k, err = makeSigningKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the key of checkpoints: %w", err)
	}
	if old, err := os.ReadFile(pub); err == nil && bytes.Equal(old, []byte(k.text+"\n")) {
		return k, nil
	}
	return k, ca.WriteFile(pub, []byte(k.text+"\n"), 0o644)
}

func loadSigningKey(path string) (*SigningKey, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: is no file of its owner's alone (mode %v)", path, info.Mode())
	}
	text, err := readBounded(path, maxKey)
	if err != nil {
		return nil, err
	}
	return parseSigningKey(strings.TrimSuffix(string(text), "\n"))
}

// parseSigningKey reads PRIVATE+KEY+NAME+HASH+SEED.
func parseSigningKey(line string) (*SigningKey, error) {
	s, err := note.NewSigner(line)
	if err != nil {
		return nil, errors.New("not the text of a signed note's key") // never the text itself
	}
	parts := strings.SplitN(line, "+", 5) // the last may hold a plus
	seed, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return nil, errors.New("not the text of a signed note's Ed25519 key")
	}
	public := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	text, err := note.NewEd25519VerifierKey(s.Name(), public)
	if err != nil {
		return nil, err
	}
	k, err := ParseKey(text)
	return &SigningKey{k, s}, err
}

func makeSigningKey(path string) (*SigningKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	line, err := keyLine(private)
	if err != nil {
		return nil, err
	}
	k, err := parseSigningKey(line)
	if err != nil {
		return nil, err
	}
	return k, ca.WriteFile(path, []byte(line+"\n"), 0o600)
}

// keyLine is the text of a key, whose name is made of its public half.
func keyLine(private ed25519.PrivateKey) (string, error) {
	public := private.Public().(ed25519.PublicKey)
	sum := sha256.Sum256(public)
	text, err := note.NewEd25519VerifierKey("bawn-"+hex.EncodeToString(sum[:8]), public)
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(text, "+", 3)
	return "PRIVATE+KEY+" + parts[0] + "+" + parts[1] + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, private.Seed()...)), nil
}

// sign makes a note of a checkpoint.
func (k *SigningKey) sign(c *Checkpoint) ([]byte, error) {
	c.Key = k.Name()
	return note.Sign(&note.Note{Text: c.Text()}, k.signer)
}
