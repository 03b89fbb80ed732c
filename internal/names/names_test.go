// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/names"
)

// wantCode fails t unless err is a *names.Error with the code.
func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	e, ok := errors.AsType[*names.Error](err)
	switch {
	case !ok:
		t.Errorf("error %v is no *names.Error", err)
	case e.Code != want:
		t.Errorf("code %s, want %s (%s)", e.Code, want, e.Detail)
	case e.Detail == "":
		t.Error("no detail")
	}
}

// TestI4OneNameForEverySpelling: what means one name becomes one Host.
func TestI4OneNameForEverySpelling(t *testing.T) {
	want := names.MustParse("ok.example")
	for _, s := range []string{"ok.example", "OK.EXAMPLE", "Ok.eXample", "ok.example.", "OK.Example."} {
		got, err := names.Parse(s)
		if err != nil {
			t.Errorf("Parse(%q): %v", s, err)
			continue
		}
		if got != want {
			t.Errorf("Parse(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestParseAccepts(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, s := range []string{
		"a", "localhost", "a.b", "1.example", "3com.example", "0x7f.example", "a--b.example",
		"r3---sn-apo3qvuoxuxbt-j5pe.example", // hyphens in places 3 and 4 are in use
		"xn--bcher-kva.example", "xn--mgbh0fb.xn--kgbechtv", "xn--i-7iq.ws",
		long + ".example", long + "." + long + "." + long + "." + long[:61],
	} {
		got, err := names.Parse(s)
		if err != nil {
			t.Errorf("Parse(%q): %v", s, err)
		} else if got.String() != s {
			t.Errorf("Parse(%q) = %q", s, got)
		}
	}
}

// TestI4RefusesWhatIsNotCanonical holds the malformed names of the catalogue of
// attacks on naming: none is repaired.
func TestI4RefusesWhatIsNotCanonical(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, s := range map[string]string{
		"empty":                              "",
		"the root":                           ".",
		"two final dots":                     "ok.example..",
		"empty label":                        "ok..example",
		"leading dot":                        ".ok.example",
		"NUL":                                "evil.example\x00.ok.example",
		"space in front":                     " ok.example",
		"space behind":                       "ok.example ",
		"tab":                                "ok\t.example",
		"CR":                                 "ok.example\r",
		"line feed":                          "ok.example\n",
		"percent":                            "%65vil.example",
		"zone as suffix":                     "::1%25.ok.example",
		"zone behind mapped address":         "::ffff:1.2.3.4%x.ok.example",
		"user information":                   "a@allowed.example",
		"backslash":                          `127.1.1.1:80\@127.2.2.2`,
		"slash":                              "ok.example/x",
		"fragment":                           "ok.example#x",
		"question mark":                      "ok.example?x",
		"underscore":                         "_dmarc.ok.example",
		"star":                               "*.ok.example",
		"leading hyphen":                     "-a.example",
		"trailing hyphen":                    "a-.example",
		"lone hyphen":                        "-.example",
		"label of 64":                        long + ".example",
		"name of 254":                        strings.Repeat("a.", 126) + "aa",
		"u-umlaut in UTF-8":                  "b\u00fccher.example",
		"Kelvin sign":                        "o\u212a.example",
		"long s":                             "\u017fecure.example",
		"full-width dot":                     "ok\uff0eexample",
		"ideographic full stop":              "ok\u3002example",
		"zero-width space":                   "ok\u200b.example",
		"DEL":                                "ok\x7f.example",
		"high byte":                          "ok\xff.example",
		"bracket":                            "[ok.example]",
		"punycode of ASCII":                  "xn--example-.com",
		"punycode of ASCII inside":           "www.xn--ok-.example",
		"bare xn--":                          "xn--.example",
		"punycode that does not decode":      "xn--0.example",
		"punycode with overflow":             "xn--99999999.example",
		"punycode of a surrogate":            "xn--ib9b.example",
		"punycode of a lone surrogate":       "xn--a-qo7g.example",
		"colon and no address":               "ok.example:443",
		"IPv6 with a zone":                   "fe80::1%eth0",
		"comma":                              "ok.example,evil.example",
		"quote":                              "ok.example\"",
		"embedded new line and second value": "ok.example\r\nHost: evil.example",
	} {
		t.Run(name, func(t *testing.T) {
			h, err := names.Parse(s)
			if err == nil {
				t.Fatalf("Parse(%q) = %q, want refusal", s, h)
			}
			wantCode(t, err, codes.HostInvalid)
			if !h.IsZero() {
				t.Errorf("refused, yet Host %q", h)
			}
		})
	}
}

// TestAddressesAreNoNames: every spelling in which some resolver reads an
// address is refused as a name.
func TestAddressesAreNoNames(t *testing.T) {
	for _, s := range []string{
		"140.82.114.4", "1.2.3.4.", "127.1", "127.0.1", "2130706433", "0177.0.0.1", "0o177.0.0.1",
		"0x7f000001", "0X7F000001", "0x7f.0.0.1", "0x", "127.0.0.0x1", "1.2.3.4.5", "ok.example.1", "ok.0x1f",
		"0", "00", "256.256.256.256", "1.2.3.04", "::1", "::ffff:1.2.3.4", "2001:db8::1", "::",
	} {
		h, err := names.Parse(s)
		if err == nil {
			t.Errorf("Parse(%q) = %q, want refusal", s, h)
			continue
		}
		wantCode(t, err, codes.IPLiteralDenied)
	}
}

func TestErrorQuotesLittle(t *testing.T) {
	_, err := names.Parse(strings.Repeat("\x1b", 5000))
	if n := len(err.Error()); n > 400 {
		t.Errorf("error of %d bytes", n)
	}
	if strings.Contains(err.Error(), "\x1b") {
		t.Error("error holds a raw escape")
	}
}

func TestParseAuthority(t *testing.T) {
	host := names.MustParse("ok.example")
	for s, want := range map[string]names.Authority{
		"ok.example":          {Host: host},
		"OK.example.:443":     {Host: host, Port: 443, HasPort: true},
		"ok.example:1":        {Host: host, Port: 1, HasPort: true},
		"ok.example:65535":    {Host: host, Port: 65535, HasPort: true},
		"github.com:22":       {Host: names.MustParse("github.com"), Port: 22, HasPort: true},
		"140.82.114.4:443":    {Addr: netip.MustParseAddr("140.82.114.4"), Port: 443, HasPort: true},
		"140.82.114.4":        {Addr: netip.MustParseAddr("140.82.114.4")},
		"[::1]:443":           {Addr: netip.MustParseAddr("::1"), Port: 443, HasPort: true},
		"[::1]":               {Addr: netip.MustParseAddr("::1")},
		"[::ffff:1.2.3.4]:80": {Addr: netip.MustParseAddr("::ffff:1.2.3.4"), Port: 80, HasPort: true},
	} {
		got, err := names.ParseAuthority(s)
		if err != nil {
			t.Errorf("ParseAuthority(%q): %v", s, err)
		} else if got != want {
			t.Errorf("ParseAuthority(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestParseAuthorityRefuses(t *testing.T) {
	for _, s := range []string{
		"", ":", ":443", "ok.example:", "ok.example:+443", "ok.example:0443a", "ok.example:00011211", "ok.example:0443",
		"ok.example:70000", "ok.example:65536", "ok.example:0", "ok.example:-1", "ok.example:4a3", "ok.example: 443",
		"ok.example:443 ", "ok.example:443:443", "ok.example:999999999999999999999", "ok.example:\uff14\uff14\uff13",
		"a@allowed.example:443", "a:b@allowed.example:443", "ok.example[::1]:443", "ok.example[::1]", "[::1", "::1]",
		"[::1]443", "[::1]x:443", "[::1]:", "[]:443", "[ok.example]:443", "[1.2.3.4]:443", "[::1%25.ok.example]:80",
		"[::1%eth0]:80", "[fe80::1%1]", "::1:443", "::1", "2001:db8::1", "127.1.1.1:80\\@127.2.2.2:80",
		"ok.example#:443", "ok.example/:443", "http://ok.example", "%65vil.example:443", "[::1]:443:1",
	} {
		got, err := names.ParseAuthority(s)
		if err == nil {
			t.Errorf("ParseAuthority(%q) = %v, want refusal", s, got)
			continue
		}
		wantCode(t, err, codes.HostInvalid)
		if got != (names.Authority{}) {
			t.Errorf("ParseAuthority(%q): refused, yet %v", s, got)
		}
	}
	for _, s := range []string{"0177.0.0.1:80", "0x7f000001:80", "2130706433:80", "127.1:80", "1.2.3.4.:80"} {
		_, err := names.ParseAuthority(s)
		wantCode(t, err, codes.IPLiteralDenied)
	}
}

func TestHostText(t *testing.T) {
	var h names.Host
	if err := h.UnmarshalText([]byte("OK.example")); err != nil || h.String() != "ok.example" {
		t.Errorf("UnmarshalText: %q, %v", h, err)
	}
	if err := h.UnmarshalText([]byte("no such")); err == nil || h.String() != "ok.example" {
		t.Errorf("a refused text changed the host to %q (error %v)", h, err)
	}
	if err := h.UnmarshalText(nil); err != nil || !h.IsZero() {
		t.Errorf("UnmarshalText of nothing: %q, %v", h, err)
	}
}
