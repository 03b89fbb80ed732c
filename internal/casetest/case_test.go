// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bawn/internal/dnswire"
	"bawn/internal/verdict"
)

const web = "-- policy.yaml --\nversion: 1\nprofiles:\n  web: {rules: [{host: ok.example}]}\nagents:\n  dev: {profile: web}\n"

const tunnel = web + "-- connect --\nok.example:443\n"

const asks = web + "-- arrive --\ndns\n-- query --\n"

const socket = "-- policy.yaml --\nversion: 1\nprofiles:\n  web: {rules: [{host: ok.example, websocket: true}]}\nagents:\n  dev: {profile: web}\n-- connect --\nok.example:443\n" +
	"-- request --\nGET / HTTP/1.1\nHost: ok.example\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n" +
	"-- upstream --\nHTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\n"

const socketUp = "GET / HTTP/1.1\nHost: ok.example\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: *\n"

const get2 = "-- request --\n:method: GET\n:scheme: https\n:authority: ok.example\n:path: /\n"

const get = "-- request --\nGET / HTTP/1.1\nHost: ok.example\n"

// TestMalformed: what is not the format is an error, never a pass.
func TestMalformed(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"an unknown section":          {tunnel + "-- requests --\nx\n-- want --\nallow\n", "section requests: unknown section"},
		"a section twice":             {tunnel + "-- want --\nallow\n-- want --\ndeny\n", "section want: a second time"},
		"no policy":                   {"-- connect --\na:1\n-- want --\nallow\n", "section policy.yaml: missing"},
		"no want":                     {tunnel, "section want: missing"},
		"an empty want":               {tunnel + "-- want --\n\n", "section want: empty"},
		"an unknown verdict":          {tunnel + "-- want --\npermit\n", "wants allow, deny"},
		"an unknown code":             {tunnel + "-- want --\ndeny no_such_code\n", `"no_such_code" is no code`},
		"a code behind allow":         {tunnel + "-- want --\nallow host_not_allowed\n", "too many words"},
		"a status behind deny":        {tunnel + "-- want --\ndeny 1008\n", "1008 has no place here"},
		"an unknown arrival":          {web + "-- arrive --\nudp\n-- want --\nallow\n", "is none of connect"},
		"no authority":                {web + "-- want --\nallow\n", "section connect: missing"},
		"no request":                  {web + "-- arrive --\nabsolute\n-- want --\nallow\n", "section request: missing"},
		"no destination":              {web + "-- arrive --\ntransparent\n-- want --\nallow\n", "needs a line dst="},
		"a destination of CONNECT":    {tunnel + "dst=1.2.3.4:443\n-- want --\nallow\n", "dst and sni are for"},
		"an unknown line of connect":  {tunnel + "port=443\n-- want --\nallow\n", "neither sni=, alpn= nor dst="},
		"raw bytes without quotes":    {tunnel + "-- request.raw --\nGET /\n-- want --\nallow\n", "does not begin with a Go-quoted string"},
		"a bad repetition":            {tunnel + "-- request.raw --\n\"a\" x 3\n-- want --\nallow\n", "wants nothing or * N"},
		"a bomb":                      {tunnel + "-- request.raw --\n\"aaaaaaaaaaaaaaaa\" * 60000000\n-- want --\nallow\n", "more than"},
		"a line of dns":               {tunnel + "-- dns --\nok.example 1.2.3.4 5.6.7.8\n-- want --\nallow\n", "is none of NAME ADDRESS"},
		"an address that is none":     {tunnel + "-- dns --\nok.example 1.2.3\n-- want --\nallow\n", "is none of NAME ADDRESS"},
		"an unknown key of state":     {tunnel + "-- state --\nclock: 1\n-- want --\nallow\n", `unknown key "clock"`},
		"a time that is none":         {tunnel + "-- state --\ntime: today\n-- want --\nallow\n", "section state: time"},
		"messages before a request":   {tunnel + "-- messages --\n{}\n-- want --\nallow\n", "has to come first"},
		"messages over h2":            {tunnel + "alpn=h2\n-- request --\n:method: GET\n-- messages --\n{}\n-- want --\nallow\n", "has to come first"},
		"a message that is no JSON":   {tunnel + "-- messages --\n{\n-- want --\nallow\n", "is no JSON value"},
		"a query without a type":      {asks + "ok.example\n-- want --\nallow\n", "is not NAME TYPE"},
		"a query of no type":          {asks + "ok.example ADDRESS\n-- want --\nallow\n", "is no type of record"},
		"a query of no class":         {asks + "ok.example A INTERNET\n-- want --\nallow\n", "is no class"},
		"a query with an empty label": {asks + "ok..example A\n-- want --\nallow\n", "a label has 1 to 255 octets"},
		"a query with half an octet":  {asks + "ok\\06 A\n-- want --\nallow\n", "three digits"},
		"a query for a request":       {tunnel + "-- query --\nok.example A\n-- want --\nallow\n", "only arrive dns has queries"},
		"a request for a query":       {asks + "ok.example A\n-- request --\nGET / HTTP/1.1\n-- want --\nallow\n", "DNS has queries"},
		"queries over both":           {asks + "ok.example A\n-- request.raw --\n\"x\"\n-- want --\nallow\n", "one is for UDP"},
		"no query":                    {web + "-- arrive --\ndns\n-- want --\nallow\n", "needs a question"},
		"a connection for a query":    {asks + "ok.example A\n-- connect --\ndst=ok.example:53\n-- want --\nallow\n", "no place with arrive dns"},
		"HTTP/1.1 over h2":            {tunnel + "alpn=h2\n" + get + "-- want --\nallow\n", "beginning with :method"},
		"a broken string over h2":     {tunnel + "alpn=h2\n-- request --\n\":method: GET\n-- want --\nallow\n", "invalid syntax"},
		"no field over h2":            {tunnel + "alpn=h2\n-- request --\n:method\n-- want --\nallow\n", "lines NAME: VALUE"},
		"a state that is not a table": {tunnel + "-- state --\n- a\n-- want --\nallow\n", "section state"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("x.txtar", []byte(tc.text))
			if !errors.Is(err, ErrCase) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something with %q", err, tc.want)
			}
		})
	}
}

// TestFails: each thing that a case says can fail, and does so by itself.
func TestFails(t *testing.T) {
	env := testEnv(t)
	for name, tc := range map[string]struct{ text, want string }{
		"another verdict":               {tunnel + get + "-- want --\ndeny\n", "verdict 1: wanted deny, got allow"},
		"another code":                  {strings.ReplaceAll(tunnel, "ok.example:443", "no.example:443") + "-- want --\ndeny port_not_allowed\n", "wanted deny port_not_allowed, got deny host_not_allowed"},
		"too few verdicts":              {tunnel + get + "-- want --\nallow\nallow\n", "2 verdicts were wanted, 1 were given"},
		"too many verdicts":             {tunnel + get + get + "-- want --\nallow\n", "1 verdicts were wanted, 2 were given"},
		"another request line":          {tunnel + get + "-- forwarded --\nGET /x HTTP/1.1\nHost: ok.example\n-- want --\nallow\n", `wanted "GET /x", got "GET /"`},
		"a field too few":               {tunnel + get + "-- forwarded --\nGET / HTTP/1.1\nHost: ok.example\nA: b\n-- want --\nallow\n", `field "A: b" is missing`},
		"a field too many":              {tunnel + strings.TrimSuffix(get, "\n") + "\nA: b\n-- forwarded --\nGET / HTTP/1.1\nHost: ok.example\n-- want --\nallow\n", `field "A: b" was not wanted`},
		"another order of fields":       {tunnel + get + "A: b\nC: d\n-- forwarded --\nGET / HTTP/1.1\nHost: ok.example\nC: d\nA: b\n-- want --\nallow\n", `field 2: wanted "C: d", got "A: b"`},
		"another body":                  {tunnel + "-- request --\nPOST / HTTP/1.1\nHost: ok.example\n\nx\n-- forwarded --\nPOST / HTTP/1.1\nHost: ok.example\n\ny\n-- want --\nallow\n", `body: wanted "y", got "x"`},
		"nothing was to go up":          {tunnel + get + "-- forwarded --\n-- want --\nallow\n", "0 requests were to be forwarded, 1 were"},
		"something was to go up":        {tunnel + "-- request --\nGET /../x HTTP/1.1\nHost: ok.example\n-- forwarded --\nGET /x HTTP/1.1\nHost: ok.example\n-- want --\ndeny\n", "1 requests were to be forwarded, 0 were"},
		"a policy that is refused":      {strings.ReplaceAll(tunnel, "host: ok", "hots: ok") + "-- want --\ndeny\n", "the policy is refused"},
		"a policy that is accepted":     {tunnel + "-- want --\ndeny policy_invalid\n", "the policy is accepted"},
		"which agent":                   {strings.ReplaceAll(tunnel, "agents:", "agents:\n  two: {}") + "-- want --\nallow\n", "the policy has 2 agents"},
		"an answer without data":        {asks + "ok.example AAAA\n-- want --\nallow\n", "wanted allow, got nodata"},
		"an answer with data":           {asks + "ok.example A\n-- want --\nnodata\n", "wanted nodata, got allow"},
		"a name that is refused":        {asks + "no.example A\n-- want --\nnodata\n", "wanted nodata, got deny dns_name_not_allowed"},
		"messages without a WebSocket":  {tunnel + get + "-- messages --\n{}\n-- want --\nallow\nallow\n", "2 verdicts were wanted, 1 were given"},
		"another message":               {socket + "-- messages --\n{\"a\":1}\n-- forwarded --\n" + socketUp + "-- forwarded --\n{\"a\":2}\n-- want --\nallow\nallow\n", "forwarded message 1: wanted"},
		"a message too many":            {socket + "-- messages --\n{}\n{}\n-- forwarded --\n" + socketUp + "-- forwarded --\n{}\n-- want --\nallow\nallow\nallow\n", "1 messages were to be forwarded, 2 were"},
		"no messages":                   {socket + "-- messages --\n{}\n-- want --\nallow\n", "1 verdicts were wanted, 2 were given"},
		"another status of a close":     {socket + "-- request.raw --\n\"\\x83\\x80\\x00\\x00\\x00\\x00\"\n-- want --\nallow\nclose 1008\n", "wanted close 1008, got close websocket_protocol_error 1002"},
		"a broken rule is no denial":    {socket + "-- request.raw --\n\"\\x83\\x80\\x00\\x00\\x00\\x00\"\n-- want --\nallow\ndeny\n", "wanted deny, got close websocket_protocol_error 1002"},
		"another path over h2":          {tunnel + "alpn=h2\n" + get2 + "-- forwarded --\n:method: GET\n:scheme: https\n:authority: ok.example\n:path: /x\n-- want --\nallow\n", `wanted "GET /x", got "GET /"`},
		"another authority over h2":     {tunnel + "alpn=h2\n" + get2 + "-- forwarded --\n:method: GET\n:authority: no.example\n:path: /\n-- want --\nallow\n", `wanted authority "no.example"`},
		"another scheme over h2":        {tunnel + "alpn=h2\n" + get2 + "-- forwarded --\n:method: GET\n:scheme: http\n:authority: ok.example\n:path: /\n-- want --\nallow\n", `wanted scheme "http"`},
		"a field too many over h2":      {tunnel + "alpn=h2\n" + get2 + "a: b\n-- forwarded --\n:method: GET\n:authority: ok.example\n:path: /\n-- want --\nallow\n", `field "a: b" was not wanted`},
		"another body over h2":          {tunnel + "alpn=h2\n-- request --\n:method: POST\n:scheme: https\n:authority: ok.example\n:path: /\n\nx\n-- forwarded --\n:method: POST\n:authority: ok.example\n:path: /\n\ny\n-- want --\nallow\n", `body: wanted "y", got "x"`},
		"a stream too few":              {tunnel + "alpn=h2\n" + get2 + get2 + "-- want --\nallow\n", "1 verdicts were wanted, 2 were given"},
		"state of a guard":              {tunnel + get + "-- state --\npins: {openai: x}\n-- want --\nallow\n", "not yet supported: state pins"},
		"not supported, and want deny":  {tunnel + get + "-- state --\npins: {}\n-- want --\ndeny policy_invalid\n", "not yet supported"},
		"approval":                      {tunnel + get + "-- want --\nask\n", "wanted ask, got allow"},
		"a close":                       {tunnel + get + "-- want --\nclose 1008\n", "wanted close 1008, got allow"},
		"a destination of neither form": {web + "-- arrive --\ntransparent\n-- connect --\ndst=nonsense\n-- want --\ndeny\n", "neither ADDRESS:PORT nor NAME:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("x.txtar", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if r := Run(c, env); r.OK || !strings.Contains(r.Why, tc.want) {
				t.Errorf("ok %v, why %q; want something with %q", r.OK, r.Why, tc.want)
			}
		})
	}
}

func testEnv(t testing.TB) *Env {
	t.Helper()
	env, err := NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// TestIncoherentRecords: what the agent is told has to be what the record says,
// and what is refused must reach nobody.
func TestIncoherentRecords(t *testing.T) {
	c, err := Parse("x.txtar", []byte(strings.ReplaceAll(tunnel, "ok.example:443", "no.example:443")+"-- want --\ndeny\n"))
	if err != nil {
		t.Fatal(err)
	}
	run := &running{c: c, env: testEnv(t)}
	run.policy, run.agent = nil, "dev"
	run.client.told = append(run.client.told, answer{code: "port_not_allowed"})
	run.records.decisions = append(run.records.decisions, refusedDecision())
	r := Result{OK: true}
	run.judge(&r)
	if r.OK || !strings.Contains(r.Why, `the record says "host_not_allowed", the agent was told "port_not_allowed"`) {
		t.Errorf("told something else: %+v", r)
	}

	run.client.told = nil
	run.resolver.asked = []string{"no.example"}
	r = Result{OK: true}
	if run.judge(&r); r.OK || !strings.Contains(r.Why, "was asked for all the same") {
		t.Errorf("asked: %+v", r)
	}

	run.resolver.asked = nil
	run.upstream.requests = [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}
	r = Result{OK: true}
	if run.judge(&r); r.OK || !strings.Contains(r.Why, "1 requests were forwarded all the same") {
		t.Errorf("forwarded: %+v", r)
	}

	run.records.decisions[0].Verdict, run.records.decisions[0].Inspect = verdict.Allow, "full"
	run.upstream.requests = nil
	r = Result{OK: true}
	run.c.Want[0].Verdict = "allow"
	if run.judge(&r); r.OK || !strings.Contains(r.Why, "1 requests were allowed, 0 were forwarded") {
		t.Errorf("not forwarded: %+v", r)
	}
}

func TestMain(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good/a.txtar", tunnel+get+"-- want --\nallow\n")
	bad := write("bad/b.txtar", tunnel+get+"-- want --\ndeny\n")
	broken := write("broken/c.txtar", "-- nonsense --\n\x1b[2J\n")
	empty := filepath.Dir(write("empty/readme", ""))
	for name, tc := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"a case that passes":    {[]string{good}, 0, "1 case: 1 passed, 0 failed, 0 cannot be read"},
		"a case that fails":     {[]string{bad}, 1, "FAIL  " + bad + ": verdict 1: wanted deny, got allow"},
		"a file that is none":   {[]string{broken}, 2, "section nonsense: unknown section"},
		"a folder with all":     {[]string{dir}, 2, "3 cases: 1 passed, 1 failed, 1 cannot be read"},
		"one file named twice":  {[]string{good, filepath.Dir(good)}, 0, "1 case"},
		"a file that is absent": {[]string{filepath.Join(dir, "nothing.txtar")}, 2, "no such file"},
		"a folder without":      {[]string{empty}, 2, "no case file"},
		"no argument":           {nil, 2, "wants at least one"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if status := Main(tc.args, &out, &out); status != tc.status || !strings.Contains(out.String(), tc.want) {
				t.Errorf("status %d, want %d:\n%s\nwant %s", status, tc.status, out.String(), tc.want)
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Error("an escape of the file reaches the terminal")
			}
		})
	}
}

func TestMainJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txtar")
	text := strings.ReplaceAll(tunnel, "web: {rules: [{host: ok.example}]}", "web: {rules: [{host: ok.example, methods: [GET], id: only-get}]}")
	if err := os.WriteFile(file, []byte(text+get+"-- request --\nPUT /x HTTP/1.1\nHost: ok.example\n-- want --\nallow\ndeny method_not_allowed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if status := Main([]string{"-json", file}, &out, &out); status != 0 {
		t.Fatalf("status %d: %s", status, out.String())
	}
	want := `{"file":` + strconv.Quote(file) + `,"agent":"dev","results":[{"verdict":"allow","code":"","stage":"head","rule":"only-get"},{"verdict":"deny","code":"method_not_allowed","stage":"head","rule":""}],` +
		`"forwarded":"GET / HTTP/1.1\nHost: ok.example\n\n","wanted":["allow","deny method_not_allowed"],"ok":true,"why":""}` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
	if !json.Valid(out.Bytes()) {
		t.Error("not JSON")
	}
}

// TestNotationsMeet: what went up may be wanted in the notation of the other
// version of HTTP, which says the same.
func TestNotationsMeet(t *testing.T) {
	one := []byte("GET /a HTTP/1.1\r\nHost: ok.example\r\nAccept: x\r\n\r\n")
	two := []byte(":method: GET\r\n:scheme: https\r\n:authority: ok.example\r\n:path: /a\r\naccept: x\r\n\r\n")
	for name, tc := range map[string]struct {
		want, got []byte
		differ    bool
	}{
		"the same":         {two, two, false},
		"as HTTP/1.1":      {one, two, false},
		"as HTTP/2":        {two, one, false},
		"another host":     {bytes.ReplaceAll(one, []byte("ok."), []byte("no.")), two, true},
		"another field":    {bytes.ReplaceAll(two, []byte("accept: x"), []byte("accept: y")), one, true},
		"another method":   {bytes.ReplaceAll(one, []byte("GET"), []byte("PUT")), two, true},
		"chunks":           {[]byte(":method: POST\r\n:authority: a\r\n:path: /\r\n\r\nhello"), []byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"), false},
		"what is no field": {[]byte(":method: GET\r\nnonsense\r\n\r\n"), one, true},
	} {
		if why := differOne(tc.want, tc.got); (why != "") != tc.differ {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestMessage(t *testing.T) {
	for in, want := range map[string]string{
		"GET / HTTP/1.1\nHost: a":                              "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n":                            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n":                          "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\n\nx\n\ny":                            "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nx\n\ny",
		"POST / HTTP/1.1\nContent-Length: 9\n\nx":              "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx",
		"POST / HTTP/1.1\ntransfer-encoding: chunked\n\n0\n\n": "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\n\n",
	} {
		if got := string(message(in)); got != want {
			t.Errorf("message(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestCheckReply: an answer that says something else than the record is a fault,
// whichever of the two is right.
func TestCheckReply(t *testing.T) {
	const question = "\x02ok\x00\x00\x01\x00\x01"
	address := "\x00\x01\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + question + "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x12\x01\x01"
	empty := "\x00\x01\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00" + question
	refused := "\x00\x01\x81\x85\x00\x01\x00\x00\x00\x00\x00\x01" + question + "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x0a\x00\x0f\x00\x06\x00\x12code"
	for name, tc := range map[string]struct {
		v           Verdict
		reply, want string
	}{
		"an address":                {Verdict{Verdict: "allow"}, address, ""},
		"no data":                   {Verdict{Verdict: "allow"}, empty, ""},
		"a refusal":                 {Verdict{Verdict: "deny", Code: "code"}, refused, ""},
		"an address for a refusal":  {Verdict{Verdict: "deny", Code: "code"}, address, "the record says deny code, the answer is RCodeSuccess"},
		"a refusal of what may be":  {Verdict{Verdict: "allow"}, refused, "the record allows it"},
		"another code":              {Verdict{Verdict: "deny", Code: "other"}, refused, `the record says "other", the agent was told "code"`},
		"a refusal with an address": {Verdict{Verdict: "deny"}, strings.Replace(address, "\x81\x80", "\x81\x85", 1), "a refusal that holds an answer"},
		"half an answer":            {Verdict{Verdict: "allow"}, address[:len(address)-2], "cannot be read"},
	} {
		err := CheckReply(&tc.v, []byte(tc.reply))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := Replies([]byte("\x00\x02ab\x00\x05a")); err == nil {
		t.Error("an answer that is not whole was taken")
	}
}

// FuzzQuery: the message of a query line holds the name of the line, as the
// parser that enforces reads it.
func FuzzQuery(f *testing.F) {
	f.Add("ok.example A")
	f.Add(`o\.k\000.example. TYPE99 CLASS3`)
	f.Add(". NS")
	f.Fuzz(func(t *testing.T, line string) {
		q, err := parseQuery(line, 1)
		if err != nil {
			return
		}
		read, err := dnswire.ParseQuery(q.Message)
		if err != nil {
			return // a label or a name that is too long
		}
		again, err := parseQuery(fmt.Sprintf("%s TYPE%d CLASS%d", read.Name, uint16(read.Type), read.Class), 1)
		if err != nil || !bytes.Equal(again.Message, q.Message) {
			t.Fatalf("%q reads back as %q: %v", line, read.Name, err)
		}
	})
}

// FuzzH2Request: the notation of a head of HTTP/2 says exactly its fields.
func FuzzH2Request(f *testing.F) {
	f.Add(":method", "GET", "body")
	f.Add("a\r\n", "b: c", "")
	f.Fuzz(func(t *testing.T, name, value, body string) {
		if name == "" || strings.Contains(name[1:], ":") || name == ":" {
			return
		}
		q, err := h2Request(strconv.Quote(name+": "+value) + "\n\n" + body)
		if err != nil || len(q.Fields) != 1 || q.Fields[0].Name != name || q.Fields[0].Value != value || string(q.Body) != body {
			t.Fatalf("%q: %q and %q read as %+v, %v", name, value, body, q, err)
		}
	})
}

// FuzzRaw: the notation of raw bytes says exactly the bytes.
func FuzzRaw(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\x00\xff\"\\"), uint8(3))
	f.Fuzz(func(t *testing.T, raw []byte, n uint8) {
		got, err := rawBytes(strconv.Quote(string(raw)) + " * " + strconv.Itoa(int(n)) + "\n" + strconv.QuoteToASCII(string(raw)))
		if want := bytes.Repeat(raw, int(n)+1); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}

// FuzzParse: what is accepted has a policy and wants something, and what is
// refused says so with ErrCase.
func FuzzParse(f *testing.F) {
	f.Add([]byte(tunnel + get + "-- want --\nallow\n"))
	f.Add([]byte(web + "-- arrive --\ntransparent\n-- connect --\ndst=ok.example:443\nsni=\n-- dns --\na.example CNAME b.example\n-- want --\nclose 1008\n"))
	f.Add([]byte(web + "-- state --\ntime: 2026-01-01T00:00:00Z\n-- want --\ndeny policy_invalid\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("x", data)
		if err != nil {
			if !errors.Is(err, ErrCase) {
				t.Fatalf("error without ErrCase: %v", err)
			}
			return
		}
		if c.Policy == "" || len(c.Want) == 0 {
			t.Fatalf("accepted without policy or want: %+v", c)
		}
		for _, w := range c.Want {
			again, err := parseWant(strings.Fields(w.String()))
			if err != nil || again != w {
				t.Fatalf("want line %q reads back as %+v, %v", w, again, err)
			}
		}
	})
}
