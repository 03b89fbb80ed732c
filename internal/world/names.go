// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

// The addresses of the world. Those of the internet and of the attacker lie in
// ranges that count as public, since an address of a documentation range would
// be refused before anything else is tried.
const (
	HostAddr  = "192.168.50.2"
	HostAddr6 = "2606:2800:220:50::2"

	gatewayAddr  = "192.168.50.1"
	ParentAddr   = gatewayAddr // a private address, as proxies of a network have
	gatewayAddr6 = "2606:2800:220:50::1"

	DNSAddr      = "93.184.216.53"
	DNSAddr6     = "2606:2800:220:1::53"
	APIAddr      = "93.184.216.10"
	APIAddr6     = "2606:2800:220:1::10"
	gitAddr      = "93.184.216.11"
	filesAddr    = "93.184.216.12"
	registryAddr = "93.184.216.20"
	brokenAddr   = "93.184.216.30"
	databaseAddr = "93.184.216.35"
	h2Addr       = "93.184.216.13"
	h2OnlyAddr   = "93.184.216.14"
	// At these nobody listens until a test starts a server there; see
	// [Upstream.Run] and the package services.
	GRPCAddr      = "93.184.216.15"
	WebSocketAddr = "93.184.216.16"
	SSHAddr       = "93.184.216.17"
	PostgresAddr  = "93.184.216.18"
	SMTPAddr      = "93.184.216.19"
	TLSAddr       = "93.184.216.21"
	// RefusedAddr answers every connection with a reset, SilentAddr with nothing.
	RefusedAddr = "93.184.216.40"
	SilentAddr  = "93.184.216.41"

	AttackerAddr  = "93.184.217.66"
	attackerAddr2 = "93.184.217.67"
	AttackerAddr6 = "2606:2800:220:2::66"
	// TunnelAddr and TunnelAddr2 are the attacker's too, with port 53 free for
	// the servers of tunnels.
	TunnelAddr  = "93.184.217.68"
	TunnelAddr2 = "93.184.217.69"

	LANAddr      = "10.0.0.5"
	MetadataAddr = "169.254.169.254"
)

// Names are the hosts of the world. The resolver of the world knows each.
type Names struct {
	API      string // echo, /sse, /download, /upload, /redirect on 443 and 80
	Files    string // the same pages under another name
	Wild     string // "*." of it leads to the pages of API
	Git      string // git over https: /tools/hello.git
	GitH2    string // the same in HTTP/2
	NPM      string // an npm registry with two packages
	PyPI     string // a Python index with one package
	GoProxy  string // a Go module proxy with one module
	Database string // TCP 5432: echoes each line, and ends as it is told
	H2       string // the pages of API in HTTP/2 and HTTP/1.1
	H2Only   string // the same in HTTP/2 alone

	GRPC      string // for the servers of the package services
	WebSocket string
	SSH       string
	Postgres  string
	SMTP      string
	Parent    string
	TLS       string

	SelfSigned string // a certificate that nobody signed
	Expired    string // a certificate of last year
	WrongHost  string // a certificate of another name
	UnknownCA  string // a certificate under a root that nobody trusts
	NotYet     string // a certificate of tomorrow
	Confined   string // a certificate by an issuer for other names
	Weak       string // an RSA key of 1024 bits

	Evil   string // the attacker's; any name below it is asked at the attacker's resolver
	Evil2  string // another of the attacker's
	LAN    string // a public name that leads to the private service
	Meta   string // a public name that leads to the metadata address
	Rebind string // public at the first question, private from the second on
	Multi  string // first a silent, then a refusing, then a good address
	Mixed  string // a public and a private address in one answer
	Gone   string // no such name
}

// AllNames are the names of every world.
func AllNames() Names {
	return Names{
		API:      "api.example.com",
		Files:    "files.example.com",
		Wild:     "wild.example.com",
		Git:      "git.example.com",
		GitH2:    "git-h2.example.com",
		NPM:      "registry.example.net",
		PyPI:     "pypi.example.net",
		GoProxy:  "goproxy.example.net",
		Database: "db.example.com",
		H2:       "h2.example.com",
		H2Only:   "h2only.example.com",

		GRPC:      "grpc.example.com",
		WebSocket: "ws.example.com",
		SSH:       "ssh.example.com",
		Postgres:  "pg.example.com",
		SMTP:      "smtp.example.com",
		Parent:    "proxy.corp.example",
		TLS:       "tls.example.com",

		SelfSigned: "self-signed.example.com",
		Expired:    "expired.example.com",
		WrongHost:  "wrong-host.example.com",
		UnknownCA:  "unknown-ca.example.com",
		NotYet:     "not-yet.example.com",
		Confined:   "confined.example.com",
		Weak:       "weak.example.com",

		Evil:   "evil.example.org",
		Evil2:  "exfil.example.org",
		LAN:    "models.corp.example",
		Meta:   "metadata.example.com",
		Rebind: "rebind.example.com",
		Multi:  "multi.example.com",
		Mixed:  "mixed.example.com",
		Gone:   "gone.example.com",
	}
}

// zone is what the resolver answers at first.
func zone() map[string][]Answer {
	n := AllNames()
	api := Answer{Addrs: []string{APIAddr, APIAddr6}}
	return map[string][]Answer{
		n.API:         {api},
		n.Files:       {{Addrs: []string{filesAddr}}},
		"*." + n.Wild: {api},
		n.Git:         {{Addrs: []string{gitAddr}}},
		n.NPM:         {{Addrs: []string{registryAddr}}},
		n.PyPI:        {{Addrs: []string{registryAddr}}},
		n.GoProxy:     {{Addrs: []string{registryAddr}}},
		n.Database:    {{Addrs: []string{databaseAddr}}},
		n.H2:          {{Addrs: []string{h2Addr}}},
		n.GitH2:       {{Addrs: []string{h2Addr}}},
		n.H2Only:      {{Addrs: []string{h2OnlyAddr}}},
		n.GRPC:        {{Addrs: []string{GRPCAddr}}},
		n.WebSocket:   {{Addrs: []string{WebSocketAddr}}},
		n.SSH:         {{Addrs: []string{SSHAddr}}},
		n.Postgres:    {{Addrs: []string{PostgresAddr}}},
		n.SMTP:        {{Addrs: []string{SMTPAddr}}},
		n.TLS:         {{Addrs: []string{TLSAddr}}},
		n.Parent:      {{Addrs: []string{ParentAddr}}},
		n.SelfSigned:  {{Addrs: []string{brokenAddr}}},
		n.Expired:     {{Addrs: []string{brokenAddr}}},
		n.WrongHost:   {{Addrs: []string{brokenAddr}}},
		n.UnknownCA:   {{Addrs: []string{brokenAddr}}},
		n.NotYet:      {{Addrs: []string{brokenAddr}}},
		n.Confined:    {{Addrs: []string{brokenAddr}}},
		n.Weak:        {{Addrs: []string{brokenAddr}}},

		n.Evil:            {{Addrs: []string{AttackerAddr, AttackerAddr6}}},
		"*." + n.Evil:     {{Ask: AttackerAddr}},
		n.Evil2:           {{Addrs: []string{attackerAddr2}}},
		"*." + n.Evil2:    {{Ask: attackerAddr2}},
		n.LAN:             {{Addrs: []string{LANAddr}}},
		n.Meta:            {{Addrs: []string{MetadataAddr}}},
		n.Rebind:          {{Addrs: []string{APIAddr}}, {Addrs: []string{LANAddr}}},
		n.Multi:           {{Addrs: []string{SilentAddr, RefusedAddr, APIAddr}}},
		n.Mixed:           {{Addrs: []string{APIAddr, LANAddr}}},
		"www.example.com": {{CNAME: n.API}},
	}
}
