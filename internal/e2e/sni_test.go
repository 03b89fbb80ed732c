// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"bawn/internal/world/operator"
	"bawn/internal/world/services"
)

// greeting is the first flight of a real client.
func greeting(t *testing.T, conf *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(far, conf).Handshake()
		_ = far.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(near, head); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(near, rest); err != nil {
		t.Fatal(err)
	}
	_ = near.Close()
	return append(head, rest...)
}

// encryptedFor is a list of keys for encrypted client hello, as DNS would have
// it, of a server whose own name is public (RFC 9849 section 4).
func encryptedFor(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := []byte{7, 0, 0x20, 0, 32} // configuration 7, DHKEM with X25519
	b = append(b, key.PublicKey().Bytes()...)
	b = append(b, 0, 4, 0, 1, 0, 1, 32, byte(len(public))) // HKDF-SHA256, AES-128-GCM
	b = append(append(b, public...), 0, 0)
	b = append([]byte{0xfe, 0x0d, 0, byte(len(b))}, b...)
	return append([]byte{0, byte(len(b))}, b...)
}

// recut puts each byte of a record in a record of its own.
func recut(record []byte) (out []byte) {
	for _, b := range record[5:] {
		out = append(out, 22, 3, 1, 0, 1, b)
	}
	return out
}

// TestGreetings: what may be spliced says where it goes, in the clear, and that
// is where it was allowed to go.
func TestGreetings(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	h.apply(t, clientsPolicyOf("dev", "guest"))
	h.clients(t)
	if err := services.OpenSSL(h.w); err != nil {
		t.Fatal(err)
	}
	own := h.w.Names.TLS
	named := func(name string) []byte { return greeting(t, &tls.Config{ServerName: name}) }
	ech := func(inner, outer string) []byte {
		return greeting(t, &tls.Config{ServerName: inner, EncryptedClientHelloConfigList: encryptedFor(t, outer), MinVersion: tls.VersionTLS13})
	}
	for name, c := range map[string]struct {
		send []byte
		code string // of the refusal; empty: passes
	}{
		"its own name":               {named(own), ""},
		"in other letters":           {named("TLS.Example.com"), ""},
		"a record for each byte":     {recut(named(own)), ""},
		"another allowed name":       {named(h.w.Names.API), "sni_mismatch"},
		"a stranger":                 {named(h.w.Names.Evil), "sni_mismatch"},
		"a name below":               {named("a." + own), "sni_mismatch"},
		"no name":                    {greeting(t, &tls.Config{InsecureSkipVerify: true}), "sni_missing"},
		"encrypted, under a front":   {ech(own, "cloudflare-ech.com"), "sni_mismatch"},
		"encrypted, under its name":  {ech(h.w.Names.Evil, own), "sni_mismatch"},
		"no TLS":                     {[]byte("GET / HTTP/1.1\r\nHost: " + own + "\r\n\r\n"), "protocol_error"},
		"SSH":                        {[]byte("SSH-2.0-x\r\n"), "protocol_error"},
		"a greeting without an end":  {append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}, make([]byte, 1<<14)...), "protocol_error"},
		"another kind of greeting":   {[]byte{0x80, 0x2e, 1, 0, 2}, "protocol_error"},
		"a greeting larger than all": {append([]byte{22, 3, 1, 0x40, 0, 1, 1, 0, 0}, make([]byte, 1<<15)...), "protocol_error"},
	} {
		for _, a := range []struct {
			name, agent string
			job         job
		}{
			{"explicit", "dev", job{Connect: connectHead(own + ":443"), Send: c.send}},
			{"transparent", "dev", job{To: own + ":443", Send: c.send}},
			{"uid", "guest", job{Connect: connectHead(own + ":443"), Send: c.send}},
		} {
			t.Run(a.name+" "+name, func(t *testing.T) {
				seen := len(h.decisions(t, all))
				got := h.rawSession(t, a.agent).do(t, a.job)
				answered := strings.HasPrefix(string(got.Got), "\x16\x03\x03")
				var code string
				for _, r := range h.decisions(t, all)[seen:] {
					if r.Proto == "tls" {
						code = r.Code
					}
				}
				if answered != (c.code == "") || code != c.code {
					t.Errorf("answered %v, code %q, want %q: %s", answered, code, c.code, got)
				}
			})
		}
	}
}

// clientsPolicyOf is the policy of the table for other agents.
func clientsPolicyOf(agents ...string) string {
	text, _, _ := strings.Cut(clientsPolicy, "agents:\n")
	text += "agents:\n"
	for _, a := range agents {
		text += "  " + a + ": {profile: coder}\n"
	}
	return text
}

// TestByteByByte: a client whose TLS comes a byte at a time is served as any
// other, looked into or not.
func TestByteByByte(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	h.apply(t, clientsPolicyOf("dev", "guest"))
	h.clients(t)
	if err := services.OpenSSL(h.w); err != nil {
		t.Fatal(err)
	}
	n := h.w.Names
	for _, a := range everyWay() {
		for host, c := range map[string]struct{ send, want string }{
			n.TLS: {`hello\nCLOSE\n`, "olleh\n"},
			n.API: {`GET /drip HTTP/1.1\r\nHost: ` + n.API + `\r\nConnection: close\r\n\r\n`, `"target":"/drip"`},
		} {
			r := h.in(t, a.agent, append(slices.Clone(a.before), "/usr/bin/python3", "/opt/clients/drip.py", host, c.send)...)
			if !strings.Contains(r.out, c.want) {
				t.Errorf("%s, %s: %s%s", a.name, host, r.out, r.err)
			}
		}
	}
}

// TestNamesBindAnyTCP: what is not looked into is bound to name and port all
// the same, by the address that stands for the name.
func TestNamesBindAnyTCP(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t)})
	h.agents(t)
	h.apply(t, clientsPolicyOf("dev", "guest"))
	h.clients(t)
	if _, err := services.SSH(h.w); err != nil {
		t.Fatal(err)
	}
	n := h.w.Names
	const banner = `
import socket, sys
try:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    print(s.recv(7))
except OSError as e:
    print(type(e).__name__)
`
	for name, c := range map[string]struct{ host, port, want, code string }{
		"as allowed, heard before a word": {n.SSH, "22", "b'SSH-2.0'", ""},
		"another port":                    {n.SSH, "2222", "ConnectionResetError", "port_not_allowed"},
		"a name without such a rule":      {n.API, "22", "ConnectionResetError", "port_not_allowed"},
		"the address itself":              {"93.184.216.17", "22", "ConnectionResetError", "ip_literal_denied"},
	} {
		t.Run(name, func(t *testing.T) {
			r := h.sh(t, "dev", "/usr/bin/python3 -c '"+banner+"' "+c.host+" "+c.port)
			// A reset may come before the connection is said to stand, or after.
			if got := strings.TrimSpace(r.out); got != c.want && !(c.code != "" && got == "b''") {
				t.Errorf("printed %q, want %q: %s", got, c.want, r.err)
			}
			if code := h.lastCode(t); code != c.code {
				t.Errorf("code %q, want %q", code, c.code)
			}
		})
	}
	if r := h.sh(t, "dev", "/usr/bin/python3 -c '"+banner+"' "+n.Evil+" 22"); strings.TrimSpace(r.out) != "gaierror" || h.lastCode(t) != "dns_name_not_allowed" {
		t.Errorf("a name that no rule has: %s%s, code %s", r.out, r.err, h.lastCode(t))
	}
}

// TestFrontHasNoOldTLS has sslscan look at what agents are shown: no version
// before 1.2 and no weak cipher.
func TestFrontHasNoOldTLS(t *testing.T) {
	h := boot(t)
	r := h.sh(t, "dev", "sslscan --no-colour --no-check-certificate "+h.w.Names.API+":443")
	for _, want := range []string{"SSLv2     disabled", "SSLv3     disabled", "TLSv1.0   disabled", "TLSv1.1   disabled", "TLSv1.2   enabled", "TLSv1.3   enabled"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("sslscan does not say %q", want)
		}
	}
	for _, weak := range []string{"RC4", "DES", "NULL", "EXP", "MD5", "CBC", "vulnerable to heartbleed\n\n"} {
		if weak != "CBC" && strings.Contains(r.out, "  "+weak) || strings.Contains(r.out, "-"+weak+"-") {
			t.Errorf("sslscan says %q", weak)
		}
	}
	if t.Failed() {
		t.Logf("%s%s", r.out, r.err)
	}
}
