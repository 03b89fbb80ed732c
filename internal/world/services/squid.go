// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"bawn/internal/world"
	"bawn/internal/world/supply"
)

// The login that [Squid] wants.
const (
	SquidUser     = "bawn"
	SquidPassword = "hunter2"
)

var (
	//go:embed squid.conf
	squidConf string
	squidText = template.Must(template.New("squid.conf").Parse(squidConf))
)

// A Proxy is a running Squid.
type Proxy struct{ dir string }

// Squid runs the proxy through which a network's hosts reach the internet, at
// Parent: on port 3128, and on port 3129 with TLS to itself. It lets nobody go
// to forbidden.
func Squid(w *world.World, forbidden string) (*Proxy, error) {
	deb, err := supply.Unpack("squid-openssl", "squid-common", "squid-langpack")
	if err != nil {
		return nil, err
	}
	dir, err := folder(w, "squid", "squid", w.Names.Parent)
	if err != nil {
		return nil, err
	}
	hash, err := exec.Command("openssl", "passwd", "-apr1", SquidPassword).Output()
	if err != nil {
		return nil, fmt.Errorf("making the password of squid: %w", err)
	}
	var conf bytes.Buffer
	err = squidText.Execute(&conf, map[string]string{
		"Addr": world.ParentAddr, "DNS": world.DNSAddr, "Host": w.Names.Parent, "Dir": dir, "Forbidden": forbidden,
		"Root": filepath.Join("/run/lent", filepath.Base(deb.Root)),
	})
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"squid.conf": conf.String(), "passwords": SquidUser + ":" + string(hash)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("configuring squid: %w", err)
		}
	}
	return &Proxy{dir}, w.Upstream.Run(world.Program{
		Name: "squid", Argv: []string{deb.Path("/usr/sbin/squid"), "-N", "-f", dir + "/squid.conf"},
		Account: "squid", Lent: deb.Root, Env: deb.Env(), Listens: world.ParentAddr + ":3129",
	})
}

// Log returns what Squid says it was asked for: a line for each request, with
// result, method and target.
func (p *Proxy) Log() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "access.log"))
	if err != nil {
		return nil, fmt.Errorf("reading what squid wrote: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 6 {
			lines = append(lines, f[3]+" "+f[5]+" "+f[6])
		}
	}
	return lines, nil
}
