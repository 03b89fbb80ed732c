// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"bawn/internal/config"
)

// account is one that a process of Bawn runs under.
type account struct{ uid, gid int }

type accounts struct {
	admin, proxy account
	operators    int // gid of the group whose members may ask admin
}

// of returns the account that one of Bawn's names stands for.
func (a accounts) of(name string) account {
	switch name {
	case config.AdminAccount:
		return a.admin
	case config.ProxyAccount:
		return a.proxy
	}
	return account{}
}

// ensureAccounts makes what is missing with the distribution's own tools.
func ensureAccounts(ctx context.Context, p config.Paths) (accounts, error) {
	var a accounts
	var err error
	if a.operators, err = ensureGroup(ctx, config.Group); err != nil {
		return a, err
	}
	if a.admin, err = ensureAccount(ctx, p, config.AdminAccount); err != nil {
		return a, err
	}
	a.proxy, err = ensureAccount(ctx, p, config.ProxyAccount)
	return a, err
}

func ensureGroup(ctx context.Context, name string) (gid int, err error) {
	g, err := user.LookupGroup(name)
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown {
		if err := tool(ctx, "groupadd", "--system", name); err != nil {
			return 0, fmt.Errorf("making group %s: %w", name, err)
		}
		g, err = user.LookupGroup(name)
	}
	if err != nil {
		return 0, fmt.Errorf("looking up group %s: %w", name, err)
	}
	return strconv.Atoi(g.Gid)
}

func ensureAccount(ctx context.Context, p config.Paths, name string) (account, error) {
	u, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		err := tool(ctx, "useradd", "--system", "--user-group", "--no-create-home",
			"--home-dir", p.Lib(), "--shell", "/usr/sbin/nologin", name)
		if err != nil {
			return account{}, fmt.Errorf("making account %s: %w", name, err)
		}
		u, err = user.Lookup(name)
		if err != nil {
			return account{}, fmt.Errorf("looking up account %s: %w", name, err)
		}
	} else if err != nil {
		return account{}, fmt.Errorf("looking up account %s: %w", name, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil || uid == 0 {
		return account{}, fmt.Errorf("looking up account %s: it has uid %q, which cannot be Bawn's", name, u.Uid)
	}
	gid, err := strconv.Atoi(u.Gid)
	return account{uid, gid}, err
}

// tool runs one of the distribution's account tools.
func tool(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not on this host: install the package that holds it (Debian: passwd)", name)
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
