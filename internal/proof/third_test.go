// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"bawn/internal/roottest"
)

// A third party is testdata/check.py, which was written from docs/proof.md and
// knows nothing of this package.
func third(t *testing.T, key, path string, more ...string) (status int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{"testdata/check.py", key, path}, more...)...)
	text, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode(), string(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(text)
}

// needPython skips where the third party cannot run.
func needPython(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import cryptography").Run(); err != nil {
		roottest.Skip(t, "needs python3-cryptography")
	}
}

// TestAThirdPartyChecksAnExport: what this package finds sound or not, the other
// program finds so too, for sound and pruned histories and each tampering.
func TestAThirdPartyChecksAnExport(t *testing.T) {
	needPython(t)
	r := newRig(t, 400)
	r.fill(t, 40)
	key := filepath.Join(t.TempDir(), "audit.pub")
	if err := os.WriteFile(key, []byte(r.key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	anchor := filepath.Join(t.TempDir(), "anchors.txt")
	if err := os.WriteFile(anchor, append([]byte("kept at noon\n\n"), r.newest(t).Text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out := third(t, key, r.Dir, anchor); status != 0 {
		t.Fatalf("sound: %d %s", status, out)
	}
	pruned := r.copied(t)
	for _, f := range pruned.files(t)[:5] {
		os.Remove(f)
	}
	if status, out := third(t, key, pruned.Dir, anchor); status != 0 {
		t.Errorf("pruned: %d %s", status, out)
	}
	for i, c := range tamperings {
		if testing.Short() && i%3 > 0 {
			continue
		}
		x := r.copied(t)
		c.do(t, x, rand.New(rand.NewPCG(4, 4)))
		if status, out := third(t, key, x.Dir); status != 3 {
			t.Errorf("%s: %d %s", c.name, status, out)
		}
	}
	for _, w := range []Wish{{Agent: "eve"}, {}} {
		path := filepath.Join(t.TempDir(), "choice.jsonl")
		text := r.choose(t, w)
		os.WriteFile(path, text, 0o600)
		if status, out := third(t, key, path); status != 0 {
			t.Errorf("a choice: %d %s", status, out)
		}
		for i := range roottest.Count(3, 100) {
			changed := append([]byte(nil), text...)
			at := len(text)/3 + i*97
			changed[at] ^= 1
			os.WriteFile(path, changed, 0o600)
			mine := r.check(t, changed)
			if status, out := third(t, key, path); (status == 0) != mine.OK() && status == 0 {
				t.Errorf("byte %d of a choice is changed: %d %s, here %s", at, status, out, lines(mine))
			}
		}
	}
	old := r.copied(t)
	r.restart(t)
	r.fill(t, 5)
	os.WriteFile(anchor, r.newest(t).Text, 0o600)
	if status, out := third(t, key, old.Dir, anchor); status != 3 {
		t.Errorf("taken back behind an anchor: %d %s", status, out)
	}
}
