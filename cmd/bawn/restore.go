// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/backup"
	"bawn/internal/netd"
	"bawn/internal/netd/netdapi"
	"bawn/internal/session"
	"bawn/internal/store"
	"bawn/internal/supervise"
)

func (a *app) restoreCommand() *cobra.Command {
	var yes, check bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Bring an installation back from a backup (needs root, and that Bawn is stopped)",
		Long: "Checks all of the archive before it writes anything. What is there is kept aside, in\n" +
			"a directory that is named at the end. The record of this host is never set back: it\n" +
			"comes from the archive only where the host has none. Sessions and policy revisions get\n" +
			"numbers that were never used.",
		Args: wants("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Geteuid() != 0 && !check {
				return errors.New("this needs root (use sudo); --check does not")
			}
			return a.restore(cmd.Context(), args[0], yes, check)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&check, "check", false, "only check the archive and say what is in it")
	return cmd
}

func (a *app) restore(ctx context.Context, from string, yes, check bool) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	defer f.Close()
	r := &backup.Restore{Paths: a.paths(), Now: time.Now(), Owner: accountIDs, By: whoRestores()}
	most, err := a.restoreRoom()
	if err != nil {
		return err
	}
	if r.Manifest, err = checked(f, most); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	a.sayManifest(r.Manifest)
	if check {
		return nil
	}
	unlock, err := a.stopped()
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	defer unlock()
	if !yes && !a.agrees("restore", "What is there now is replaced, and kept aside.") {
		return errors.New("nothing was restored: the word was not typed (--yes does not ask)")
	}
	return a.bringBack(ctx, r, f)
}

// whoRestores is this process's account, which the kernel knows, and the account
// that the person logged in with, where something tells it.
func whoRestores() backup.Caller {
	by := backup.Caller{UID: uint32(os.Getuid()), PID: int32(os.Getpid())}
	text, err := os.ReadFile("/proc/self/loginuid")
	if uid, parsed := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil && parsed == nil && uid != math.MaxUint32 {
		by.Login = "kernel=" + strconv.FormatUint(uid, 10)
	} else if uid, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil {
		by.Login = "sudo=" + strconv.FormatUint(uid, 10)
	}
	return by
}

// restoreRoom is how many bytes can be unpacked on all file systems that a restore
// goes to.
func (a *app) restoreRoom() (most int64, err error) {
	bases, err := backup.Bases(a.paths())
	for _, dir := range bases {
		free, err := room(dir)
		if err != nil {
			return 0, err
		}
		most += free
	}
	return most, err
}

func (a *app) sayManifest(m *backup.Manifest) {
	with := ""
	if m.Journals {
		with += ", with the record"
	}
	if m.Homes {
		with += ", with agents' files"
	}
	fmt.Fprintf(a.stdout, "backup of %s, made by version %q: %d files and directories, every sum is right%s\n",
		m.Made.Local().Format(time.DateTime), m.Version, len(m.Members), with)
}

// agrees asks for a word.
func (a *app) agrees(word, about string) bool {
	fmt.Fprintf(a.stdout, "%s\nType %q to go on: ", about, word)
	line, _ := bufio.NewReader(a.stdin).ReadString('\n')
	return strings.TrimSpace(line) == word
}

func (a *app) bringBack(ctx context.Context, r *backup.Restore, f *os.File) error {
	if err := os.MkdirAll(a.paths().Lib(), 0o755); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	r.SHA256 = hex.EncodeToString(sum.Sum(nil))
	agents, err := a.agentsOf(ctx, r.Manifest, f)
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	if err := supervise.Prepare(ctx, a.paths()); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	for _, g := range agents {
		if err := netd.EnsureAccount(ctx, a.paths().Lib(), netdapi.Account{Agent: g.Name, UID: g.UID}); err != nil {
			return fmt.Errorf("restoring: %w", err)
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	if err := r.Stage(f); err != nil {
		return err
	}
	before, err := r.Place(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "restored, with %s; what was there before is in %s\n", count(operators(agents), "agent"), strings.Join(before, " and "))
	a.strangers(agents)
	return nil
}

// operators counts the agents that "bawn agent list" shows: without the self-test's.
func operators(agents []store.Agent) (n int) {
	for _, g := range agents {
		if g.Name != session.Doctor {
			n++
		}
	}
	return n
}

// agentsOf reads the agents of the archive's database, which this program must
// be able to use.
func (a *app) agentsOf(ctx context.Context, m *backup.Manifest, f *os.File) ([]store.Agent, error) {
	dir, err := os.MkdirTemp(a.paths().Lib(), ".restore-db-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "bawn.db")
	if err := backup.Database(f, m, path); err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	agents, err := s.Agents(ctx)
	return agents, errors.Join(err, s.Close())
}

// strangers names the agents' directories of this host that the backup knows
// nothing of.
func (a *app) strangers(agents []store.Agent) {
	known := map[string]bool{}
	for _, g := range agents {
		known[g.Name] = true
	}
	entries, err := os.ReadDir(a.paths().Agents())
	if err != nil {
		return // nothing to warn of
	}
	for _, e := range entries {
		if !known[e.Name()] && !strings.HasPrefix(e.Name(), ".") {
			fmt.Fprintf(a.stderr, "warning: agent %s is not in the backup; its account bawn-%[1]s and %s are still there\n", e.Name(), filepath.Join(a.paths().Agents(), e.Name()))
		}
	}
}
