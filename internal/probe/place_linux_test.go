// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/doctor"
	"bawn/internal/ids"
	"bawn/internal/probe"
	"bawn/internal/roottest"

	"golang.org/x/sys/unix"
)

// placeVerb makes the test binary stand in a network namespace of its own, with
// things in it for the probe to find.
const placeVerb = "place"

// verbs are what else the test binary does: each is given a scene and a path.
var verbs = map[string]func(scene, path string) error{placeVerb: place, firstVerb: first, accountVerb: account}

func TestMain(m *testing.M) {
	if len(os.Args) > 3 {
		if verb := verbs[os.Args[1]]; verb != nil {
			if err := verb(os.Args[2], os.Args[3]); err != nil {
				fmt.Fprintln(os.Stderr, os.Args[1], err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// stand probes the scene named in a place of its own.
func stand(t *testing.T, scene string) []probe.Try {
	t.Helper()
	if tries, ok := stood[scene]; ok {
		return slices.Clone(tries)
	}
	stood[scene] = standAnew(t, scene)
	return slices.Clone(stood[scene])
}

// stood keeps what was seen in each scene. No test here is parallel.
var stood = map[string][]probe.Try{}

func standAnew(t *testing.T, scene string) []probe.Try {
	t.Helper()
	roottest.Require(t)
	if _, err := exec.LookPath("ip"); err != nil {
		roottest.Skip(t, "needs ip of iproute2")
	}
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} { // the account is another
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], placeVerb, scene, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	tries, err := probe.Read(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	return tries
}

// out lists what got out of one check.
func out(tries []probe.Try, check probe.Check) (targets []string) {
	for _, try := range tries {
		if try.Check == check && try.Outcome == probe.GotOut {
			targets = append(targets, try.Target)
		}
	}
	return targets
}

func TestNothingGetsOutOfAnEmptyPlace(t *testing.T) {
	tries := stand(t, "closed")
	if bad := failed(probe.Evaluate(ids.PlacementNetns, tries, counted(1), counted(2))); len(bad) > 0 {
		t.Errorf("%v", bad)
	}
	for _, try := range tries {
		want := try.Check == probe.CheckProxy || try.Check == probe.CheckResolver || try.Check == probe.CheckCertificates
		if try.Outcome == probe.GotOut || want && try.Outcome != probe.Answered || try.Check == probe.CheckProxy && try.Code == "" {
			t.Errorf("%+v", try)
		}
	}
}

// Each hole is seen for what it is, and as no other.
func TestEachHoleIsFound(t *testing.T) {
	for scene, want := range map[string]map[probe.Check]string{
		"link":              {probe.CheckLinks: "links"},
		"banner":            {probe.CheckTCP: "tcp 192.0.2.1:22"},
		"web":               {probe.CheckTCP: "tcp 192.0.2.1:80"},
		"foreign TLS":       {probe.CheckTCP: "tcp 192.0.2.1:443"},
		"udp":               {probe.CheckUDP: "udp 192.0.2.1:123"},
		"ping":              {probe.CheckICMP: "icmp ping 192.0.2.1"},
		"resolver":          {probe.CheckDNS: "dns udp 198.51.100.53:53"},
		"metadata":          {probe.CheckMetadata: "tcp 169.254.169.254:80"},
		"host service":      {probe.CheckLoopback: "tcp 127.0.0.1:5432"},
		"local service":     {probe.CheckServices: "service.sock"},
		"abstract":          {probe.CheckAbstract: "unix @lure"},
		"admin socket":      {probe.CheckOwn: "admin.sock"},
		"proxy lets go":     {probe.CheckProxy: "proxy CONNECT canary.bawn.invalid:443"},
		"proxy and no code": {probe.CheckProxy: "proxy CONNECT canary.bawn.invalid:443"},
		"resolver answers":  {probe.CheckResolver: "dns udp 198.18.0.1:53"},
		"source port":       {probe.CheckSource: "tcp 127.0.0.1:9999 from port 8080"},
		"own file":          {probe.CheckOwnFiles: "policy.db"},
		"transparent":       {probe.CheckTransparent: "tcp 203.0.113.7:80"},
		"datagrams":         {probe.CheckLoopback: "udp 127.0.0.1:9999"},
		"another process":   {probe.CheckOthers: "/proc"},
		"a call":            {probe.CheckKernel: "keyrings"},
		"a capability":      {probe.CheckKernel: "account"},
		"a socket":          {probe.CheckProtocols: "socket generic netlink"},
		"set-id bits":       {probe.CheckRights: "set-id bits in /tmp"},
		"a spool":           {probe.CheckRights: "spool"},
	} {
		t.Run(scene, func(t *testing.T) {
			tries := stand(t, scene)
			seen := map[probe.Check]bool{}
			for _, try := range tries {
				if try.Outcome == probe.GotOut && (want[try.Check] == "" || !seen[try.Check] && !slices.ContainsFunc(out(tries, try.Check), func(s string) bool { return strings.HasSuffix(s, want[try.Check]) })) {
					t.Errorf("%+v, want %q", try, want)
				}
				seen[try.Check] = seen[try.Check] || try.Outcome == probe.GotOut
			}
			for check, w := range want {
				if !seen[check] {
					t.Errorf("%s: want %q", check, w)
				}
			}
		})
	}
}

func TestAProxyThatIsGoneHasNotRefused(t *testing.T) {
	tries := stand(t, "no proxy")
	for _, try := range tries {
		if try.Check == probe.CheckProxy && try.Outcome != probe.Blocked {
			t.Errorf("%+v", try)
		}
	}
	lines := probe.Evaluate(ids.PlacementNetns, tries, counted(1), counted(2))
	if bad := failed(lines); !slices.Contains(bad, probe.CheckProxy) {
		t.Errorf("%q", bad)
	}
}

// breaks names for each check a scene in which it turns red.
var breaks = map[doctor.Name]string{
	doctor.Links: "link", doctor.TCP: "banner", doctor.UDP: "udp", doctor.ICMP: "ping", doctor.Protocols: "a socket", doctor.SourcePorts: "source port",
	doctor.DNS: "resolver", doctor.Metadata: "metadata", doctor.Loopback: "host service", doctor.Services: "local service", doctor.Abstract: "abstract",
	doctor.OwnSockets: "admin socket", doctor.OwnFiles: "own file", doctor.Calls: "a call", doctor.Rights: "set-id bits", doctor.Others: "another process",
	doctor.Counted: "nothing counted", doctor.ByProxy: "proxy lets go", doctor.Transparent: "transparent", doctor.ByResolver: "resolver answers",
	doctor.OneCode: "another code by DNS", doctor.Certificates: "no certificate",
}

// TestI12EachSceneTurnsItsCheckRed, and no other: in "closed" all are green.
func TestI12EachSceneTurnsItsCheckRed(t *testing.T) {
	for check, scene := range breaks {
		after := uint64(2)
		if scene == "nothing counted" {
			after = 1
		}
		bad := failed(probe.Evaluate(ids.PlacementNetns, stand(t, scene), counted(1), counted(after)))
		if !slices.Contains(bad, check) {
			t.Errorf("%s: %s is not among %v", scene, check, bad)
		}
		for _, other := range bad {
			if other != check && other != doctor.OneCode { // without a refusal in order there is no code
				t.Errorf("%s: %s has failed as well", scene, other)
			}
		}
	}
}

// TestTheSameCodeIsHeardOnEveryPath: the proxy's in its field, the resolver's in
// its extended error.
func TestTheSameCodeIsHeardOnEveryPath(t *testing.T) {
	for scene, want := range map[string]string{
		"closed": "host_not_allowed, on 4 paths", "another code by DNS": `"dns_label_budget" by dns `, "no code by DNS": `"" by dns `,
	} {
		for _, f := range probe.Evaluate(ids.PlacementNetns, stand(t, scene), counted(1), counted(2)) {
			if f.Name == doctor.OneCode && (!strings.HasPrefix(f.Seen, want) || (f.State == doctor.OK) != (scene == "closed")) {
				t.Errorf("%s: %+v", scene, f)
			}
		}
	}
}

func TestCertificatesThatCannotBeReadAreMissed(t *testing.T) {
	list := probe.Evaluate(ids.PlacementNetns, stand(t, "no certificate"), counted(1), counted(2))
	if bad := failed(list); !slices.Contains(bad, probe.CheckCertificates) {
		t.Errorf("%q", bad)
	}
}

func TestBawnsOwnRefusalOverTLSIsNoHole(t *testing.T) {
	for _, try := range stand(t, "own TLS") {
		if try.Target == "tcp 192.0.2.1:443" && (try.Outcome != probe.Answered || try.Code != "host_not_allowed") {
			t.Errorf("%+v", try)
		}
	}
}

// place builds a scene and probes it. dir is for its files.
func place(scene, dir string) error {
	for _, args := range []string{
		"link set lo up", "addr add 198.18.0.1/32 dev lo", "addr add 192.0.2.1/32 dev lo", "addr add 198.51.100.53/32 dev lo", "addr add 169.254.169.254/32 dev lo", "addr add 203.0.113.7/32 dev lo",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	own, err := authority(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return err
	}
	c := probe.Default(ids.PlacementNetns, netip.MustParseAddrPort("198.18.0.1:3128"))
	// A busy machine answers late, and what is silent costs the whole time.
	c.Timeout = 2 * time.Second
	c.TCP = netip4(c.TCP)
	c.UDP = netip4(c.UDP)
	c.Ping = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	c.CA, c.Bundle = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.crt")
	c.Services = append(c.Services, filepath.Join(dir, "service.sock"))
	c.Own = append(c.Own, filepath.Join(dir, "admin.sock"))
	c.Files = []string{filepath.Join(dir, "policy.db")}
	c.Loopback = append(c.Loopback, netip.MustParseAddrPort("127.0.0.1:9999"))
	c.Datagrams = append(c.Datagrams, netip.MustParseAddrPort("127.0.0.1:9999"))
	if scene == "no certificate" {
		c.CA = filepath.Join(dir, "nothing")
	}
	c.Spools = append(c.Spools, filepath.Join(dir, "spool"))
	if err := usual(scene); err != nil {
		return err
	}
	if err := hole(scene, dir, own); err != nil {
		return err
	}
	return confined(scene, dir, c)
}

// netip4 leaves those of version 4: the place has one family of addresses.
func netip4(list []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.AddrPort) bool { return a.Addr().Is6() })
}

const refusal = "HTTP/1.1 403 Forbidden\r\nBawn-Code: host_not_allowed\r\nContent-Length: 0\r\n\r\n"

// usual is what Bawn has in every place: a proxy that refuses, and a resolver.
func usual(scene string) error {
	answer := refusal
	switch scene {
	case "no proxy":
		return serveDNS("198.18.0.1:53", 5, "host_not_allowed")
	case "proxy lets go":
		answer = "HTTP/1.1 200 OK\r\nBawn-Code: host_not_allowed\r\n\r\n"
	case "proxy and no code":
		answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
	}
	rcode, code := byte(5), "host_not_allowed: ask your operator" // REFUSED
	switch scene {
	case "resolver answers":
		rcode = 3
	case "another code by DNS":
		code = "dns_label_budget"
	case "no code by DNS":
		code = ""
	}
	return joined(serve("tcp", "198.18.0.1:3128", answer, true), serveDNS("198.18.0.1:53", rcode, code))
}

func hole(scene, dir string, own *tls.Config) error {
	switch scene {
	case "link":
		return exec.Command("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1").Run()
	case "banner":
		return serve("tcp", "192.0.2.1:22", "SSH-2.0-OpenSSH\r\n", false)
	case "web":
		return serve("tcp", "192.0.2.1:80", "HTTP/1.1 403 Forbidden\r\n\r\n", true)
	case "own TLS", "foreign TLS":
		l, err := net.Listen("tcp", "192.0.2.1:443")
		if err != nil {
			return err
		}
		if scene == "foreign TLS" {
			if own, err = authority(filepath.Join(dir, "other.crt")); err != nil {
				return err
			}
		}
		go answerAll(tls.NewListener(l, own), refusal, true)
		return nil
	case "udp":
		return serveUDP("192.0.2.1:123", func(q []byte) []byte { return q })
	case "resolver":
		return serveDNS("198.51.100.53:53", 3, "")
	case "metadata":
		return serve("tcp", "169.254.169.254:80", "HTTP/1.1 200 OK\r\n\r\n", true)
	case "source port":
		return serveFrom("127.0.0.1:9999", ":8080")
	case "ping": // the account may, and the kernel answers; its filter lets the socket through
		return os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0)
	case "a spool":
		return joined(os.Mkdir(filepath.Join(dir, "spool"), 0o777), os.Chmod(filepath.Join(dir, "spool"), 0o777))
	case "own file":
		return os.WriteFile(filepath.Join(dir, "policy.db"), nil, 0o644)
	case "transparent":
		return serve("tcp", "203.0.113.7:80", "HTTP/1.1 200 OK\r\n\r\n", true)
	case "datagrams":
		return serveUDP("127.0.0.1:9999", func(q []byte) []byte { return q })
	case "host service":
		return serve("tcp", "127.0.0.1:5432", "hello", false)
	case "local service":
		return serve("unix", filepath.Join(dir, "service.sock"), "", false)
	case "admin socket":
		return serve("unix", filepath.Join(dir, "admin.sock"), "", false)
	case "abstract":
		return serve("unix", "@lure", "", false)
	}
	return nil
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// serve answers every connection with the same text, if wanted after a request.
func serve(network, addr, answer string, read bool) error {
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	go answerAll(l, answer, read)
	if network == "unix" && addr[0] == '/' {
		return os.Chmod(addr, 0o777)
	}
	return nil
}

func answerAll(l net.Listener, answer string, read bool) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if read {
				c.Read(make([]byte, 4096))
			}
			io.WriteString(c, answer)
		}()
	}
}

// serveFrom answers who comes from a port, and cuts off everybody else.
func serveFrom(addr, port string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if strings.HasSuffix(c.RemoteAddr().String(), port) {
				io.WriteString(c, "hello\n")
			}
			c.Close()
		}
	}()
	return nil
}

func serveUDP(addr string, answer func([]byte) []byte) error {
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(answer(b[:n]), from)
		}
	}()
	return nil
}

// serveDNS answers every question with an error code, and with a text in an
// extended error if there is one, by both transports.
func serveDNS(addr string, rcode byte, text string) error {
	answer := func(q []byte) []byte {
		a := slices.Clone(q)
		if n := len(a); text != "" && n > 2 { // the question ends with an empty OPT record
			option := append([]byte{0, 15, 0, byte(2 + len(text)), 0, 18}, text...)
			a = append(binary.BigEndian.AppendUint16(a[:n-2], uint16(len(option))), option...)
		}
		if len(a) > 3 {
			a[2], a[3] = 0x81, 0x80|rcode
		}
		return a
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 4096)
			if n, err := c.Read(b); err == nil && n > 2 {
				a := answer(b[2:n])
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}
			c.Close()
		}
	}()
	return serveUDP(addr, answer)
}

// authority makes a root that signs for the canary, and writes its certificate.
func authority(file string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, DNSNames: []string{"canary.bawn.invalid"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, nil
}
