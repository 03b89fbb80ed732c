// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package tlshello_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/tlshello"
)

// A wire is a connection that gives what in holds and keeps what is written.
type wire struct {
	in  io.Reader
	out bytes.Buffer
}

func (w *wire) Read(b []byte) (int, error)         { return w.in.Read(b) }
func (w *wire) Write(b []byte) (int, error)        { return w.out.Write(b) }
func (w *wire) Close() error                       { return nil }
func (w *wire) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (w *wire) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (w *wire) SetDeadline(t time.Time) error      { return nil }
func (w *wire) SetReadDeadline(t time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(t time.Time) error { return nil }

// clientHello returns the first flight of a real client.
func clientHello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	w := &wire{in: strings.NewReader("")}
	_ = tls.Client(w, cfg).HandshakeContext(t.Context()) // fails: there is no answer
	if w.out.Len() == 0 {
		t.Fatal("no ClientHello")
	}
	return w.out.Bytes()
}

var errSeen = errors.New("seen")

// serverSees is the oracle: what crypto/tls reads in the bytes.
func serverSees(raw []byte) (hello tlshello.Hello, ok bool) {
	cfg := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = tlshello.Hello{ServerName: info.ServerName, HasSNI: info.ServerName != "", ALPN: info.SupportedProtos}
		ok = true
		return nil, errSeen
	}}
	_ = tls.Server(&wire{in: bytes.NewReader(raw)}, cfg).Handshake()
	return hello, ok
}

var clients = map[string]*tls.Config{
	"name":        {ServerName: "ok.example"},
	"ALPN":        {ServerName: "ok.example", NextProtos: []string{"h2", "http/1.1"}},
	"no name":     {InsecureSkipVerify: true},
	"address":     {ServerName: "192.0.2.1"}, // crypto/tls sends no name then
	"TLS 1.2":     {ServerName: "ok.example", MaxVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	"long name":   {ServerName: strings.Repeat("a.", 120) + "example"},
	"many protos": {ServerName: "ok.example", NextProtos: strings.Split(strings.Repeat("protocol ", 1000), " ")[:1000]},
}

// TestSeesWhatCryptoTLSSees: real ClientHellos read the same in both parsers,
// whole, byte by byte, and cut into records of every size.
func TestSeesWhatCryptoTLSSees(t *testing.T) {
	for name, cfg := range clients {
		t.Run(name, func(t *testing.T) {
			raw := clientHello(t, cfg)
			want, ok := serverSees(raw)
			if !ok {
				t.Fatal("crypto/tls refuses")
			}
			for _, size := range []int{0, 1, 2, 3, 7, 100, 16384} {
				cut := recut(raw, size)
				if len(cut) > tlshello.MaxBytes {
					continue
				}
				got, err := tlshello.Parse(cut)
				if err != nil {
					t.Fatalf("records of %d: %v", size, err)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("records of %d (-crypto/tls +here):\n%s", size, d)
				}
			}
			got, back, err := tlshello.Read(iotest.OneByteReader(bytes.NewReader(raw)))
			if err != nil || !bytes.Equal(back, raw) || !cmp.Equal(got, want) {
				t.Errorf("byte by byte: %+v, %v, replays the same bytes: %v", got, err, bytes.Equal(back, raw))
			}
		})
	}
}

// recut joins the content of the records of raw and cuts it anew; size 0 leaves
// raw as it is.
func recut(raw []byte, size int) []byte {
	if size == 0 {
		return raw
	}
	var msg, out []byte
	for b := raw; len(b) >= 5; {
		n := int(b[3])<<8 | int(b[4])
		msg = append(msg, b[5:5+n]...)
		b = b[5+n:]
	}
	for len(msg) > 0 {
		n := min(size, len(msg))
		out = append(out, 22, 3, 1, byte(n>>8), byte(n))
		out = append(out, msg[:n]...)
		msg = msg[n:]
	}
	return out
}

// The builders below write ClientHellos that no library sends.

type ext struct {
	kind int
	data string
}

func v8(s string) string  { return string([]byte{byte(len(s))}) + s }
func v16(s string) string { return string([]byte{byte(len(s) >> 8), byte(len(s))}) + s }

func sni(names ...string) ext {
	var list strings.Builder
	for _, n := range names {
		list.WriteString("\x00" + v16(n))
	}
	return ext{0, v16(list.String())}
}

func alpn(protos ...string) ext {
	var list strings.Builder
	for _, p := range protos {
		list.WriteString(v8(p))
	}
	return ext{16, v16(list.String())}
}

func handshake(kind byte, body string) string {
	return string([]byte{kind, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}) + body
}

func record(content string) string { return "\x16\x03\x01" + v16(content) }

const preamble = "\x03\x03" + "0123456789abcdef0123456789abcdef" + "\x00" + "\x00\x02\x13\x01" + "\x01\x00"

func body(exts ...ext) string {
	var b strings.Builder
	for _, e := range exts {
		b.WriteString(string([]byte{byte(e.kind >> 8), byte(e.kind)}) + v16(e.data))
	}
	return preamble + v16(b.String())
}

func build(exts ...ext) string { return record(handshake(1, body(exts...))) }

func TestReads(t *testing.T) {
	named := tlshello.Hello{ServerName: "ok.example", HasSNI: true}
	for name, c := range map[string]struct {
		raw  string
		want tlshello.Hello
	}{
		"name":                    {build(sni("ok.example")), named},
		"no extensions":           {record(handshake(1, preamble)), tlshello.Hello{}},
		"empty extensions":        {build(), tlshello.Hello{}},
		"GREASE":                  {build(ext{0x0a0a, ""}, sni("ok.example"), ext{0xfafa, "\x00"}), named},
		"unknown extension":       {build(ext{0x1234, "anything"}, sni("ok.example")), named},
		"address as name":         {build(sni("192.0.2.1")), tlshello.Hello{ServerName: "192.0.2.1", HasSNI: true}},
		"hostile name":            {build(sni("a\x00.ok.example")), tlshello.Hello{ServerName: "a\x00.ok.example", HasSNI: true}},
		"protocols":               {build(alpn("h2", "http/1.1")), tlshello.Hello{ALPN: []string{"h2", "http/1.1"}}},
		"encrypted client hello":  {build(sni("cloudflare-ech.com"), ext{0xfe0d, "x"}), tlshello.Hello{ServerName: "cloudflare-ech.com", HasSNI: true, ECH: true}},
		"encrypted name, draft":   {build(ext{0xffce, "x"}), tlshello.Hello{ECH: true}},
		"more bytes behind":       {build(sni("ok.example")) + "\x14\x03\x03\x00\x01\x01", named},
		"other record version":    {"\x16\x03\x03" + build(sni("ok.example"))[3:], named},
		"header cut over records": {record("\x01") + record("\x00") + record(handshake(1, body(sni("ok.example")))[2:]), named},
		"more than one full record": {
			record(handshake(1, body(sni("ok.example"), ext{21, strings.Repeat("\x00", 20000)}))[:16384]) +
				record(handshake(1, body(sni("ok.example"), ext{21, strings.Repeat("\x00", 20000)}))[16384:]), named,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tlshello.Parse([]byte(c.raw))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	good := handshake(1, body(sni("ok.example")))
	for name, raw := range map[string]string{
		"HTTP":                          "GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n",
		"SSH":                           "SSH-2.0-x\r\n",
		"SSL 2":                         "\x80\x2e\x01\x00\x02",
		"alert":                         "\x15\x03\x01\x00\x02\x02\x28",
		"version":                       "\x16\x02\x00\x00\x05",
		"empty record":                  "\x16\x03\x01\x00\x00",
		"empty record in between":       record(good[:10]) + "\x16\x03\x01\x00\x00" + record(good[10:]),
		"other record in between":       record(good[:10]) + "\x14\x03\x01\x00\x01\x01" + record(good[10:]),
		"record of 16385":               "\x16\x03\x01\x40\x01",
		"ServerHello":                   record(handshake(2, body())),
		"bytes behind in the record":    record(good + "\x01"),
		"empty message":                 record(handshake(1, "")),
		"version in the message":        record(handshake(1, "\x02"+preamble[1:]+v16(""))),
		"random cut short":              record(handshake(1, preamble[:20])),
		"session id of 33":              record(handshake(1, preamble[:34]+v8(strings.Repeat("x", 33))+preamble[35:])),
		"odd cipher suites":             record(handshake(1, preamble[:35]+v16("abc")+"\x01\x00")),
		"no cipher suites":              record(handshake(1, preamble[:35]+v16("")+"\x01\x00")),
		"no compression":                record(handshake(1, preamble[:39]+"\x00"+v16(""))),
		"extensions too short":          record(handshake(1, preamble+"\x00\x05\x00\x00")),
		"bytes behind extensions":       record(handshake(1, body()+"x")),
		"extension cut short":           record(handshake(1, preamble+v16("\x00"))),
		"extension data cut short":      record(handshake(1, preamble+v16("\x00\x00\x00\x05x"))),
		"two server names":              build(sni("ok.example", "evil.example")),
		"the same name twice":           build(sni("ok.example", "ok.example")),
		"two name extensions":           build(sni("ok.example"), sni("evil.example")),
		"two GREASE of one type":        build(ext{0x0a0a, ""}, ext{0x0a0a, ""}),
		"name of other type":            build(ext{0, v16("\x01" + v16("ok.example"))}),
		"other type before the name":    build(ext{0, v16("\x01" + v16("x") + "\x00" + v16("ok.example"))}),
		"empty list of names":           build(ext{0, v16("")}),
		"empty name extension":          build(ext{0, ""}),
		"empty name":                    build(sni("")),
		"name with final dot":           build(sni("ok.example.")),
		"name cut short":                build(ext{0, v16("\x00\x00\x20ok.example")}),
		"bytes behind the list":         build(ext{0, v16("\x00"+v16("ok.example")) + "x"}),
		"empty list of protocols":       build(alpn()),
		"empty protocol":                build(alpn("h2", "")),
		"protocol cut short":            build(ext{16, v16("\x05h2")}),
		"bytes behind protocols":        build(ext{16, v16("\x02h2") + "x"}),
		"message larger than the bound": record("\x01\x01\x00\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			h, back, err := tlshello.Read(strings.NewReader(raw))
			if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%+v, %v: want refusal", h, err)
			}
			if !cmp.Equal(h, tlshello.Hello{}) {
				t.Errorf("refused, yet %+v", h)
			}
			if string(back) != raw {
				t.Error("bytes are lost")
			}
		})
	}
}

// TestBounded: a ClientHello that never ends is refused at the bound, and so is
// one that is spread over very many records.
func TestBounded(t *testing.T) {
	long := handshake(1, body(sni("ok.example"), ext{21, strings.Repeat("\x00", 31000)}))
	for name, size := range map[string]int{"large records": 16384, "records of one byte": 1} {
		t.Run(name, func(t *testing.T) {
			raw := recut([]byte(record(long[:16384])+record(long[16384:])), size)
			_, err := tlshello.Parse(raw)
			if fits := len(raw) <= tlshello.MaxBytes; fits != (err == nil) {
				t.Errorf("%d bytes: %v", len(raw), err)
			}
		})
	}
	endless := io.MultiReader(strings.NewReader("\x16\x03\x01\x40\x00\x01\x00\x7f\xff"), neverEnding('x'))
	_, raw, err := tlshello.Read(iotest.OneByteReader(endless))
	if err == nil || len(raw) > tlshello.MaxBytes {
		t.Errorf("%v after %d bytes", err, len(raw))
	}
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

func TestReadEnds(t *testing.T) {
	if _, raw, err := tlshello.Read(strings.NewReader("")); err != io.EOF || len(raw) != 0 {
		t.Errorf("nothing: %v, %q", err, raw)
	}
	if _, raw, err := tlshello.Read(strings.NewReader("\x16\x03")); err != io.ErrUnexpectedEOF || string(raw) != "\x16\x03" {
		t.Errorf("cut: %v, %q", err, raw)
	}
	broken := errors.New("broken")
	if _, _, err := tlshello.Read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("error of the connection: %v", err)
	}
}

// TestI4ServerNameAgrees: the server name is compared in canonical form, and
// anything but the judged name has its code.
func TestI4ServerNameAgrees(t *testing.T) {
	want := names.MustParse("ok.example")
	for name, c := range map[string]struct {
		hello tlshello.Hello
		code  codes.Code
	}{
		"same":            {tlshello.Hello{ServerName: "ok.example", HasSNI: true}, ""},
		"other case":      {tlshello.Hello{ServerName: "OK.Example", HasSNI: true}, ""},
		"other name":      {tlshello.Hello{ServerName: "evil.example", HasSNI: true}, codes.SNIMismatch},
		"below":           {tlshello.Hello{ServerName: "a.ok.example", HasSNI: true}, codes.SNIMismatch},
		"none":            {tlshello.Hello{}, codes.SNIMissing},
		"address":         {tlshello.Hello{ServerName: "192.0.2.1", HasSNI: true}, codes.SNIMismatch},
		"NUL":             {tlshello.Hello{ServerName: "ok.example\x00", HasSNI: true}, codes.SNIMismatch},
		"punycode of ok.": {tlshello.Hello{ServerName: "xn--ok-.example", HasSNI: true}, codes.SNIMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			code, detail := c.hello.Check(want)
			if code != c.code || (code != "" && detail == "") {
				t.Errorf("code %q (%s), want %q", code, detail, c.code)
			}
		})
	}
	if code, _ := (tlshello.Hello{HasSNI: true}).Check(names.Host{}); code == "" {
		t.Error("no name agrees with no name")
	}
}

// FuzzParse: where both this parser and crypto/tls accept, they see the same
// name and protocols, and what this parser accepts does not depend on how the
// bytes are cut.
func FuzzParse(f *testing.F) {
	for _, cfg := range clients {
		f.Add(clientHello(f, cfg))
	}
	f.Add([]byte(build(sni("ok.example"), alpn("h2"), ext{0xfe0d, "x"})))
	f.Add([]byte(build(sni("ok.example", "evil.example"))))
	f.Add([]byte(build(ext{0, v16("\x01" + v16("x") + "\x00" + v16("ok.example"))})))
	f.Add(recut([]byte(build(sni("ok.example"))), 3))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := tlshello.Parse(raw)
		slow, back, slowErr := tlshello.Read(iotest.OneByteReader(bytes.NewReader(raw)))
		if (err == nil) != (slowErr == nil) || !cmp.Equal(got, slow) {
			t.Fatalf("whole: %+v, %v; byte by byte: %+v, %v", got, err, slow, slowErr)
		}
		if !bytes.HasPrefix(raw, back) {
			t.Fatal("bytes to replay are not those that were read")
		}
		if err != nil {
			return
		}
		want, ok := serverSees(raw)
		if !ok {
			return // crypto/tls looks into more extensions than this parser
		}
		got.ECH = false // the oracle does not say
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("-crypto/tls +here:\n%s", d)
		}
	})
}
