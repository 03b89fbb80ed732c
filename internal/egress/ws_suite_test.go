// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"bawn/internal/netplan"
	"bawn/internal/roottest"
	"bawn/internal/world/supply"
)

// Everything that the suite runs is in testdata/websocket: the cases, the end
// that sends them and judges what comes back, written in Python on nothing but
// its zlib, and echo ends with WebSockets that nobody here wrote. Each case runs
// with the two ends connected directly and through the proxy, in both
// directions. What counts is the difference.

// suiteReasons are the cases that may be worse through the proxy than directly,
// or wrong in both, by "leg end/case": leg server is where the echo end is the
// server, so that the proxy's own client side is what the suite talks to.
// There are none at present.
var suiteReasons = map[string]string{}

// A wsPeer is an echo end that nobody here wrote.
type wsPeer struct {
	name   string
	server func(t *testing.T) (port int)
	client func(t *testing.T, port int, cases string, proxy int)
}

// How many seconds an end may say nothing. Directly some ends never do, and that
// they are wrong then is of no consequence here.
const short, long = "5", "60"

const suiteHost = "suite.example.com"

// TestWebSocketSuite prints, for each echo end and leg, how many cases are right
// directly and through the proxy.
func TestWebSocketSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	python := "/usr/bin/python3" // the system's own: modules of Debian's packages fit no other
	for _, program := range []string{python, "node"} {
		if _, err := exec.LookPath(program); err != nil {
			roottest.Skip(t, "needs "+program)
		}
	}
	ws, err := supply.NPM("ws@8")
	must(t, err)
	deb, err := supply.Unpack("python3-websockets")
	must(t, err)
	dir, err := filepath.Abs("testdata/websocket")
	must(t, err)
	var report strings.Builder
	fmt.Fprintf(&report, "%-8s %-28s %6s %8s %8s\n", "LEG", "ECHO END", "CASES", "DIRECT", "BAWN")
	for _, p := range []wsPeer{
		program(version(t, "npm's ws", filepath.Join(ws, "node_modules/ws/package.json")), []string{"node", dir + "/echo.cjs"}, "NODE_PATH="+filepath.Join(ws, "node_modules")),
		program("Python's websockets", []string{python, dir + "/echo.py"}, deb.Env()...),
		{"coder/websocket", coderServer, coderClient},
	} {
		t.Run("server "+p.name, func(t *testing.T) {
			port := p.server(t)
			direct := suite(t, short, nil, python, dir+"/suite.py", "client", "127.0.0.1", fmt.Sprint(port))
			proxy := suiteProxy(t, port)
			proxied := suite(t, long, nil, python, dir+"/suite.py", "client", "127.0.0.1", fmt.Sprint(port), fmt.Sprint(proxy), suiteHost)
			compare(t, &report, "server", p.name, direct, proxied)
		})
		t.Run("client "+p.name, func(t *testing.T) {
			run := func(wait string, through bool) map[string]result {
				return suite(t, wait, func(t *testing.T, port int, cases string) {
					proxy := 0
					if through {
						proxy = suiteProxy(t, port)
					}
					p.client(t, port, cases, proxy)
				}, python, dir+"/suite.py", "server")
			}
			compare(t, &report, "client", p.name, run(short, false), run(long, true))
		})
	}
	t.Log("\n" + report.String())
	if dir := os.Getenv("BAWN_REPORT"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, "websocket.txt"), []byte("WebSocket cases, right with the two ends connected directly and through Bawn\n"+report.String()), 0o644))
	}
}

func version(t *testing.T, name, file string) string {
	var p struct{ Version string }
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, json.Unmarshal(text, &p))
	return name + " " + p.Version
}

// suiteProxy is a proxy of which suiteHost, port 80, is a port of this machine.
func suiteProxy(t *testing.T, port int) int {
	r := newRig(t, `
version: 1
profiles:
  p: {rules: [{host: suite.example.com, ports: [80], websocket: true}]}
agents:
  dev: {profile: p}
`)
	r.net.add(suiteHost, apiAddr)
	r.net.servers[netip.MustParseAddrPort(apiAddr+":80")] = fmt.Sprintf("127.0.0.1:%d", port)
	addr, err := netip.ParseAddrPort(r.listen(netplan.Explicit))
	must(t, err)
	return int(addr.Port())
}

// A result is what the suite says of a case.
type result struct {
	ID   string `json:"id"`
	OK   *bool  `json:"ok"` // nil: it could not be tried
	What string `json:"what"`
}

func (r result) right() bool { return r.OK != nil && *r.OK }

// suite runs the suite and returns its results. With ends it is a server, whose
// clients ends runs.
func suite(t *testing.T, wait string, ends func(t *testing.T, port int, cases string), argv ...string) map[string]result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = t.Output()
	cmd.Env = append(os.Environ(), "SUITE_WAIT="+wait)
	if roottest.Count(0, 1) > 0 {
		cmd.Env = append(cmd.Env, "SUITE_ALL=1")
	}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Wait()
	results := map[string]result{}
	lines := bufio.NewScanner(out)
	take := func(want int) {
		for len(results) != want && lines.Scan() {
			var r result
			must(t, json.Unmarshal(lines.Bytes(), &r))
			results[r.ID] = r
		}
	}
	if ends == nil {
		take(-1)
		return results
	}
	var hello struct {
		Port  int
		Cases []string
	}
	if !lines.Scan() {
		t.Fatal("the suite's server says nothing")
	}
	must(t, json.Unmarshal(lines.Bytes(), &hello))
	list := filepath.Join(t.TempDir(), "cases.json")
	text, err := json.Marshal(hello.Cases)
	must(t, err)
	must(t, os.WriteFile(list, text, 0o644))
	done := make(chan struct{})
	go func() {
		defer close(done)
		take(len(hello.Cases))
	}()
	ends(t, hello.Port, list)
	select {
	case <-done:
	case <-ctx.Done():
		t.Error("the suite's server is still waiting for clients")
	}
	cancel()
	<-done
	return results
}

// compare judges the difference, and writes a line of the report.
func compare(t *testing.T, report io.Writer, leg, end string, direct, proxied map[string]result) {
	t.Helper()
	ids := []string{}
	for id := range direct {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	nDirect, nProxied := 0, 0
	var better, worse []string
	for _, id := range ids {
		d, p := direct[id], proxied[id]
		if d.right() {
			nDirect++
		}
		if p.right() {
			nProxied++
		}
		key := leg + " " + end + "/" + id
		reason := ""
		for pattern, why := range suiteReasons {
			if ok, _ := path.Match(pattern, key); ok {
				reason = why
			}
		}
		switch {
		case p.right() && !d.right():
			better = append(better, id)
		case !p.right() && d.right():
			worse = append(worse, id+" ("+reason+")")
			fallthrough
		case !p.right():
			if reason == "" {
				t.Errorf("%s: through the proxy %s; directly ok=%v %s", key, p.What, d.right(), d.What)
			}
		}
	}
	if len(direct) == 0 || len(direct) != len(proxied) {
		t.Errorf("%d cases directly and %d through the proxy", len(direct), len(proxied))
	}
	fmt.Fprintf(report, "%-8s %-28s %6d %8d %8d", leg, end, len(ids), nDirect, nProxied)
	if more := len(better) - 8; more > 0 {
		better = append(better[:8], fmt.Sprintf("and %d more", more))
	}
	if len(worse) > 0 {
		fmt.Fprintf(report, "  worse: %s", strings.Join(worse, "; "))
	}
	if len(better) > 0 {
		fmt.Fprintf(report, "  better: %s", strings.Join(better, " "))
	}
	fmt.Fprintln(report)
}

// program is an echo end that is a program of its own.
func program(name string, argv []string, env ...string) wsPeer {
	command := func(t *testing.T, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), argv[0], append(slices.Clone(argv[1:]), args...)...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stderr = t.Output()
		return cmd
	}
	return wsPeer{
		name: name,
		server: func(t *testing.T) int {
			cmd := command(t, "server")
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			var hello struct{ Port int }
			must(t, json.NewDecoder(out).Decode(&hello))
			return hello.Port
		},
		client: func(t *testing.T, port int, cases string, proxy int) {
			args := []string{"client", fmt.Sprint(port), cases}
			if proxy != 0 {
				args = append(args, fmt.Sprint(proxy), suiteHost)
			}
			must(t, command(t, args...).Run())
		},
	}
}

func coderServer(t *testing.T) int {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c, err := websocket.Accept(w, q, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover, CompressionThreshold: 1})
		if err == nil {
			coderEcho(c)
		}
	}))
	t.Cleanup(srv.Close)
	addr, err := netip.ParseAddrPort(srv.Listener.Addr().String())
	must(t, err)
	return int(addr.Port())
}

func coderEcho(c *websocket.Conn) {
	defer c.CloseNow()
	c.SetReadLimit(64 << 20)
	for {
		kind, data, err := c.Read(context.Background())
		if err != nil {
			return
		}
		if err := c.Write(context.Background(), kind, data); err != nil {
			return
		}
	}
}

// tunnelled dials through a tunnel to suiteHost.
func tunnelled(proxy int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", proxy))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(c, "CONNECT %[1]s:80 HTTP/1.1\r\nHost: %[1]s:80\r\n\r\n", suiteHost)
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil {
			return nil, err
		}
		if res.StatusCode != http.StatusOK {
			return nil, errors.New(res.Status)
		}
		return c, nil
	}
}

func coderClient(t *testing.T, port int, cases string, proxy int) {
	text, err := os.ReadFile(cases)
	must(t, err)
	var ids []string
	must(t, json.Unmarshal(text, &ids))
	host, client := fmt.Sprintf("127.0.0.1:%d", port), http.DefaultClient
	if proxy != 0 {
		// A tunnel: without one the library would send a target with a scheme.
		host, client = suiteHost, &http.Client{Transport: &http.Transport{DialContext: tunnelled(proxy)}}
	}
	left := make(chan string)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for id := range left {
				c, _, err := websocket.Dial(t.Context(), "ws://"+host+"/ws/"+id, &websocket.DialOptions{
					HTTPClient: client, CompressionMode: websocket.CompressionContextTakeover, CompressionThreshold: 1,
				})
				if err == nil {
					coderEcho(c)
				}
			}
		})
	}
	for _, id := range ids {
		left <- id
	}
	close(left)
	workers.Wait()
}
