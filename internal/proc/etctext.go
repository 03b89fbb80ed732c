// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"strconv"
	"strings"
)

// The files of /etc that are written for each agent.

// hostname is the name of the agent's UTS namespace.
func (s *Spec) hostname() string { return "bawn-" + s.Agent }

// account is the name of the agent's Linux account.
func (s *Spec) account() string { return "bawn-" + s.Agent }

// resolvConf names the resolver of the agent's own network. Where there is
// none, programs are to fail at once rather than ask the host's.
func (s *Spec) resolvConf() string {
	if len(s.Nameservers) == 0 {
		return "# No resolver: names are resolved by Bawn's proxy alone.\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
	}
	var b strings.Builder
	for _, n := range s.Nameservers {
		fmt.Fprintf(&b, "nameserver %s\n", n)
	}
	b.WriteString("options timeout:2 attempts:1\n")
	return b.String()
}

func (s *Spec) hosts() string {
	return "127.0.0.1\tlocalhost " + s.hostname() + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"
}

// passwd is the host's table of accounts with the agent's own entry as it
// holds in the view: some programs, ssh for one, believe this rather than HOME.
func (s *Spec) passwd(host string) string {
	uid, gid := strconv.Itoa(int(s.UID)), strconv.Itoa(int(s.GID))
	own := strings.Join([]string{s.account(), "x", uid, gid, "Bawn agent " + s.Agent, s.Home(), "/bin/sh"}, ":")
	return without(host, 2, uid, s.account()) + own + "\n"
}

// group is the same for groups.
func (s *Spec) group(host string) string {
	gid := strconv.Itoa(int(s.GID))
	return without(host, 2, gid, s.account()) + s.account() + ":x:" + gid + ":\n"
}

// without returns the lines of a colon-separated table that have neither the
// id in the field given nor the name in the first.
func without(table string, field int, id, name string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) <= field || f[field] == id || f[0] == name {
			continue
		}
		b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}
