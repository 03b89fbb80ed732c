// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/config"
	"bawn/internal/inspect"
	"bawn/internal/netd"
)

func (a *app) netdCommand() *cobra.Command {
	return &cobra.Command{
		Use: "netd", Hidden: true, Short: "Run the root helper (bawn up starts it)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("starting netd: it needs root: bawn up starts it")
			}
			if err := netd.DropCaps(); err != nil {
				return fmt.Errorf("starting netd: %w", err)
			}
			o := netd.Options{State: a.paths().Lib(), Mark: a.paths().Mark(), Version: version, Log: a.logger("netd"), Now: time.Now}
			if p := a.paths(); p.Root != "/" {
				// The view has an /etc and a /run of its own; this root may lie
				// within something that agents are shown.
				o.Hide = []string{p.Etc(), p.Run()}
			}
			var err error
			if o.AdminUID, err = uidOf(config.AdminAccount); err != nil {
				return err
			}
			if o.ProxyUID, err = uidOf(config.ProxyAccount); err != nil {
				return err
			}
			if o.OperatorGID, err = operatorGID(); err != nil {
				return err
			}
			if o.Inspect, err = a.inspectHost(o); err != nil {
				return err
			}
			by, err := a.started("netd")
			if err != nil {
				return err
			}
			unlock, err := by.only()
			if err != nil {
				return err
			}
			defer unlock()
			l, err := by.listener()
			if err != nil {
				return err
			}
			ready := by.ready()
			by.live(cmd.Context())
			s, err := netd.Open(cmd.Context(), o)
			if err != nil {
				return err
			}
			ready()
			return s.Serve(cmd.Context(), l)
		},
	}
}

// inspectHost says where the self-test looks at the host. A configuration that
// cannot be read stops admin and the proxy; netd only knows fewer secrets then.
func (a *app) inspectHost(o netd.Options) (inspect.Host, error) {
	p := a.paths()
	h := inspect.Default()
	h.Etc, h.Lib, h.Run, h.Operators = p.Etc(), p.Lib(), p.Run(), int(o.OperatorGID)
	h.Admin.UID, h.Proxy.UID = int(o.AdminUID), int(o.ProxyUID)
	for account, gid := range map[string]*int{config.AdminAccount: &h.Admin.GID, config.ProxyAccount: &h.Proxy.GID} {
		u, err := user.Lookup(account)
		if err != nil {
			return h, fmt.Errorf("looking up account %s: %w", account, err)
		}
		if *gid, err = strconv.Atoi(u.Gid); err != nil {
			return h, fmt.Errorf("looking up account %s: %w", account, err)
		}
	}
	var err error
	if h.Binary, err = os.Executable(); err != nil {
		return h, fmt.Errorf("finding bawn's own binary: %w", err)
	}
	if cfg, err := config.Load(p); err == nil {
		h.Secrets = cfg.Secrets()
	}
	return h, nil
}
