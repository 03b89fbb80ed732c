// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"bawn/internal/config"
	"bawn/internal/netplan"
	"bawn/internal/proc"
)

// purge plans the removal of data and accounts. Accounts of Bawn's own
// processes stay with an installation below another root: it shares them with
// whatever else is on the host.
func purge(ctx context.Context, l Layout) Plan {
	p := l.Paths
	var plan Plan
	for _, name := range agentAccounts(p) {
		plan = append(plan, Step{Action: Removes, What: "account " + name, do: func() (string, error) { return "", removeAccount(ctx, name) }})
	}
	if _, err := os.Lstat(p.Lib()); err == nil {
		plan = append(plan, Step{Action: Removes, What: p.Lib(), Why: "with all that is in it", do: func() (string, error) { return "", removeTree(ctx, p.Lib()) }})
	}
	if _, err := os.Lstat(p.Etc()); err == nil {
		plan = append(plan, Step{Action: Removes, What: p.Etc(), Why: "if nothing else is in it", do: func() (string, error) { return removeEmpty(p.Etc()) }})
	}
	if p.Root != "/" {
		return append(plan, Step{Action: Keeps, What: "accounts of Bawn's processes", Why: "another installation may use them"})
	}
	for _, name := range []string{config.AdminAccount, config.ProxyAccount} {
		plan = append(plan, Step{Action: Removes, What: "account " + name, do: func() (string, error) { return "", removeAccount(ctx, name) }})
	}
	return append(plan, Step{Action: Removes, What: "group " + config.Group, do: func() (string, error) { return "", removeGroup(ctx, config.Group) }})
}

// agentAccounts are those of agents whose directories this installation has:
// the name, the number and the comment are what netd gives them, and the
// account's group has the same number.
func agentAccounts(p config.Paths) (names []string) {
	text, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return nil // then there is no account to remove either
	}
	for line := range strings.Lines(string(text)) {
		if name, agent, ok := agentAccount(strings.TrimSuffix(line, "\n")); ok {
			if info, err := os.Lstat(filepath.Join(p.Agents(), agent)); err == nil && info.IsDir() {
				names = append(names, name)
			}
		}
	}
	return names
}

// agentAccount takes a line of passwd(5) apart.
func agentAccount(line string) (account, agent string, ok bool) {
	f := strings.Split(line, ":")
	if len(f) != 7 {
		return "", "", false
	}
	agent, ok = strings.CutPrefix(f[0], "bawn-")
	uid, err := strconv.ParseUint(f[2], 10, 32)
	return f[0], agent, ok && err == nil && netplan.IsAgentUID(uint32(uid)) && f[3] == f[2] &&
		f[4] == "Bawn agent "+agent && f[5] == "/home/"+agent
}

func removeAccount(ctx context.Context, name string) error {
	if there, err := listed("/etc/passwd", name); err != nil || !there {
		return err
	}
	if err := tool(ctx, "userdel", name); err != nil {
		return err
	}
	return removeGroup(ctx, name) // userdel takes one of the same name along, if it was the account's own
}

func removeGroup(ctx context.Context, name string) error {
	if there, err := listed("/etc/group", name); err != nil || !there {
		return err
	}
	return tool(ctx, "groupdel", name)
}

// listed reports whether an account file has the name.
func listed(file, name string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("looking up %s: %w", name, err)
	}
	return strings.Contains("\n"+string(text), "\n"+name+":"), nil
}

func tool(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// removeTree removes a directory that agents may have filled, however deep.
func removeTree(ctx context.Context, path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	return proc.RemoveTree(ctx, parent, filepath.Base(path))
}

// removeEmpty removes a directory unless the operator has more in it.
func removeEmpty(path string) (string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return fmt.Sprintf("stays: %d files in it are the operator's", len(entries)), nil
	}
	return "", os.Remove(path)
}
