// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnswire_test

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"bawn/internal/codes"
	"bawn/internal/dnswire"
	"bawn/internal/names"
)

// The pieces of queries.
const (
	head     = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	headEDNS = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01"
	okName   = "\x02oK\x07eXample\x00"
	aIN      = "\x00\x01\x00\x01"
	opt      = "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
)

func parse(t *testing.T, msg string) dnswire.Query {
	t.Helper()
	q, err := dnswire.ParseQuery([]byte(msg))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestParseQuery(t *testing.T) {
	q := parse(t, head+okName+aIN)
	if q.ID != 0x1234 || q.Name != "oK.eXample" || q.Host != names.MustParse("ok.example") || q.Type != dnswire.TypeA || q.Class != dnswire.ClassIN || q.EDNS {
		t.Errorf("%+v", q)
	}
	q = parse(t, headEDNS+okName+"\x00\x1c\x00\x01"+opt)
	if q.Type != dnswire.TypeAAAA || !q.EDNS {
		t.Errorf("%+v", q)
	}
	// Options are stepped over: a cookie and padding.
	parse(t, headEDNS+okName+aIN+"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x10\x00\x0a\x00\x0801234567\x00\x0c\x00\x00")
}

func TestParseQueryNames(t *testing.T) {
	for wire, want := range map[string]string{
		"\x00":                           ".",
		"\x05a.b\\c\x03com\x00":          `a\.b\\c.com`,
		"\x04a\x00\xff\n\x03com\x00":     `a\000\255\010.com`,
		"\x05_http\x04_tcp\x01x\x00":     "_http._tcp.x",
		"\x03a b\x00":                    `a\032b`,
		"\x0cexample.evil\x02ok\x00":     `example\.evil.ok`,
		"\x0axn--ok-aaa\x01x\x00":        "xn--ok-aaa.x",
		"\x07xn--ok-\x07example\x00":     "xn--ok-.example",
		"\x011\x012\x013\x014\x00":       "1.2.3.4",
		"\x03www\x04evil\x07example\x00": "www.evil.example",
	} {
		q := parse(t, head+wire+aIN)
		if q.Name != want {
			t.Errorf("%q reads as %q, want %q", wire, q.Name, want)
		}
		if h, err := names.Parse(want); h != q.Host || (err == nil) != (q.HostErr == nil) {
			t.Errorf("%q: host %q (%v), want %q (%v)", wire, q.Host, q.HostErr, h, err)
		}
	}
	// A label with a dot inside must not pass for two labels.
	if q := parse(t, head+"\x0aok.example\x00"+aIN); !q.Host.IsZero() {
		t.Errorf("one label with a dot is the host %q", q.Host)
	}
}

func TestParseQueryRefuses(t *testing.T) {
	long := strings.Repeat("\x3f"+strings.Repeat("a", 63), 4) + "\x00"
	for name, c := range map[string]struct {
		msg   string
		rcode dnswire.RCode
		reply bool
	}{
		"empty":                       {"", dnswire.FormErr, false},
		"header cut short":            {head[:11], dnswire.FormErr, false},
		"an answer":                   {"\x12\x34\x81\x80" + head[4:] + okName + aIN, dnswire.FormErr, false},
		"inverse query":               {"\x12\x34\x09\x00" + head[4:] + okName + aIN, dnswire.NotImp, true},
		"update":                      {"\x12\x34\x29\x00" + head[4:] + okName + aIN, dnswire.NotImp, true},
		"truncated":                   {"\x12\x34\x03\x00" + head[4:] + okName + aIN, dnswire.FormErr, true},
		"response code":               {"\x12\x34\x01\x02" + head[4:] + okName + aIN, dnswire.FormErr, true},
		"no question":                 {"\x12\x34\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00", dnswire.FormErr, true},
		"two questions":               {"\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00" + okName + aIN + okName + aIN, dnswire.FormErr, true},
		"an answer record":            {"\x12\x34\x01\x00\x00\x01\x00\x01\x00\x00\x00\x00" + okName + aIN, dnswire.FormErr, true},
		"an authority record":         {"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x01\x00\x00" + okName + aIN, dnswire.FormErr, true},
		"two additional records":      {"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x02" + okName + aIN + opt + opt, dnswire.FormErr, true},
		"question missing":            {head, dnswire.FormErr, true},
		"name without end":            {head + "\x02ok", dnswire.FormErr, true},
		"label cut short":             {head + "\x20ok\x00" + aIN, dnswire.FormErr, true},
		"type missing":                {head + okName, dnswire.FormErr, true},
		"class missing":               {head + okName + "\x00\x01", dnswire.FormErr, true},
		"pointer to itself":           {head + "\xc0\x0c" + aIN, dnswire.FormErr, true},
		"pointer into the header":     {head + "\x02ok\xc0\x00" + aIN, dnswire.FormErr, true},
		"reserved label":              {head + "\x42ok\x00" + aIN, dnswire.FormErr, true},
		"label of 64":                 {head + "\x40" + strings.Repeat("a", 64) + "\x00" + aIN, dnswire.FormErr, true},
		"name of 257":                 {head + long + aIN, dnswire.FormErr, true},
		"bytes behind":                {head + okName + aIN + "\x00", dnswire.FormErr, true},
		"second query behind":         {head + okName + aIN + head + okName + aIN, dnswire.FormErr, true},
		"additional record missing":   {headEDNS + okName + aIN, dnswire.FormErr, true},
		"additional record is an A":   {headEDNS + okName + aIN + okName + aIN + "\x00\x00\x00\x00\x00\x04abcd", dnswire.FormErr, true},
		"additional record is a TSIG": {headEDNS + okName + aIN + "\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x00", dnswire.FormErr, true},
		"OPT of another name":         {headEDNS + okName + aIN + "\x01x" + opt, dnswire.FormErr, true},
		"OPT cut short":               {headEDNS + okName + aIN + opt[:10], dnswire.FormErr, true},
		"OPT data cut short":          {headEDNS + okName + aIN + opt[:10] + "\x05", dnswire.FormErr, true},
		"option cut short":            {headEDNS + okName + aIN + opt[:10] + "\x03\x00\x0a\x00", dnswire.FormErr, true},
		"option data cut short":       {headEDNS + okName + aIN + opt[:10] + "\x05\x00\x0a\x00\x08x", dnswire.FormErr, true},
		"bytes behind OPT":            {headEDNS + okName + aIN + opt + "\x00", dnswire.FormErr, true},
		"EDNS version 1":              {headEDNS + okName + aIN + "\x00\x00\x29\x04\xd0\x00\x01\x00\x00\x00\x00", dnswire.BadVers, true},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := dnswire.ParseQuery([]byte(c.msg))
			e, ok := errors.AsType[*dnswire.QueryError](err)
			if !ok {
				t.Fatalf("%+v, %v: want refusal", q, err)
			}
			if e.RCode != c.rcode || (e.Reply != nil) != c.reply {
				t.Fatalf("%v, reply %v: want %v, reply %v", e, e.Reply != nil, c.rcode, c.reply)
			}
			if !c.reply {
				return
			}
			m := unpack(t, e.Reply)
			if m.ID != 0x1234 || !m.Response || m.RCode != dnsmessage.RCode(c.rcode&0xf) || len(m.Answers) != 0 {
				t.Errorf("reply %+v", m)
			}
		})
	}
}

// unpack is the oracle for what is written: a message that dnsmessage reads to
// its end.
func unpack(t testing.TB, msg []byte) dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil {
		t.Fatalf("%q: %v", msg, err)
	}
	return m
}

func TestReplies(t *testing.T) {
	plain, edns := parse(t, head+okName+aIN), parse(t, headEDNS+okName+aIN+opt)
	synthetic := netip.MustParseAddr("198.18.1.1")
	for name, c := range map[string]struct {
		reply  []byte
		rcode  dnsmessage.RCode
		answer bool
		edns   bool
		ede    string
	}{
		"address":            {plain.Address(synthetic, time.Minute), 0, true, false, ""},
		"address, EDNS":      {edns.Address(synthetic, time.Minute), 0, true, true, ""},
		"no data":            {plain.NoData(time.Minute), 0, false, false, ""},
		"no data, EDNS":      {edns.NoData(time.Minute), 0, false, true, ""},
		"refusal":            {plain.Refuse(codes.DNSNameNotAllowed), 5, false, false, ""},
		"refusal, EDNS":      {edns.Refuse(codes.DNSNameNotAllowed), 5, false, true, "\x00\x12dns_name_not_allowed"},
		"label budget, EDNS": {edns.Refuse(codes.DNSLabelBudget), 5, false, true, "\x00\x12dns_label_budget"},
		"denied by a rule":   {edns.Refuse(codes.PolicyDenied), 5, false, true, "\x00\x0fpolicy_denied"},
		"no lease":           {edns.Refuse(codes.LeaseLapsed), 5, false, true, "\x00\x0elease_lapsed"},
		"type denied, EDNS":  {edns.Refuse(codes.DNSTypeDenied), 5, false, true, "\x00\x15dns_type_denied"},
		"other refusal":      {edns.Refuse(codes.RateLimited), 5, false, true, "\x00\x00rate_limited"},
		"no record":          {edns.Refuse(codes.JournalUnavailable), 5, false, true, "\x00\x0ejournal_unavailable"},
		"fault of ours":      {plain.Fail(codes.InternalError), 2, false, false, ""},
		"fault of ours,EDNS": {edns.Fail(codes.InternalError), 2, false, true, "\x00\x00internal_error"},
	} {
		t.Run(name, func(t *testing.T) {
			m := unpack(t, c.reply)
			if m.ID != 0x1234 || !m.Response || !m.RecursionAvailable || !m.RecursionDesired || m.Truncated || m.RCode != c.rcode {
				t.Errorf("header %+v", m.Header)
			}
			if len(m.Questions) != 1 || m.Questions[0].Name.String() != "oK.eXample." {
				t.Errorf("questions %v", m.Questions)
			}
			negative := c.rcode == 0 && !c.answer
			if (len(m.Answers) == 1) != c.answer || (len(m.Authorities) == 1) != negative || (len(m.Additionals) == 1) != c.edns {
				t.Fatalf("%d answers, %d authorities, %d additional", len(m.Answers), len(m.Authorities), len(m.Additionals))
			}
			if negative {
				checkSOA(t, m.Authorities[0], "oK.eXample.")
			}
			if c.answer {
				a, ok := m.Answers[0].Body.(*dnsmessage.AResource)
				if !ok || netip.AddrFrom4(a.A) != synthetic || m.Answers[0].Header.TTL != 60 || m.Answers[0].Header.Name.String() != "oK.eXample." {
					t.Errorf("answer %v", m.Answers[0].GoString())
				}
			}
			if c.edns {
				o := m.Additionals[0].Body.(*dnsmessage.OPTResource)
				switch {
				case c.ede == "" && len(o.Options) != 0:
					t.Errorf("options %v", o.GoString())
				case c.ede != "" && (len(o.Options) != 1 || o.Options[0].Code != 15 || string(o.Options[0].Data) != c.ede):
					t.Errorf("options %v", o.GoString())
				}
			}
		})
	}
}

// checkSOA checks what a stub keeps a negative answer by.
func checkSOA(t *testing.T, r dnsmessage.Resource, name string) {
	t.Helper()
	soa, ok := r.Body.(*dnsmessage.SOAResource)
	if !ok || r.Header.Name.String() != name || r.Header.TTL != 60 || soa.MinTTL != 60 || soa.NS.String() != name || soa.MBox.String() != "nobody.invalid." || soa.Serial != 1 {
		t.Errorf("authority %v", r.GoString())
	}
}

// TestLongestReply: whatever is asked for, the answer fits into what every stub
// takes over UDP, so that none has to be cut.
func TestLongestReply(t *testing.T) {
	long := strings.Repeat("\x3f"+strings.Repeat("a", 63), 3) + "\x3d" + strings.Repeat("b", 61) + "\x00"
	q := parse(t, headEDNS+long+aIN+opt)
	if len(long) != 255 {
		t.Fatalf("a name of %d", len(long))
	}
	replies := [][]byte{q.NoData(time.Minute), q.Address(netip.MustParseAddr("198.18.1.1"), time.Minute)}
	for _, e := range codes.Catalogue() {
		replies = append(replies, q.Refuse(e.Code), q.Fail(e.Code))
	}
	for _, r := range replies {
		if m := unpack(t, r); len(r) > 512 || m.Truncated {
			t.Errorf("%d bytes: %+v", len(r), m.Header)
		}
	}
}

// TestDNSSECOKIsGivenBack: the DO bit of a query is that of its answer, and no
// other flag is (RFC 6891 section 6.1.4).
func TestDNSSECOKIsGivenBack(t *testing.T) {
	for flags, want := range map[string]bool{"\x00\x00": false, "\x80\x00": true, "\x7f\xff": false, "\xff\xff": true} {
		q := parse(t, headEDNS+okName+aIN+"\x00\x00\x29\x04\xd0\x00\x00"+flags+"\x00\x00")
		for _, r := range [][]byte{q.NoData(time.Minute), q.Refuse(codes.DNSTypeDenied)} {
			h := unpack(t, r).Additionals[0].Header
			if h.DNSSECAllowed() != want || h.TTL&^0x8000 != 0 || h.Class != dnswire.UDPSize {
				t.Errorf("flags %x: OPT %v", flags, h.GoString())
			}
		}
	}
}

// FuzzParseQuery: what is accepted, dnsmessage reads too, with the same question
// and nothing else; the question's bytes come back in every reply; and what is
// refused has a reply that reads, or none.
func FuzzParseQuery(f *testing.F) {
	f.Add([]byte(head + okName + aIN))
	f.Add([]byte(headEDNS + okName + aIN + opt))
	f.Add([]byte(headEDNS + okName + "\x00\x1c\x00\x01" + opt[:10] + "\x08\x00\x0a\x00\x04abcd"))
	f.Add([]byte(head + "\x00" + aIN))
	f.Add([]byte(head + "\xc0\x0c" + aIN))
	f.Add([]byte(head + "\x05a.b\\c\x00" + aIN))
	f.Fuzz(func(t *testing.T, msg []byte) {
		q, err := dnswire.ParseQuery(msg)
		if err != nil {
			e, ok := errors.AsType[*dnswire.QueryError](err)
			if !ok || e.RCode == dnswire.Success {
				t.Fatalf("%v", err)
			}
			if e.Reply != nil {
				checkReply(t, e.Reply, msg)
			}
			return
		}
		replies := [][]byte{q.NoData(time.Minute), q.Refuse(codes.DNSTypeDenied), q.Address(netip.MustParseAddr("198.18.1.1"), time.Minute)}
		for _, reply := range replies {
			checkReply(t, reply, msg)
		}
		var m dnsmessage.Message
		if err := m.Unpack(msg); err != nil {
			if strings.Contains(q.Name, `\.`) {
				return // dnsmessage refuses a dot inside a label, which is no error on the wire
			}
			t.Fatalf("accepted %+v, dnsmessage: %v", q, err)
		}
		if len(m.Questions) != 1 || len(m.Answers)+len(m.Authorities) != 0 || len(m.Additionals) > 1 {
			t.Fatalf("accepted, dnsmessage sees %+v", m)
		}
		asked := m.Questions[0]
		if uint16(asked.Type) != uint16(q.Type) || uint16(asked.Class) != q.Class || m.ID != q.ID || (len(m.Additionals) == 1) != q.EDNS {
			t.Fatalf("read %+v, dnsmessage %+v", q, asked)
		}
		if h, err := names.Parse(asked.Name.String()); err == nil && h != q.Host {
			t.Fatalf("host %q, dnsmessage %q", q.Host, h)
		}
		// Packed again without compression, what was read is what there was.
		if again, err := m.Pack(); err != nil || (!q.EDNS && len(again) != len(msg)) {
			t.Fatalf("%d bytes, packed again %d (%v)", len(msg), len(again), err)
		}
		for _, reply := range replies {
			if got := unpack(t, reply).Questions; len(got) != 1 || got[0] != asked {
				t.Fatalf("reply to %+v asks %+v", asked, got)
			}
		}
	})
}

// checkReply checks what holds for every reply, also to what cannot be read.
func checkReply(t *testing.T, reply, msg []byte) {
	t.Helper()
	if len(reply) < 12 || len(reply) > 512 || !bytes.Equal(reply[:2], msg[:2]) || reply[2]&0x80 == 0 {
		t.Fatalf("reply %q to %q", reply, msg)
	}
}
