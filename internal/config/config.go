// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the one configuration file of a host.
//
// A file that is absent means the defaults; a file that cannot be understood
// stops the process, since a boundary that guesses is none. Nothing in the
// text is expanded. The value that [Load] returns is frozen: a process that
// should see a change is started again.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"bawn/internal/ids"
)

// Version is the format that this build reads.
const Version = 1

// The accounts and the group that Bawn's processes run under.
const (
	AdminAccount = "bawn-admin"
	ProxyAccount = "bawn-proxy"
	Group        = "bawn" // its members are the operators
)

// Config is what an operator may set for one host.
type Config struct {
	Version int `yaml:"version"`
	// Resolvers answer the proxy's own look-ups; empty means the nameservers
	// of the host's resolv.conf.
	Resolvers []string `yaml:"resolvers"`
	// UpstreamRoots names a PEM file of more roots to verify upstreams with.
	UpstreamRoots string `yaml:"upstream_roots"`
	// SystemRoots says whether upstreams are verified with the system's roots
	// too.
	SystemRoots bool `yaml:"system_roots"`
	// Credentials are what rules may name under credential.
	Credentials map[string]Credential `yaml:"credentials"`
	// ParentProxy is what everything goes out through, if it has an address.
	ParentProxy ParentProxy `yaml:"parent_proxy"`
	// Placement is how an agent is held when nothing else is said.
	Placement ids.Placement `yaml:"placement"`
	// Limits bound one session.
	Limits Limits `yaml:"limits"`
	// Wildcards bound the names that an agent makes up under wildcards.
	Wildcards Wildcards `yaml:"wildcards"`
	// Grants bound the rules that agents have for a time.
	Grants Grants `yaml:"grants"`
	// Doctor says when the self-test runs by itself.
	Doctor Doctor `yaml:"doctor"`
	// Audit bounds how much of the record is kept.
	Audit Audit `yaml:"audit"`
}

// Limits bound one session of an agent.
type Limits struct {
	PIDs       int `yaml:"pids"`        // processes and threads
	MemoryMiB  int `yaml:"memory_mib"`  // resident memory and page cache
	CPUPercent int `yaml:"cpu_percent"` // of one CPU: 200 is two; 0 is no limit
}

// Wildcards bound the names that one agent makes up in a day under rules such
// as "*.example.com".
type Wildcards struct {
	Names      int `yaml:"names"`       // under one registered domain
	Octets     int `yaml:"octets"`      // of their labels in front of what the rule says, added up
	AllNames   int `yaml:"all_names"`   // under all domains
	NameOctets int `yaml:"name_octets"` // of the labels of one name in front of what the rule says
	NameLabels int `yaml:"name_labels"` // how many these may be
}

// Grants bound the rules that `bawn allow` gives.
type Grants struct {
	Max time.Duration `yaml:"max"` // how long one may hold
}

// Default is the configuration of a host that has no file.
func Default() Config {
	return Config{
		Version: Version, SystemRoots: true,
		Placement: ids.PlacementNetns,
		Limits:    Limits{PIDs: 4096, MemoryMiB: 8192},
		Wildcards: Wildcards{Names: 256, Octets: 8192, AllNames: 4096, NameOctets: 100, NameLabels: 8},
		Grants:    Grants{Max: 24 * time.Hour},
		Doctor:    Doctor{Every: time.Hour},
		Audit:     Audit{Keep: "90d", MaxSize: "20GB"},
	}
}

// Load reads the file of p over the defaults and checks it. The error names
// the file and every problem in it.
func Load(p Paths) (Config, error) {
	name := p.ConfigFile()
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Default(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("reading configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("reading configuration %s: %w", name, err)
	}
	return c, nil
}

// Parse reads the text of a configuration file: one YAML document, known keys
// only.
func Parse(text []byte) (Config, error) {
	c := Default()
	c.Version = 0
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, readable(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("more than one document")
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Validate reports every problem of c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Version == 0 {
		errs = append(errs, fmt.Errorf("version: is missing: write version: %d", Version))
	} else if c.Version != Version {
		errs = append(errs, fmt.Errorf("version: %d is not %d, the one that this build reads", c.Version, Version))
	}
	if _, err := ids.ParsePlacement(string(c.Placement)); err != nil {
		errs = append(errs, err)
	}
	for _, r := range c.Resolvers {
		if _, err := parseResolver(r); err != nil {
			errs = append(errs, err)
		}
	}
	if err := absolute("upstream_roots", c.UpstreamRoots); err != nil {
		errs = append(errs, err)
	}
	if !c.SystemRoots && c.UpstreamRoots == "" {
		errs = append(errs, errors.New("system_roots: false leaves no root to verify upstreams with: name a file under upstream_roots"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Credentials)) {
		errs = append(errs, c.Credentials[name].validate("credentials "+name, name)...)
	}
	errs = append(errs, c.ParentProxy.validate()...)
	if err := c.Doctor.validate(); err != nil {
		errs = append(errs, err)
	}
	l := c.Limits
	if l.PIDs < 8 || l.MemoryMiB < 16 || l.CPUPercent < 0 {
		errs = append(errs, fmt.Errorf("limits: need pids >= 8, memory_mib >= 16 and cpu_percent >= 0, have %d, %d and %d", l.PIDs, l.MemoryMiB, l.CPUPercent))
	}
	if w := c.Wildcards; min(w.Names, w.Octets, w.AllNames, w.NameOctets, w.NameLabels) < 1 {
		errs = append(errs, errors.New("wildcards: every number has to be 1 or more; a host that is to have no such names needs no rule with a wildcard"))
	}
	if c.Grants.Max < time.Second || c.Grants.Max > maxGrant {
		errs = append(errs, fmt.Errorf("grants: max: need 1s to %s, have %s", maxGrant, c.Grants.Max))
	}
	errs = append(errs, c.Audit.validate()...)
	return errors.Join(errs...)
}

// maxGrant is the longest that a grant may hold at all: what is wanted for
// longer belongs in the policy.
const maxGrant = 90 * 24 * time.Hour

func absolute(where, path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("%s: %q is not an absolute path", where, path)
	}
	return nil
}

// parseResolver reads "ADDRESS" or "ADDRESS:PORT"; the port is 53 unless said.
func parseResolver(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 53), nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("resolvers: %q is not ADDRESS or ADDRESS:PORT", s)
	}
	return ap, nil
}

// resolvConf is where the host's own resolvers are named (resolv.conf(5)).
const resolvConf = "/etc/resolv.conf"

// Nameservers returns the resolvers of the proxy: those configured, else those
// of the host. An error names the fix.
func (c Config) Nameservers() ([]netip.AddrPort, error) {
	if len(c.Resolvers) > 0 {
		list := make([]netip.AddrPort, len(c.Resolvers))
		for i, r := range c.Resolvers {
			list[i], _ = parseResolver(r) // Validate has read them
		}
		return list, nil
	}
	text, err := os.ReadFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("finding resolvers: %w: name them under resolvers: in the configuration", err)
	}
	list := parseResolvConf(string(text))
	if len(list) == 0 {
		return nil, fmt.Errorf("finding resolvers: %s names none: name them under resolvers: in the configuration", resolvConf)
	}
	return list, nil
}

func parseResolvConf(text string) []netip.AddrPort {
	var list []netip.AddrPort
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			list = append(list, netip.AddrPortFrom(a, 53))
		}
	}
	return list
}
