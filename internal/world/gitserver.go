// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gitPages serves the repositories below root over git's smart protocol; it
// makes the repository /tools/hello.git there.
func gitPages(ctx context.Context, root string) (http.Handler, error) {
	git := gitRunner{home: root}
	if err := git.makeRepository(ctx, filepath.Join(root, "tools", "hello.git")); err != nil {
		return nil, err
	}
	exec, err := git.run(ctx, "", "--exec-path")
	if err != nil {
		return nil, err
	}
	backend := &cgi.Handler{
		Path:   filepath.Join(exec, "git-http-backend"),
		Env:    append(git.env(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
		Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
	}
	return unchunked(backend), nil
}

// unchunked gives a request of unknown length one, since CGI needs it.
func unchunked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 {
			body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		}
		next.ServeHTTP(w, r)
	})
}

// gitRunner runs git without any settings of the machine.
type gitRunner struct{ home string }

func (g gitRunner) env() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + g.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=World", "GIT_AUTHOR_EMAIL=world@example.com", "GIT_AUTHOR_DATE=1760000000 +0000",
		"GIT_COMMITTER_NAME=World", "GIT_COMMITTER_EMAIL=world@example.com", "GIT_COMMITTER_DATE=1760000000 +0000",
	}
}

func (g gitRunner) run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env, cmd.Stdin = g.env(), strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// makeRepository makes a bare repository with one commit on main.
func (g gitRunner) makeRepository(ctx context.Context, dir string) error {
	if _, err := g.run(ctx, "", "init", "--quiet", "--bare", "--initial-branch=main", dir); err != nil {
		return err
	}
	at := "--git-dir=" + dir
	if _, err := g.run(ctx, "", at, "config", "http.receivepack", "true"); err != nil {
		return err
	}
	blob, err := g.run(ctx, "hello from the world\n", at, "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	tree, err := g.run(ctx, "100644 blob "+blob+"\tREADME\n", at, "mktree")
	if err != nil {
		return err
	}
	commit, err := g.run(ctx, "first\n", at, "commit-tree", tree)
	if err != nil {
		return err
	}
	_, err = g.run(ctx, "", at, "update-ref", "refs/heads/main", commit)
	return err
}
