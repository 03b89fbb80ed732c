// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

// The peers that Debian has, as they are configured.
var (
	//go:embed peers/squid.conf
	squidConf string
	//go:embed peers/mitmproxy.yaml
	mitmproxyConf string
	//go:embed peers/rules.py
	mitmproxyRules string
)

// allowedPath begins what policies let through.
const allowedPath = "/v1/"

// filled is what the configurations of peers leave open.
type filled struct {
	Dir, Listen, ListenHost, ListenPort       string
	CA, Roots, Host, H2Host, SpliceHost, Path string
	SpliceHostRegexp                          string
	Descriptors                               int
}

func (b *bench) fill(text, listen, dir string) ([]byte, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	t, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	err = t.Execute(&out, filled{
		Dir: dir, Listen: listen, ListenHost: host, ListenPort: port,
		CA: b.pki.peerCA, Roots: b.pki.originRoot, Host: originHost, H2Host: originH2, SpliceHost: spliceHost, Path: allowedPath,
		SpliceHostRegexp: regexp.QuoteMeta(spliceHost), Descriptors: descriptors(),
	})
	return []byte(out.String()), err
}

// listening is shell code that says "ready" once something accepts on a port,
// and ends with its standard
// input, after what it has started.
const listening = `
child=$!
trap 'kill $child 2>/dev/null; wait $child 2>/dev/null' EXIT
for i in $(seq 200); do
	if ss -Hltn "sport = :$port" | grep -q . ; then echo ready; break; fi
	kill -0 $child 2>/dev/null || exit 1
	sleep 0.1
done
read -r _ || :
`

const squidScript = `
set -e
port=$2
/usr/lib/squid/security_file_certgen -c -s "$1/certs" -M 16MB >/dev/null
chown -R proxy "$1"
/usr/sbin/squid -N -f "$1/squid.conf" &
` + listening

func startSquid(ctx context.Context, b *bench) (*peer, error) {
	dir, err := b.place.freshDir("squid")
	if err != nil {
		return nil, err
	}
	conf, err := b.fill(squidConf, squidAddr, dir)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.place.outside(dir+"/squid.conf"), conf, 0o644); err != nil {
		return nil, err
	}
	return b.startScript(ctx, "squid", squidAddr, dir, squidScript, "cache.log")
}

func squidCannot(r *row) string {
	switch {
	case r.proto == "h2":
		return "speaks no HTTP/2 to clients"
	case r.proto == "ws":
		return "copies octets after the 101, unread"
	case r.kind == "idle" && r.host == "" && r.large():
		return "opens some hundred such connections a second: 10,000 take too long here"
	}
	return ""
}

const mitmproxyScript = `
set -e
port=$2
BENCH_LOG=$1/access.log BENCH_HOSTS=$3 BENCH_PATH=$4 /usr/bin/mitmdump --set confdir="$1" >"$1/out.log" 2>&1 </dev/null &
` + listening

func startMitmproxy(ctx context.Context, b *bench) (*peer, error) {
	dir, err := b.place.freshDir("mitmproxy")
	if err != nil {
		return nil, err
	}
	conf, err := b.fill(mitmproxyConf, mitmAddr, dir)
	if err != nil {
		return nil, err
	}
	out := b.place.outside(dir)
	err = errors.Join(
		os.WriteFile(filepath.Join(out, "config.yaml"), conf, 0o644),
		os.WriteFile(filepath.Join(out, "rules.py"), []byte(mitmproxyRules), 0o644),
		copyFile(b.place.outside(b.pki.peerCA), filepath.Join(out, "mitmproxy-ca.pem")),
	)
	if err != nil {
		return nil, err
	}
	return b.startScript(ctx, "mitmproxy", mitmAddr, dir, mitmproxyScript, "out.log")
}

func mitmproxyCannot(r *row) string {
	switch {
	case r.idle() && r.large():
		return "opens some dozens of connections a second: 10,000 take too long here"
	}
	return ""
}

// startScript starts a peer by a shell script; its arguments are the directory,
// the port, the hosts and the path.
func (b *bench) startScript(ctx context.Context, name, addr, dir, script, log string) (*peer, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p, err := start(b.place.command(ctx, "sh", "-c", script, "sh", dir, port, originHost+","+originH2+","+spliceHost, allowedPath), "ready")
	if err != nil {
		text, _ := os.ReadFile(b.place.outside(dir + "/" + log))
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return &peer{
		name: name, pid: p.cmd.Process.Pid, end: p.stop, proxy: addr, roots: b.pki.peerRoot,
		lines: countLines(b.place.outside(dir + "/access.log")),
	}, nil
}

// versions says what is compared.
func versions() string {
	list := []string{"goproxy " + moduleVersion("github.com/elazarl/goproxy")}
	for _, c := range []struct{ argv, want string }{
		{"squid -v", `Version (\S+)`}, {"mitmdump --version", `Mitmproxy: (\S+)`},
	} {
		argv := strings.Fields(c.argv)
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		m := regexp.MustCompile(c.want).FindSubmatch(out)
		if err != nil || m == nil {
			continue
		}
		list = append(list, argv[0]+" "+string(m[1]))
	}
	return strings.Join(list, ", ")
}
