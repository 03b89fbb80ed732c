// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package siem_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"bawn/internal/audit"
	"bawn/internal/ids"
	"bawn/internal/siem"
	"bawn/internal/verdict"
)

var src = siem.Source{Series: "proxy", Version: "1.2"}

// hostile is text as an agent would write it to be taken for something else.
var hostile = []string{
	"a|b=c\\d", "x\ny=z", "r\r\nCEF:0|Other|Other|1|2|3|4|", "\x1b]52;c;YQ==\x07", "\u202egro", " act=allow cs1=admin", "\\", "=", "\u2028", "\x00", "\x7f\u009b", "\xff\xfe", "日本", "😀",
}

func entry(text string) audit.Entry {
	at := time.Date(2026, 11, 30, 12, 0, 0, 5e6, time.UTC)
	id := ids.Identity{Slot: 3, Session: "s-1", Agent: "dev", User: text}
	return audit.Entry{
		Decision: &audit.Decision{
			Seq: 7, Time: at, Request: "r-1", Identity: id, Revision: 4, Plane: "proxy", Client: "127.0.0.1:4711", Proto: "http/1.1",
			Method: "GET", Scheme: "https", Host: "api.example.com", Port: 8443, Path: "/" + text, Verdict: verdict.Allow, Rule: "coder.1", Detail: text,
		},
		Outcome: &audit.Outcome{Seq: 8, Time: at.Add(time.Second), Request: "r-1", Identity: id, Status: 200, BytesUp: 10, BytesDown: 20, Upstream: "203.0.113.7:443", Total: audit.Span(time.Second)},
	}
}

func entries(text string) []audit.Entry {
	e := entry(text)
	denied := entry(text)
	denied.Outcome, denied.Decision.Verdict, denied.Decision.Code = nil, verdict.Deny, "host_not_allowed"
	dns := entry(text)
	dns.Decision.Proto, dns.Decision.Method, dns.Decision.Scheme, dns.Decision.Path = "dns", "A", "", ""
	raw := entry(text)
	raw.Decision.Proto, raw.Decision.Method, raw.Decision.Scheme, raw.Decision.Path = "tcp", "", "", ""
	odd := entry(text)
	odd.Decision.Method = "PROPFIND"
	begun := &audit.Act{Seq: 1, Time: e.Decision.Time, ID: "a", Name: audit.ActPolicyApply, UID: 1000, Account: "alice", Detail: text, Object: text}
	ended := *begun
	ended.Result, ended.Revision = audit.ActDone, 5
	return []audit.Entry{
		e, denied, dns, raw, odd,
		{Summary: &audit.Summary{Seq: 9, Time: e.Decision.Time, From: e.Decision.Time, To: e.Decision.Time, Denials: 12, Identity: e.Decision.Identity}},
		{Act: begun, Result: &ended}, {Act: begun},
		{Gap: &audit.Gap{Seq: 11, Time: e.Decision.Time, Error: text, Refused: 3}},
		{Damage: &audit.Damage{File: "proxy-000000001-20261130.jsonl", Error: text}},
	}
}

// TestOCSFHasWhatTheSchemaRequires: the required attributes of the base event and
// of each class, in version 1.9.0, with their types.
func TestOCSFHasWhatTheSchemaRequires(t *testing.T) {
	wants := []struct{ class, activity float64 }{{4002, 3}, {4002, 3}, {4003, 1}, {4001, 6}, {4002, 99}, {4001, 5}, {6003, 3}, {6003, 3}, {0, 99}, {0, 99}}
	for i, e := range entries("plain") {
		text, err := siem.OCSF(e, src)
		if err != nil {
			t.Fatal(err)
		}
		var ev map[string]any
		if err := json.Unmarshal(text, &ev); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid"} {
			if ev[k] == nil {
				t.Errorf("%s: %s is missing", text, k)
			}
		}
		if ev["class_uid"] != wants[i].class || ev["activity_id"] != wants[i].activity || ev["type_uid"] != wants[i].class*100+wants[i].activity {
			t.Errorf("%d: class %v activity %v type %v", i, ev["class_uid"], ev["activity_id"], ev["type_uid"])
		}
		meta := ev["metadata"].(map[string]any)
		if meta["version"] != "1.9.0" || meta["product"].(map[string]any)["name"] != "Bawn" {
			t.Errorf("metadata %v", meta)
		}
		switch ev["class_uid"] {
		case 4002.0:
			r := ev["http_request"].(map[string]any)
			if r["url"].(map[string]any)["url_string"] != "https://api.example.com:8443/plain" {
				t.Errorf("request %v", r)
			}
		case 6003.0:
			if ev["actor"] == nil || ev["api"].(map[string]any)["operation"] != "policy.apply" || ev["src_endpoint"] == nil {
				t.Errorf("act %s", text)
			}
		}
		if ev["ai_agent"] != nil && ev["ai_agent"].(map[string]any)["uid"] != "dev" {
			t.Errorf("agent %v", ev["ai_agent"])
		}
	}
}

func TestI14OCSFIsInert(t *testing.T) {
	for _, h := range hostile {
		for _, e := range entries(h) {
			text, err := siem.OCSF(e, src)
			if err != nil || !json.Valid(text) {
				t.Fatalf("%q: %v", h, err)
			}
			for _, c := range text {
				if c < ' ' || c >= 0x7f {
					t.Errorf("%q: byte %#x", h, c)
				}
			}
		}
	}
}

// fieldForm is where a field of the extension begins.
var fieldForm = regexp.MustCompile(`(?:^| )([A-Za-z0-9]+)=`)

// parseCEF is a reader of its own: seven fields up to unescaped pipes, then keys
// in front of unescaped equals signs.
func parseCEF(line string) (head []string, fields map[string]string, err error) {
	var field strings.Builder
	i := 0
	for ; i < len(line) && len(head) < 7; i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line):
			i++
			field.WriteByte(line[i])
		case c == '|':
			head = append(head, field.String())
			field.Reset()
		default:
			field.WriteByte(c)
		}
	}
	if len(head) != 7 {
		return nil, nil, fmt.Errorf("%d fields in the header", len(head))
	}
	rest := line[i:]
	fields = map[string]string{}
	starts := fieldForm.FindAllStringSubmatchIndex(rest, -1)
	for n, s := range starts {
		end := len(rest)
		if n+1 < len(starts) {
			end = starts[n+1][0]
		}
		value := rest[s[1]:end]
		value = strings.NewReplacer(`\\`, `\`, `\=`, `=`, `\n`, "\n", `\r`, "\r").Replace(value)
		key := rest[s[2]:s[3]]
		if _, twice := fields[key]; twice {
			return nil, nil, fmt.Errorf("field %s twice", key)
		}
		fields[key] = value
	}
	return head, fields, nil
}

func TestI14CEFIsEscaped(t *testing.T) {
	for _, h := range append(hostile, "plain") {
		for _, e := range entries(h) {
			line := siem.CEF(e, src)
			head, fields, err := parseCEF(line)
			if err != nil {
				t.Fatalf("%q: %v in %s", h, err, line)
			}
			if head[0] != "CEF:0" || head[1] != "Bawn" || head[3] != "1.2" {
				t.Errorf("%q: header %q", h, head)
			}
			for _, r := range line {
				if r == '\n' || r == '\r' || !unicode.IsPrint(r) {
					t.Errorf("%q: %q in a line", h, r)
				}
			}
			if d := e.Decision; d != nil {
				want := strings.Map(func(r rune) rune {
					if unicode.IsPrint(r) || r == '\n' || r == '\r' {
						return r
					}
					return -1
				}, h)
				if got := fields["suser"]; fields["act"] != d.Verdict.String() || fields["cs1"] != "dev" || unicode.IsPrint([]rune(h)[0]) && strings.TrimSpace(got) != strings.TrimSpace(want) && want == h {
					t.Errorf("%q: act %q agent %q user %q", h, fields["act"], fields["cs1"], got)
				}
			}
		}
	}
}
