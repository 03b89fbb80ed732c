// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentenv computes the environment of an agent's program.
//
// It is made from nothing: a few variables that every program expects, the
// proxy and the trust in Bawn's root in every spelling that real tools need,
// and what the operator named. Of the operator's own environment only what
// describes the terminal and the language comes in, since environments hold
// secrets (I11).
//
// Variables that add a root to a tool's own point at Bawn's certificate alone;
// variables that replace a tool's roots point at the bundle, in which the
// system's roots and the operator's are too. A tool that is given the
// certificate alone in a replacing variable trusts nothing else.
package agentenv

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Spec says for whom the environment is.
type Spec struct {
	Agent   string   // name of the agent
	Session string   // id of the session
	Home    string   // home in the agent's view
	Work    string   // workspace in the view
	Temp    string   // temporary directory in the view
	Runtime string   // directory for sockets of the session, in the view
	Shell   string   // login shell; empty: /bin/sh
	Proxy   string   // ADDRESS:PORT of the explicit proxy
	CA      string   // file with Bawn's root alone, in the view
	Bundle  string   // file with all roots, in the view
	Lends   []string // directories lent, whose programs join PATH
	Given   []string // KEY=VALUE of the operator; they win over all but the proxy and trust
}

// systemPath is where Debian's login programs look (login.defs, ENV_PATH), and
// the system directories too.
const systemPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// Env returns the environment, sorted, each name once.
func Env(s Spec) []string {
	vars := map[string]string{}
	set := func(pairs [][2]string) {
		for _, p := range pairs {
			vars[p[0]] = p[1]
		}
	}
	set(basic(s))
	for _, kv := range s.Given {
		if k, v, ok := strings.Cut(kv, "="); ok && CheckGiven(kv) == nil {
			vars[k] = v
		}
	}
	set(proxies(s))
	set(trust(s))
	list := make([]string, 0, len(vars))
	for k, v := range vars {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

func basic(s Spec) [][2]string {
	shell := s.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	return [][2]string{
		{"HOME", s.Home}, {"USER", s.Agent}, {"LOGNAME", s.Agent}, {"SHELL", shell},
		{"PATH", searchPath(s)}, {"PWD", s.Work}, {"TMPDIR", s.Temp}, {"XDG_RUNTIME_DIR", s.Runtime},
		{"LANG", "C.UTF-8"}, {"TERM", "dumb"},
		{"BAWN_AGENT", s.Agent}, {"BAWN_SESSION", s.Session},
	}
}

// binDirs are where a lent directory may keep programs: a bin folder, or, for
// npm's local installs, the folder of links.
var binDirs = []string{"bin", "node_modules/.bin"}

// searchPath puts what the operator lends first, then the system, so that a bare
// name means the program that the operator means by it, then the agent's own
// installs (pip --user, npm prefix, go install, cargo).
func searchPath(s Spec) string {
	var dirs []string
	for _, l := range s.Lends {
		for _, b := range binDirs {
			dirs = append(dirs, path.Join(l, b))
		}
		dirs = append(dirs, l)
	}
	dirs = append(dirs, systemPath)
	for _, b := range []string{".local/bin", ".npm-global/bin", "go/bin", ".cargo/bin"} {
		dirs = append(dirs, path.Join(s.Home, b))
	}
	return strings.Join(dirs, ":")
}

// ownLoopback is what must not go through the proxy: the agent's own servers.
const ownLoopback = "localhost,127.0.0.1,::1"

// proxies names the proxy in every spelling. Tools read the lower or the upper
// case, and curl only the lower case of http_proxy.
func proxies(s Spec) [][2]string {
	url := "http://" + s.Proxy
	var list [][2]string
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY"} {
		list = append(list, [2]string{k, url}, [2]string{strings.ToLower(k), url})
	}
	return append(list,
		[2]string{"NO_PROXY", ownLoopback}, [2]string{"no_proxy", ownLoopback},
		[2]string{"NODE_USE_ENV_PROXY", "1"},     // Node 24 and later; earlier ones go the transparent way
		[2]string{"npm_config_proxy", url},       // npm
		[2]string{"npm_config_https_proxy", url}, // npm
		[2]string{"npm_config_noproxy", ownLoopback},
	)
}

// trust names Bawn's root. Both kinds of variable are here; see the package
// comment.
func trust(s Spec) [][2]string {
	return [][2]string{
		// These add.
		{"NODE_EXTRA_CA_CERTS", s.CA},
		{"DENO_CERT", s.CA},
		{"BAWN_CA", s.CA},
		// These replace.
		{"SSL_CERT_FILE", s.Bundle},           // OpenSSL, Go, rustls-native-certs
		{"CURL_CA_BUNDLE", s.Bundle},          // curl
		{"REQUESTS_CA_BUNDLE", s.Bundle},      // Python requests
		{"PIP_CERT", s.Bundle},                // pip
		{"GIT_SSL_CAINFO", s.Bundle},          // git
		{"CARGO_HTTP_CAINFO", s.Bundle},       // cargo
		{"NPM_CONFIG_CAFILE", s.Bundle},       // npm
		{"npm_config_cafile", s.Bundle},       // npm, its other spelling
		{"AWS_CA_BUNDLE", s.Bundle},           // AWS command line and SDKs
		{"BUNDLE_SSL_CA_CERT", s.Bundle},      // Ruby's bundler
		{"HEX_CACERTS_PATH", s.Bundle},        // Elixir's hex
		{"SYSTEM_CERTIFICATE_PATH", s.Bundle}, // Haskell's stack
		{"NIX_SSL_CERT_FILE", s.Bundle},       // Nix
		{"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", s.Bundle},
		{"SSL_CERT_DIR", path.Dir(s.Bundle)},
		{"UV_NATIVE_TLS", "true"},   // uv: use the system's roots
		{"UV_SYSTEM_CERTS", "true"}, // uv, newer spelling
		{"JAVA_TOOL_OPTIONS", javaOptions(s)},
	}
}

// javaOptions has the JVM use the proxy. Its trust store is a file of its own
// format; the view has one with Bawn's root where distributions keep Java's.
func javaOptions(s Spec) string {
	host, port, _ := strings.Cut(s.Proxy, ":")
	return fmt.Sprintf("-Dhttp.proxyHost=%[1]s -Dhttp.proxyPort=%[2]s -Dhttps.proxyHost=%[1]s -Dhttps.proxyPort=%[2]s -Dhttp.nonProxyHosts=localhost|127.*|[::1]", host, port)
}

// CheckGiven reports why KEY=VALUE cannot be one of the operator's. What leads
// to the proxy and to Bawn's root is not theirs to set: a wrong value would
// only break the agent, and a clear error is better.
func CheckGiven(kv string) error {
	k, _, ok := strings.Cut(kv, "=")
	if !ok || !validName(k) {
		return fmt.Errorf("%q: not KEY=VALUE", kv)
	}
	if strings.IndexByte(kv, 0) >= 0 {
		return fmt.Errorf("variable %s: its value holds a NUL byte", k)
	}
	if slices.Contains(reserved(), k) {
		return fmt.Errorf("variable %s: set by Bawn, so that the agent finds its proxy and trusts it", k)
	}
	return nil
}

// validName is the form of environment names that shells can use (POSIX, Base
// Definitions 8.1).
func validName(k string) bool {
	if k == "" || k[0] >= '0' && k[0] <= '9' {
		return false
	}
	for _, c := range []byte(k) {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

func reserved() []string {
	var names []string
	for _, p := range append(proxies(Spec{}), trust(Spec{})...) {
		names = append(names, p[0])
	}
	return names
}
