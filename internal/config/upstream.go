// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"bawn/internal/names"
)

// A Credential is one that rules may name. What is secret of it stands in files
// of its own.
type Credential struct {
	Kind        string   `yaml:"kind"`        // tls-client
	Certificate string   `yaml:"certificate"` // PEM file: the certificate, then its chain
	Key         string   `yaml:"key"`         // PEM file, which only root may read
	Hosts       []string `yaml:"hosts"`       // that it may be shown to
}

// TLSClient is the kind of a [Credential] that is a client certificate.
const TLSClient = "tls-client"

// credentialName is the form that policies name credentials in.
var credentialName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

func (c Credential) validate(where, name string) []error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(where+": "+format, args...)) }
	if !credentialName.MatchString(name) {
		add("the name is not 1 to 128 letters, digits, dots, hyphens and underscores")
	}
	if c.Kind != TLSClient {
		add("kind %q is none that this build knows: write %s", c.Kind, TLSClient)
	}
	for _, f := range []struct{ key, path string }{{"certificate", c.Certificate}, {"key", c.Key}} {
		if f.path == "" {
			add("%s is missing: write %s: FILE", f.key, f.key)
		} else if err := absolute(where+" "+f.key, f.path); err != nil {
			errs = append(errs, err)
		}
	}
	if len(c.Hosts) == 0 {
		add("hosts: names none, so it could not be used")
	}
	for _, h := range c.Hosts {
		if _, err := names.Parse(h); err != nil {
			add("hosts: %q is not the name of one host", h)
		}
	}
	return errs
}

// HostNames returns the hosts of a credential that [Parse] has taken.
func (c Credential) HostNames() []names.Host {
	list := make([]names.Host, len(c.Hosts))
	for i, h := range c.Hosts {
		list[i] = names.MustParse(h)
	}
	return list
}

// A ParentProxy is another proxy through which this host reaches the internet.
type ParentProxy struct {
	Address      string   `yaml:"address"`       // HOST:PORT, or https://HOST:PORT for TLS to the proxy itself; empty: none
	CA           string   `yaml:"ca"`            // PEM file: the only roots that its certificate is verified with; empty: those of upstreams
	Username     string   `yaml:"username"`      // for Proxy-Authorization: Basic
	PasswordFile string   `yaml:"password_file"` // which only root may read
	Addresses    []string `yaml:"addresses"`     // special-purpose ranges that HOST may resolve to
	Bypass       []string `yaml:"bypass"`        // hosts that are reached without it
}

// A Parent is a [ParentProxy] in the form that is worked with.
type Parent struct {
	Host      names.Host // zero for an address
	Addr      netip.Addr // invalid for a name
	Port      uint16
	TLS       bool
	Addresses []netip.Prefix
	Bypass    []names.Pattern
}

// Name is what the certificate of the proxy has to be for.
func (p Parent) Name() string {
	if p.Addr.IsValid() {
		return p.Addr.String()
	}
	return p.Host.String()
}

// Parent returns the proxy to go through, and false where there is none.
func (c Config) Parent() (Parent, bool) {
	if c.ParentProxy.Address == "" {
		return Parent{}, false
	}
	p, _ := c.ParentProxy.parse() // Validate has read it
	return p, true
}

func (p ParentProxy) validate() []error {
	if p.Address == "" {
		if p.CA+p.Username+p.PasswordFile != "" || len(p.Addresses)+len(p.Bypass) > 0 {
			return []error{errors.New("parent_proxy: address is missing: write address: HOST:PORT")}
		}
		return nil
	}
	_, errs := p.parse()
	if p.CA != "" && !strings.HasPrefix(p.Address, "https://") {
		errs = append(errs, errors.New("parent_proxy ca: there is no TLS to the proxy: write address: https://HOST:PORT"))
	}
	for _, f := range []struct{ key, path string }{{"ca", p.CA}, {"password_file", p.PasswordFile}} {
		if err := absolute("parent_proxy "+f.key, f.path); err != nil {
			errs = append(errs, err)
		}
	}
	if (p.Username == "") != (p.PasswordFile == "") {
		errs = append(errs, errors.New("parent_proxy: username and password_file go together"))
	}
	if strings.ContainsFunc(p.Username, func(r rune) bool { return r == ':' || r < ' ' || r == 0x7f }) {
		errs = append(errs, errors.New("parent_proxy username: a colon or a control character, which the proxy could not read"))
	}
	return errs
}

func (p ParentProxy) parse() (Parent, []error) {
	var out Parent
	var errs []error
	rest := p.Address
	if rest, out.TLS = strings.CutPrefix(rest, "https://"); !out.TLS {
		rest = strings.TrimPrefix(rest, "http://")
	}
	a, err := names.ParseAuthority(strings.TrimSuffix(rest, "/"))
	if err != nil || a.PortOr(0) == 0 {
		errs = append(errs, fmt.Errorf("parent_proxy address: %q is not HOST:PORT or https://HOST:PORT", p.Address))
	}
	out.Host, out.Addr, out.Port = a.Host, a.Addr, a.PortOr(0)
	for _, s := range p.Addresses {
		r, err := netip.ParsePrefix(s)
		if err != nil || r != r.Masked() {
			errs = append(errs, fmt.Errorf("parent_proxy addresses: %q is not an address range such as 10.20.0.0/16", s))
		}
		out.Addresses = append(out.Addresses, r)
	}
	for _, s := range p.Bypass {
		b, err := names.ParsePattern(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("parent_proxy bypass: %q is not a host name or *.REST", s))
		}
		out.Bypass = append(out.Bypass, b)
	}
	return out, errs
}
