// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bawn/internal/world/operator"
)

// A bench is what all runs share.
type bench struct {
	s      settings
	place  *place
	pki    pki
	origin *part
	op     *operator.Operator // of Bawn, once it has run
}

// A peer is a proxy that runs.
type peer struct {
	pid   int          // of the process above all of its processes
	end   func() error // stops it
	proxy string       // address for the client
	roots string       // file of those that the client is to trust
	// load prepares the client; nil: it runs beside the peer.
	load func(ctx context.Context, argv ...string) *exec.Cmd
}

// starters start the peers.
var starters = map[string]func(ctx context.Context, b *bench) (*peer, error){
	"floor":   startFloor,
	"goproxy": startGoproxy,
	"squid":   startSquid,
	"egress":  startEgress,
	"bawn":    startBawn,
}

func peerNames() []string { return slices.Sorted(maps.Keys(starters)) }

const proxyAddr = "127.0.0.1:3128"

// startRole starts a peer that is a role of this program.
func (b *bench) startRole(ctx context.Context, roots string, args ...string) (*peer, error) {
	p, err := b.startSelf(ctx, args...)
	if err != nil {
		return nil, err
	}
	return &peer{pid: p.cmd.Process.Pid, end: p.stop, proxy: proxyAddr, roots: roots}, nil
}

func startFloor(ctx context.Context, b *bench) (*peer, error) {
	return b.startRole(ctx, b.pki.peerRoot, "floor", "-listen", proxyAddr, "-pair", b.pki.peerPair, "-roots", b.pki.originRoot)
}

func startGoproxy(ctx context.Context, b *bench) (*peer, error) {
	return b.startRole(ctx, b.pki.peerRoot, "goproxy", "-listen", proxyAddr, "-ca", b.pki.peerCA, "-roots", b.pki.originRoot)
}

// squidConf is squid as a boundary: one host may be reached, and its TLS is
// looked into; the access log is on, as it is by default.
const squidConf = `
http_port %[2]s ssl-bump tls-cert=%[3]s generate-host-certificates=on dynamic_cert_mem_cache_size=16MB
sslcrtd_program /usr/lib/squid/security_file_certgen -s %[1]s/certs -M 16MB
sslcrtd_children 2 startup=1
tls_outgoing_options cafile=%[4]s
acl greeted at_step SslBump1
ssl_bump peek greeted
ssl_bump bump all
acl allowed dstdomain %[5]s
http_access allow allowed
http_access deny all
cache deny all
access_log stdio:%[1]s/access.log squid
cache_log %[1]s/cache.log
pid_filename %[1]s/squid.pid
coredump_dir %[1]s
dns_nameservers 127.0.0.1
pinger_enable off
shutdown_lifetime 1 seconds
visible_hostname squid.bench.example.com
cache_effective_user proxy
`

// squidScript makes squid's directories, starts it, and says so once it
// accepts.
const squidScript = `
set -e
/usr/lib/squid/security_file_certgen -c -s "$1/certs" -M 16MB >/dev/null
chown -R proxy "$1"
/usr/sbin/squid -N -f "$1/squid.conf" &
trap 'kill $!' EXIT
for i in $(seq 100); do
	if ss -Hltn "sport = :3128" | grep -q . ; then echo ready; break; fi
	sleep 0.1
done
read -r _ || :
`

func startSquid(ctx context.Context, b *bench) (*peer, error) {
	dir, err := b.place.freshDir("squid")
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(squidConf, dir, proxyAddr, b.pki.peerCA, b.pki.originRoot, originHost)
	if err := os.WriteFile(b.place.outside(dir+"/squid.conf"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	p, err := start(b.place.command(ctx, "sh", "-c", squidScript, "sh", dir), "ready")
	if err != nil {
		log, _ := os.ReadFile(b.place.outside(dir + "/cache.log"))
		return nil, fmt.Errorf("%w: %s", err, log)
	}
	return &peer{pid: p.cmd.Process.Pid, end: p.stop, proxy: proxyAddr, roots: b.pki.peerRoot}, nil
}

func startEgress(ctx context.Context, b *bench) (*peer, error) {
	dir, err := b.place.freshDir("egress")
	if err != nil {
		return nil, err
	}
	args := []string{"egress", "-listen", proxyAddr, "-dir", dir, "-roots", b.pki.originRoot}
	if b.s.profiles != "" {
		args = append(args, "-profile", dir+"/cpu.pprof")
	}
	p, err := b.startRole(ctx, dir+"/"+egressRoot, args...)
	if err != nil || b.s.profiles == "" {
		return p, err
	}
	stop := p.end
	p.end = func() error {
		to := filepath.Join(b.s.profiles, filepath.Base(dir)+".pprof")
		return errors.Join(stop(), os.MkdirAll(b.s.profiles, 0o755), copyFile(b.place.outside(dir+"/cpu.pprof"), to))
	}
	return p, nil
}

// A part is a process of the bench.
type part struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startSelf starts one of this program's roles in the place.
func (b *bench) startSelf(ctx context.Context, args ...string) (*part, error) {
	return start(b.place.command(ctx, append([]string{benchFile}, args...)...), "ready")
}

// start starts a process and waits for a line on its standard output. The end
// of its standard input is its end.
func start(cmd *exec.Cmd, ready string) (*part, error) {
	name := strings.Join(cmd.Args, " ")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &part{cmd, in, bufio.NewScanner(out)}
	for p.out.Scan() {
		if strings.Contains(p.out.Text(), ready) {
			return p, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("starting %s: it ended", name), cmd.Wait())
}

// stop ends the process and waits for it.
func (p *part) stop() error {
	p.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case <-ended: // how it ends does not matter any more
		return nil
	case <-time.After(15 * time.Second):
		return errors.Join(fmt.Errorf("%v did not end", p.cmd.Args), p.cmd.Cancel())
	}
}
