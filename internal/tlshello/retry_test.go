// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package tlshello_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"

	"bawn/internal/tlshello"
)

// serverHello is the head of one, with a random.
func serverHello(random string) string {
	return handshake(2, "\x03\x03"+random+"\x00\x13\x01\x00\x00\x00")
}

const (
	retryRandom = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"
	otherRandom = "0123456789abcdef0123456789abcdef"
	ccs         = "\x14\x03\x03\x00\x01\x01"
	early       = "\x17\x03\x03\x00\x05early"
)

func TestAnswers(t *testing.T) {
	retry := serverHello(retryRandom)
	for name, c := range map[string]struct {
		raw  string
		want tlshello.Answer
	}{
		"a ServerHello":                 {record(serverHello(otherRandom)), tlshello.Accepted},
		"a HelloRetryRequest":           {record(retry), tlshello.Retry},
		"with more behind it":           {record(retry) + ccs + record("x"), tlshello.Retry},
		"over records":                  {record(retry[:1]) + record(retry[1:20]) + record(retry[20:]), tlshello.Retry},
		"after a warning":               {"\x15\x03\x03\x00\x02\x01\x70" + record(retry), tlshello.Retry},
		"one bit off":                   {record(serverHello(retryRandom[:31] + "\x9d")), tlshello.Accepted},
		"cut short":                     {record(retry)[:30], tlshello.Unanswered},
		"nothing":                       {"", tlshello.Unanswered},
		"a warning and no more":         {"\x15\x03\x03\x00\x02\x01\x70", tlshello.Unanswered},
		"another message":               {record(handshake(11, "xxxx")), tlshello.NotTLS},
		"a ClientHello":                 {build(sni("ok.example")), tlshello.NotTLS},
		"HTTP":                          {"HTTP/1.1 400 Bad Request\r\n\r\n", tlshello.NotTLS},
		"an empty record":               {"\x16\x03\x03\x00\x00", tlshello.NotTLS},
		"application data":              {early, tlshello.NotTLS},
		"a HelloRetryRequest of drafts": {record(handshake(6, "\x03\x04\x13\x01")), tlshello.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(c.raw)+1; size += 7 {
				var a tlshello.Answering
				got := tlshello.Unanswered
				for rest := []byte(c.raw); len(rest) > 0; {
					n := min(size, len(rest))
					got, rest = a.Feed(rest[:n]), rest[n:]
				}
				if got != c.want {
					t.Errorf("by %d bytes: %v, want %v", size, got, c.want)
				}
			}
		})
	}
}

// follow feeds bytes by pieces of a size and says what passed.
func follow(raw string, size int) (pass string, held string, second tlshello.Hello, found bool, err error) {
	var f tlshello.Following
	for rest := []byte(raw); len(rest) > 0 && !found && err == nil; {
		n := min(size, len(rest))
		var p []byte
		p, second, found, err = f.Feed(rest[:n])
		pass, rest = pass+string(p), rest[n:]
		if found {
			return pass, string(f.Held()) + string(rest), second, found, err
		}
	}
	return pass, string(f.Held()), second, found, err
}

func TestSecondGreetingIsHeld(t *testing.T) {
	second := build(sni("ok.example"))
	cut := string(recut([]byte(second), 3))
	for name, c := range map[string]struct{ raw, pass, held string }{
		"at once":                 {second, "", second},
		"after early data":        {early + ccs + early + second, early + ccs + early, second},
		"with data behind it":     {ccs + second + early, ccs, second + early},
		"over records":            {cut + ccs, "", cut + ccs},
		"after an alert":          {"\x15\x03\x03\x00\x02\x01\x70" + second, "\x15\x03\x03\x00\x02\x01\x70", second},
		"of another name as well": {build(sni("evil.example")), "", build(sni("evil.example"))},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(c.raw); size += 5 {
				pass, held, hello, found, err := follow(c.raw, size)
				if err != nil || !found || !hello.HasSNI {
					t.Fatalf("by %d: %v, found %v, %+v", size, err, found, hello)
				}
				if pass != c.pass || held != c.held {
					t.Errorf("by %d: passed %q, held %q", size, pass, held)
				}
			}
		})
	}
}

func TestWhatFollowsPasses(t *testing.T) {
	for size := 1; size < 30; size++ {
		pass, held, _, found, err := follow(ccs+early+early, size)
		if err != nil || found || pass != ccs+early+early || held != "" {
			t.Errorf("by %d: passed %q, held %q, found %v, %v", size, pass, held, found, err)
		}
	}
	// Part of a header is held until it says what it is the head of.
	pass, held, _, found, err := follow(early+"\x17\x03", 100)
	if pass != early || held != "\x17\x03" || found || err != nil {
		t.Errorf("passed %q, held %q, found %v, %v", pass, held, found, err)
	}
}

func TestNothingElseFollows(t *testing.T) {
	for name, raw := range map[string]string{
		"another message":        record(handshake(16, "key")),
		"HTTP":                   "GET / HTTP/1.1\r\n",
		"an unknown record":      "\x63\x03\x03\x00\x01x",
		"an empty record":        "\x17\x03\x03\x00\x00",
		"a record too long":      "\x17\x03\x03\xff\xff",
		"another version":        "\x17\x02\x03\x00\x01x",
		"a malformed greeting":   build(sni("ok.example", "evil.example")),
		"an endless greeting":    strings.Repeat(record("\x01"+strings.Repeat("\x00", 9)), 10),
		"interleaved with data":  record("\x01\x00") + early,
		"a greeting over 32 KiB": record("\x01\x01\x00\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1000} {
				pass, _, _, found, err := follow(early+raw, size)
				if err == nil || found {
					t.Errorf("by %d: passed %q, found %v", size, pass, found)
				}
				if pass != early {
					t.Errorf("by %d: passed %q", size, pass)
				}
			}
		})
	}
}

// TestRealRetry has crypto/tls greet twice, and reads both sides.
func TestRealRetry(t *testing.T) {
	near, far := pair(t)
	up, down := &tap{Conn: near}, &tap{Conn: far}
	cert := testCertificate(t)
	done := make(chan error, 1)
	go func() {
		done <- tls.Server(down, &tls.Config{Certificates: []tls.Certificate{cert}, CurvePreferences: []tls.CurveID{tls.CurveP521}, SessionTicketsDisabled: true}).Handshake()
	}()
	client := tls.Client(up, &tls.Config{ServerName: "ok.example", InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP521}})
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := new(tlshello.Answering).Feed(down.wrote.Bytes()); got != tlshello.Retry {
		t.Fatalf("the server answered %v", got)
	}
	var first tlshello.Reader
	one := up.wrote.Bytes()
	for n := 1; ; n++ {
		if _, ok, err := first.Feed(one[n-1 : n]); err != nil {
			t.Fatal(err)
		} else if ok {
			_, held, second, found, err := follow(string(one[n:]), 11)
			if err != nil || !found || second.ServerName != "ok.example" || !strings.HasPrefix(string(one[n:]), ccs+held[:20]) {
				t.Errorf("second greeting: %+v, found %v, %v", second, found, err)
			}
			return
		}
	}
}

// pair gives both ends of a connection on the loopback.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func testCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"ok.example"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A tap keeps what is written.
type tap struct {
	net.Conn
	wrote bytes.Buffer
}

func (c *tap) Write(p []byte) (int, error) {
	c.wrote.Write(p)
	return c.Conn.Write(p)
}

// FuzzFollowing: what is fed either passes or is held, nothing is lost, no
// byte of a second ClientHello passes, and it does not matter how bytes are
// cut.
func FuzzFollowing(f *testing.F) {
	f.Add([]byte(early+ccs+build(sni("ok.example"))+early), 3)
	f.Add([]byte(build(sni("ok.example", "evil.example"))), 1)
	f.Add(recut([]byte(build(sni("ok.example"))), 3), 2)
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		if size < 1 {
			size = 1
		}
		pass, held, hello, found, err := follow(string(raw), size)
		pass1, held1, hello1, found1, err1 := follow(string(raw), max(1, len(raw)))
		if pass != pass1 || found != found1 || (err == nil) != (err1 == nil) || hello.ServerName != hello1.ServerName {
			t.Fatalf("by %d: %q %v %v; whole: %q %v %v", size, pass, found, err, pass1, found1, err1)
		}
		if err == nil && (pass+held != string(raw) || held != held1) {
			t.Fatalf("passed %q, held %q of %q", pass, held, raw)
		}
		if !found {
			return
		}
		want, parseErr := tlshello.Parse([]byte(held)) // the oracle: a parser that sees it alone
		if parseErr != nil || want.ServerName != hello.ServerName {
			t.Fatalf("held %q: %+v, %v; want %+v", held, want, parseErr, hello)
		}
	})
}
