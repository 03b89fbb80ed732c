// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"context"
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

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == placeVerb {
		if err := place(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
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
	cmd := exec.Command(os.Args[0], placeVerb, scene, t.TempDir())
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

// networkChecks are those that this test's place can hold: it is root, so the
// kernel refuses it little.
var networkChecks = []probe.Check{
	probe.CheckLinks, probe.CheckTCP, probe.CheckUDP, probe.CheckDNS, probe.CheckMetadata, probe.CheckLoopback,
	probe.CheckServices, probe.CheckAbstract, probe.CheckOwn, probe.CheckOwnFiles, probe.CheckSource, probe.CheckProxy, probe.CheckTransparent,
	probe.CheckResolver, probe.CheckCertificates,
}

func TestNothingGetsOutOfAnEmptyPlace(t *testing.T) {
	tries := stand(t, "closed")
	for _, check := range networkChecks {
		if got := out(tries, check); len(got) > 0 {
			t.Errorf("%s: %q", check, got)
		}
	}
	for _, try := range tries {
		want := try.Check == probe.CheckProxy || try.Check == probe.CheckResolver || try.Check == probe.CheckCertificates
		if want && try.Outcome != probe.Answered || try.Check == probe.CheckProxy && try.Code == "" {
			t.Errorf("%+v", try)
		}
	}
	// As root, on the other hand, the back doors are open, and seen to be.
	for check, want := range map[probe.Check]string{
		probe.CheckKernel: "account", probe.CheckProtocols: "socket packets", probe.CheckRights: "no_new_privs",
	} {
		if got := out(tries, check); !slices.Contains(got, want) {
			t.Errorf("%s: %q, want %q", check, got, want)
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
		"ping":              {probe.CheckICMP: "icmp raw 192.0.2.1"},
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
	} {
		t.Run(scene, func(t *testing.T) {
			tries := stand(t, scene)
			for _, check := range append(networkChecks, probe.CheckICMP) {
				got := out(tries, check)
				w, hole := want[check]
				found := slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, w) })
				if hole != (len(got) > 0) && !(check == probe.CheckICMP && scene != "ping") || hole && !found {
					t.Errorf("%s: %q, want %q", check, got, w)
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

// breaks names for each check a scene in which it turns red. In "closed" the
// probe is root, whom the kernel refuses little.
var breaks = map[doctor.Name]string{
	doctor.Links: "link", doctor.TCP: "banner", doctor.UDP: "udp", doctor.ICMP: "closed", doctor.Protocols: "closed", doctor.SourcePorts: "source port",
	doctor.DNS: "resolver", doctor.Metadata: "metadata", doctor.Loopback: "host service", doctor.Services: "local service", doctor.Abstract: "abstract",
	doctor.OwnSockets: "admin socket", doctor.OwnFiles: "own file", doctor.Calls: "closed", doctor.Rights: "closed", doctor.Others: "another process",
	doctor.Counted: "nothing counted", doctor.ByProxy: "proxy lets go", doctor.Transparent: "transparent", doctor.ByResolver: "resolver answers",
	doctor.OneCode: "another code by DNS", doctor.Certificates: "no certificate",
}

// TestI12EachSceneTurnsItsCheckRed, and, beside what root opens, no other.
func TestI12EachSceneTurnsItsCheckRed(t *testing.T) {
	before := failed(probe.Evaluate(ids.PlacementNetns, stand(t, "closed"), counted(1), counted(2)))
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
			// Without a refusal in order there is no code, and a machine has processes.
			if other != check && !slices.Contains(before, other) && other != doctor.OneCode && other != doctor.Others {
				t.Errorf("%s: %s has failed as well", scene, other)
			}
		}
	}
}

// TestProcessesOfOthersAreSeen: this place has no /proc of its own.
func TestProcessesOfOthersAreSeen(t *testing.T) {
	if got := out(stand(t, "another process"), probe.CheckOthers); len(got) != 1 {
		t.Errorf("%q", got)
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
	c.Services = slices.DeleteFunc(c.Services, func(p string) bool { _, err := os.Stat(p); return err == nil }) // the machine's own
	if err := usual(scene); err != nil {
		return err
	}
	if err := hole(scene, dir, own); err != nil {
		return err
	}
	return probe.Run(context.Background(), c, os.Stdout)
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
	case "another process":
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
		return cmd.Start()
	case "own file":
		return os.WriteFile(filepath.Join(dir, "policy.db"), nil, 0o600)
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
