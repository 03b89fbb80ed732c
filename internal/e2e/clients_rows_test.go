// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"bawn/internal/world"
)

// big is the size of the large transfers, in bytes.
const big = 100 << 20

// Why cells are empty.
const (
	http1Only = "it speaks HTTP/1.1 only"
	httpOnly  = "it asks one thing and gets one answer, in HTTP"
	justHTTP  = "it speaks HTTP only"
	other     = "it speaks its own protocol only"
)

// clients are the rows of the table.
func clients() []client {
	return slices.Concat(httpClients(), nodeClients(), pythonClients(), grpcClients(), tcpClients())
}

// get is a trial that asks the API host, which speaks HTTP/1.1 only, for an echo.
func get(line string) trial {
	n := world.AllNames()
	return trial{proto: "h1", name: "h1", host: n.API, line: line + " https://" + n.API + "/TOKEN", check: echoed(n.API, "HTTP/1.1"), wire: "http/1.1"}
}

// get2 is one that asks a server of HTTP/2, and must speak it on its own leg.
func get2(line string) trial {
	n := world.AllNames()
	return trial{proto: "h2", name: "h2", host: n.H2, line: line + " https://" + n.H2 + "/TOKEN", check: echoed(n.H2, "HTTP/2.0"), wire: "h2"}
}

// across changes the server of a trial, whose protocol is not the client's.
func across(y trial, name, host, version string) trial {
	n := world.AllNames()
	y.name += " to a server of " + name + " only"
	y.line = strings.NewReplacer("https://"+n.API+"/", "https://"+host+"/", "https://"+n.H2+"/", "https://"+host+"/").Replace(y.line)
	y.host, y.check, y.mixed = host, echoed(host, version), true
	return y
}

// events is a trial that reads a stream, which goes on when its first event has
// come through.
func events(y trial) trial {
	y.proto, y.name = "stream", "events over "+y.name
	y.line = strings.Replace(y.line, "/TOKEN", "/sse?gate=TOKEN", 1)
	y.check, y.drive = contains("data: 2\n"), oneEventFirst
	return y
}

// named gives a trial another name.
func (y trial) named(name string) trial {
	y.name = name
	return y
}

func httpClients() []client {
	n := world.AllNames()
	curl1, curl2 := get("curl -sSN --http1.1"), get2("curl -sSN")
	download := func(flag, host, wire string) trial {
		return trial{
			proto: "stream", name: "100 MiB down over " + wire, host: host, wire: wire, check: patternSum,
			line: fmt.Sprintf("curl -sS %s 'https://%s/download?bytes=%d' | sha256sum", flag, host, big),
		}
	}
	upload := func(flag, host, wire string) trial {
		return trial{
			proto: "stream", name: "100 MiB up over " + wire, host: host, wire: wire, check: zerosEchoed,
			line: fmt.Sprintf("head -c %d /dev/zero | curl -sS %s -T - https://%s/upload", big, flag, host),
		}
	}
	clone := func(name, host, version, wire string) trial {
		return trial{
			proto: name, name: "clone over " + name, host: host, wire: wire, check: contains("hello from the world"),
			line: `cd "$(mktemp -d)" && git -c http.version=` + version + ` clone -q https://` + host + "/tools/hello.git && cat hello/README",
		}
	}
	go1, go2 := get("/opt/clients/goclient.bin HTTP/1.1"), get2("/opt/clients/goclient.bin HTTP/2.0")
	return []client{
		{
			name: "curl", version: "curl --version | head -1 | cut -d' ' -f2", lacks: map[string]string{"": justHTTP, "WebSocket": "Debian builds it without"},
			tries: []trial{
				curl1, across(curl1, "h2", n.H2Only, "HTTP/2.0"), curl2, across(get2("curl -sSN --http2"), "h1", n.API, "HTTP/1.1"),
				events(curl1), events(curl2), download("--http1.1", n.Files, "http/1.1"), upload("--http1.1", n.API, "http/1.1"),
				download("--http2", n.H2, "h2"), upload("--http2", n.H2, "h2"),
			},
		},
		{
			name: "wget", version: "wget --version | head -1 | cut -d' ' -f3", tries: []trial{get("wget -qO-"), events(get("wget -qO-"))},
			lacks: map[string]string{"": justHTTP, "h2": http1Only},
		},
		{
			name: "git", version: "git --version | cut -d' ' -f3", lacks: map[string]string{"": httpOnly},
			tries: []trial{clone("h1", n.Git, "HTTP/1.1", "http/1.1"), clone("h2", n.GitH2, "HTTP/2", "h2")},
		},
		{
			name: "go net/http", version: "/opt/clients/goclient.bin -version", lacks: map[string]string{"": justHTTP},
			tries: []trial{go1, go2, across(go1, "h2", n.H2Only, "HTTP/2.0"), across(go2, "h1", n.API, "HTTP/1.1"), events(go1), events(go2)},
		},
		{
			name: "npm install", version: "npm --version", lacks: map[string]string{"": httpOnly, "h2": http1Only},
			tries: []trial{{
				proto: "h1", name: "h1", host: n.NPM, wire: "http/1.1", check: contains("hello world"),
				line: `cd "$(mktemp -d)" && npm install --silent --no-audit --no-fund --registry https://` + n.NPM + `/ greeting && node -e 'console.log(require("greeting"))'`,
			}},
		},
	}
}

// websocket is a trial that talks to one of the two echo servers.
func websocket(line, name, port, want string) trial {
	host := world.AllNames().WebSocket
	return trial{
		proto: "WebSocket", name: name, host: host, wire: "websocket",
		line: strings.NewReplacer("ADDRESS", "wss://"+host+port+"/echo").Replace(line),
		check: func(out, token string) error {
			return contains(want+"closed 4001 bye "+token+"\n")(out, token)
		},
	}
}

const compressed, notCompressed = "here: permessage-deflate\n", "here: none\n"

func nodeClients() []client {
	n := world.AllNames()
	version := func(pkg string) string {
		return `sed -n 's/.*"version": "\(.*\)".*/\1/p' /opt/clients/node_modules/` + pkg + `/package.json`
	}
	fetch20, fetch24 := get("node /opt/clients/fetch.mjs"), get("/opt/node24 /opt/clients/fetch.mjs")
	undici1 := get("node /opt/clients/undici.mjs")
	undici2 := get2("node /opt/clients/undici.mjs")
	undici2.line += " h2"
	http2 := get2("node /opt/clients/http2.cjs")
	streams := http2.named("16 streams at once")
	streams.line += " 16"
	const noH2 = "its fetch offers HTTP/1.1 only"
	return []client{
		{
			name: "node fetch", version: "node --version", tries: []trial{fetch20, events(fetch20)},
			lacks: map[string]string{"": justHTTP, "h2": noH2, "WebSocket": "this Node has none built in"},
		},
		{
			name: "node fetch, WebSocket", version: "/opt/node24 --version", lacks: map[string]string{"": justHTTP, "h2": noH2},
			tries: []trial{fetch24, events(fetch24), websocket("/opt/node24 /opt/clients/websocket24.mjs ADDRESS TOKEN", "built in", "", "")},
		},
		{
			name: "node undici", version: version("undici"), lacks: map[string]string{"": justHTTP, "WebSocket": "as node's own, which is undici's"},
			tries: []trial{undici1, undici2, events(undici1), events(undici2)},
		},
		{
			name: "node http2", version: "node --version", lacks: map[string]string{"": "it speaks HTTP/2 only"},
			tries: []trial{http2, streams, events(http2)},
		},
		{
			name: "node ws", version: version("ws"), lacks: map[string]string{"": "it speaks WebSocket only"},
			tries: []trial{
				websocket("node /opt/clients/ws.cjs ADDRESS TOKEN", "with compression", "", compressed),
				websocket("node /opt/clients/ws.cjs ADDRESS TOKEN plain", "without", "", notCompressed),
				websocket("node /opt/clients/ws.cjs ADDRESS TOKEN", "to websockets", ":8443", compressed),
			},
		},
		{
			name: "grpc-js", version: version("@grpc/grpc-js"), lacks: map[string]string{"": "it speaks gRPC only"},
			tries: []trial{{
				proto: "gRPC", name: "cases", host: n.GRPC, wire: "h2", line: "node /opt/clients/grpc.cjs " + n.GRPC + ":443",
				check: passed(9, "8_mib_both_ways", "ping_pong", "timeout_on_sleeping_server", "status_with_trailers", "cancel_after_begin"),
			}},
		},
	}
}

func pythonClients() []client {
	version := func(module string) string {
		return "/usr/bin/python3 -c 'import importlib.metadata as m; print(m.version(\"" + module + "\"))'"
	}
	library := func(name string) []trial {
		y := get("/usr/bin/python3 /opt/clients/http_client.py " + name)
		return []trial{y, events(y)}
	}
	const python = "/usr/bin/python3 --version | cut -d' ' -f2"
	lacks := map[string]string{"": justHTTP, "h2": http1Only}
	httpx := get2("/usr/bin/python3 /opt/clients/http_client.py httpx")
	return []client{
		{name: "python http.client", version: python, tries: library("http.client"), lacks: lacks},
		{name: "python urllib", version: python, tries: library("urllib"), lacks: lacks},
		{name: "python requests", version: version("requests"), tries: library("requests"), lacks: lacks},
		{
			name: "python httpx", version: version("httpx"), tries: []trial{httpx, across(httpx, "h1", world.AllNames().API, "HTTP/1.1"), events(httpx)},
			lacks: map[string]string{"": justHTTP, "h1": "as requests; here it must speak HTTP/2"},
		},
		{
			name: "python websockets", version: version("websockets"), lacks: map[string]string{"": "it speaks WebSocket only"},
			tries: []trial{
				websocket("/usr/bin/python3 /opt/clients/ws_client.py ADDRESS TOKEN", "to ws", "", compressed),
				websocket("/usr/bin/python3 /opt/clients/ws_client.py ADDRESS TOKEN", "to websockets", ":8443", compressed),
			},
		},
	}
}

func grpcClients() []client {
	host := world.AllNames().GRPC
	return []client{{
		name: "grpc-go", version: "/opt/clients/grpcclient.bin -version", lacks: map[string]string{"": "it speaks gRPC only"},
		tries: []trial{{
			proto: "gRPC", name: "cases", host: host, wire: "h2", line: "/opt/clients/grpcclient.bin " + host + ":443",
			check: passed(15, "large_unary", "client_streaming", "server_streaming", "ping_pong", "timeout_on_sleeping_server", "special_status_message", "8_mib_both_ways", "status_with_trailers"),
		}},
	}}
}

func tcpClients() []client {
	n := world.AllNames()
	tcp := func(name, host, wire, line, want string) trial {
		return trial{proto: "TCP", name: name, host: host, wire: wire, line: line, check: func(out, token string) error {
			return contains(strings.ReplaceAll(want, "TOKEN", token))(out, token)
		}}
	}
	lacks := map[string]string{"": other}
	psqlTLS := tcp("psql in TLS", n.Postgres, "tcp", "/opt/clients/psql.sh "+n.Postgres+" TOKEN", "tls TOKEN 42\n")
	noTLS := "psql speaks no TLS over the socket of the helper that knows the proxy; openssl does so for it"
	psqlTLS.not = map[string]string{"explicit": noTLS, "uid": noTLS}
	smtp := tcp("STARTTLS of SMTP", n.SMTP, "tcp", "/opt/clients/s_client.sh "+n.SMTP+":25 '' smtp", "Verification: OK\n")
	readsOn := "its -proxy reads on past the answer to CONNECT and loses the greeting of a server that speaks first"
	smtp.not = map[string]string{"explicit": readsOn, "uid": readsOn}
	return []client{
		{
			name: "ssh, scp", version: "ssh -V 2>&1 | cut -d' ' -f1 | tr -d ,", lacks: lacks,
			tries: []trial{tcp("ssh", n.SSH, "tcp", "/opt/clients/ssh.sh "+n.SSH+" TOKEN", "ada\ncopied TOKEN\n")},
		},
		{
			name: "psql", version: "psql --version | cut -d' ' -f3", lacks: lacks,
			tries: []trial{tcp("psql", n.Postgres, "tcp", "/opt/clients/psql.sh "+n.Postgres+" TOKEN", "plain TOKEN 42\n"), psqlTLS},
		},
		{
			name: "python smtplib", version: "/usr/bin/python3 --version | cut -d' ' -f2", lacks: lacks,
			tries: []trial{tcp("smtplib", n.SMTP, "tcp", "/usr/bin/python3 /opt/clients/mail_client.py "+n.SMTP+" TOKEN", "sent TOKEN\n")},
		},
		{
			name: "openssl s_client", version: "openssl version | cut -d' ' -f2", lacks: lacks,
			tries: []trial{
				tcp("TLS under inspect: sni", n.TLS, "tls", `/opt/clients/s_client.sh `+n.TLS+`:443 'hello\nCLOSE\n'`, "olleh\n"),
				tcp("TLS with two greetings", n.TLS, "tls", `/opt/clients/s_client.sh `+n.TLS+`:8443 'hello\nCLOSE\n'`, "olleh\n"),
				smtp,
				tcp("STARTTLS of PostgreSQL", n.Postgres, "tcp", "/opt/clients/s_client.sh "+n.Postgres+":5432 '' postgres", "Verification: OK\n"),
			},
		},
	}
}

func contains(want string) func(out, token string) error {
	return func(out, _ string) error {
		if !strings.Contains(out, want) {
			return fmt.Errorf("printed %q, want %q in it", out, want)
		}
		return nil
	}
}

// passed checks that so many cases passed, and these among them.
func passed(count int, names ...string) func(out, token string) error {
	return func(out, _ string) error {
		if n := strings.Count(out, "\n"); n != count {
			return fmt.Errorf("%d cases passed, want %d: %s", n, count, out)
		}
		for _, name := range names {
			if err := contains(name+"\n")(out, ""); err != nil {
				return err
			}
		}
		return nil
	}
}

// echoed checks that the answer is a host's own, and what it was asked in.
func echoed(host, proto string) func(out, token string) error {
	return func(out, token string) error {
		var e world.Echo
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			return fmt.Errorf("printed %q: %w", out, err)
		}
		if e.Method != "GET" || e.Target != "/"+token || strings.TrimSuffix(e.Host, ":443") != host || e.Proto != proto {
			return fmt.Errorf("the server got %+v", e)
		}
		return nil
	}
}

func patternSum(out, _ string) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, world.Pattern(big)); err != nil {
		return err
	}
	return contains(hex.EncodeToString(sum.Sum(nil)))(out, "")
}

func zerosEchoed(out, _ string) error {
	sum := sha256.Sum256(make([]byte, big))
	var e world.Echo
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		return fmt.Errorf("printed %q: %w", out, err)
	}
	if e.BodyBytes != big || e.SHA256 != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("the server got %d bytes with sum %s", e.BodyBytes, e.SHA256)
	}
	return nil
}

// oneEventFirst lets the server go on only after the first event has come all
// the way: whoever collects a stream before passing it on never ends.
func oneEventFirst(w *world.World, cmd *exec.Cmd, token string) (string, error) {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	r := bufio.NewReader(stdout)
	for line := ""; line != "data: 0\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			_ = cmd.Wait()
			return "", fmt.Errorf("before the first event: %w: %s", err, stderr.String())
		}
	}
	if err := w.Upstream.Release(token); err != nil {
		return "", err
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(rest), nil
}
