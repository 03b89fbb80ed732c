// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"bawn/internal/casetest/talk"
	"bawn/internal/codes"
	"bawn/internal/names"
)

// The ways to arrive.
const (
	arriveConnect     = "connect"
	arriveAbsolute    = "absolute"
	arriveTransparent = "transparent"
	arriveTCP         = "tcp"
	arriveDNS         = "dns"
)

// A Case is one case file as read.
type Case struct {
	File    string
	Comment string
	Policy  string
	Agent   string // "" for the only agent of the policy
	Arrive  string

	Authority  string // first line of a connect section
	ConnectRaw []byte // nil when not given
	SNI        *string
	ALPN       []string
	Dst        string // ADDRESS:PORT or NAME:PORT; "" when not given

	Streams   [][]byte       // what the client sends, a section each
	H2        []talk.Request // the same where the client speaks HTTP/2
	Messages  []Message      // of a WebSocket, which the last of them opened
	Queries   []Query
	DNS       []dnsLine
	Upstream  []byte    // response that the pretend upstream gives; nil for the default
	Time      time.Time // zero: the time of the run
	Used      []Used    // of budgets, before the case
	Forwarded [][]byte  // nil: not checked
	Want      []Want

	lastForwarded string // section as it stands

	// Unsupported names what this build cannot run; then the case fails.
	Unsupported []string
}

// A Message is a text message of a WebSocket client.
type Message struct {
	Text  string
	After int // how many streams come before it
}

// A Want is one line of the want section.
type Want struct {
	Verdict string     // allow, deny, ask, close, nodata
	Code    codes.Code // "" for any
	Status  string     // of close: 1002, 1007, 1008 or ""
}

// String gives the line.
func (w Want) String() string {
	return strings.TrimSpace(strings.Join(strings.Fields(w.Verdict+" "+string(w.Code)+" "+w.Status), " "))
}

// ErrCase is in the error of every case file that is not one.
var ErrCase = errors.New("not a case file")

// section gives a section its reader. once says that it may stand once.
type section struct {
	name string
	once bool
	read func(*Case, string) error
}

// sections lists every section of the format.
func sections() []section {
	return []section{
		{"policy.yaml", true, func(c *Case, s string) error { c.Policy = s + "\n"; return nil }},
		{"agent", true, func(c *Case, s string) error { c.Agent = strings.TrimSpace(s); return nil }},
		{"arrive", true, (*Case).readArrive},
		{"connect", true, (*Case).readConnect},
		{"connect.raw", true, (*Case).readConnectRaw},
		{"request", false, (*Case).readRequest},
		{"request.raw", false, (*Case).readRequestRaw},
		{"messages", false, (*Case).readMessages},
		{"query", false, (*Case).readQuery},
		{"dns", true, (*Case).readDNS},
		{"upstream", true, (*Case).readUpstream},
		{"state", true, (*Case).readState},
		{"forwarded", false, (*Case).readForwarded},
		{"want", true, (*Case).readWant},
	}
}

// Parse reads a case file. The error wraps [ErrCase].
func Parse(file string, data []byte) (*Case, error) {
	c := &Case{File: file, Arrive: arriveConnect}
	archive := txtar.Parse(data)
	c.Comment = strings.TrimSpace(string(archive.Comment))
	seen := map[string]bool{}
	// The way of arrival decides how connect and forwarded are read.
	files := slices.Clone(archive.Files)
	slices.SortStableFunc(files, func(a, b txtar.File) int { return early(a.Name) - early(b.Name) })
	for _, f := range files {
		i := slices.IndexFunc(sections(), func(s section) bool { return s.name == f.Name })
		if i < 0 {
			return nil, c.malformed(f.Name, "unknown section")
		}
		s := sections()[i]
		if s.once && seen[s.name] {
			return nil, c.malformed(f.Name, "a second time")
		}
		seen[s.name] = true
		// One final newline is dropped; txtar has added one where there was none.
		if err := s.read(c, strings.TrimSuffix(string(f.Data), "\n")); err != nil {
			return nil, c.malformed(f.Name, err.Error())
		}
	}
	for _, name := range []string{"policy.yaml", "want"} {
		if !seen[name] {
			return nil, c.malformed(name, "missing")
		}
	}
	return c, c.complete()
}

// early orders the sections that others depend on first.
func early(name string) int {
	return map[string]int{"arrive": -2, "connect": -1}[name]
}

func (c *Case) malformed(section, why string) error {
	return fmt.Errorf("%s: %w: section %s: %s", c.File, ErrCase, section, why)
}

// complete checks what no single section can know.
func (c *Case) complete() error {
	refused := len(c.Want) == 1 && c.Want[0].Code == codes.PolicyInvalid
	switch {
	case refused:
	case len(c.Messages) > 0 && (c.Messages[0].After == 0 || c.Arrive == arriveTCP || c.speaksH2()):
		return c.malformed("messages", "a request that opens a WebSocket has to come first")
	case len(c.Unsupported) > 0:
	case c.Arrive == arriveConnect && c.Authority == "" && c.ConnectRaw == nil:
		return c.malformed("connect", "missing: arrive connect needs the authority")
	case c.Arrive == arriveConnect && c.Dst != "", c.Arrive == arriveAbsolute && (c.Dst != "" || c.SNI != nil):
		return c.malformed("connect", "dst and sni are for transparent and tcp, sni for connect too")
	case c.Arrive == arriveAbsolute && len(c.Streams) == 0:
		return c.malformed("request", "missing: arrive absolute needs one")
	case c.Arrive == arriveDNS:
		return c.completeDNS()
	case len(c.Queries) > 0:
		return c.malformed("query", "only arrive dns has queries")
	case (c.Arrive == arriveTransparent || c.Arrive == arriveTCP) && c.Dst == "":
		return c.malformed("connect", "missing: arrive "+c.Arrive+" needs a line dst=ADDRESS:PORT or dst=NAME:PORT")
	}
	return nil
}

func (c *Case) completeDNS() error {
	switch {
	case len(c.Queries) == 0 && len(c.Streams) == 0:
		return c.malformed("query", "missing: arrive dns needs a question")
	case len(c.Queries) > 0 && len(c.Streams) > 0:
		return c.malformed("query", "stands beside request.raw: one is for UDP, the other for TCP")
	case c.Dst != "" || c.SNI != nil || c.ALPN != nil || c.Authority != "":
		return c.malformed("connect", "has no place with arrive dns")
	}
	return nil
}

func (c *Case) readArrive(s string) error {
	switch s = strings.TrimSpace(s); s {
	case arriveConnect, arriveAbsolute, arriveTransparent, arriveTCP, arriveDNS:
	default:
		return fmt.Errorf("%q is none of connect, absolute, transparent, tcp, dns", s)
	}
	c.Arrive = s
	return nil
}

func (c *Case) readConnect(s string) error {
	for i, line := range strings.Split(s, "\n") {
		if line == "" && i > 0 {
			continue
		}
		key, value, isOption := strings.Cut(line, "=")
		switch {
		case isOption && key == "sni":
			c.SNI = &value
		case isOption && key == "alpn":
			c.ALPN = strings.Split(value, ",")
		case isOption && key == "dst":
			c.Dst = value
		case i == 0 && c.Arrive == arriveConnect:
			c.Authority = line
		case i == 0 && c.Arrive != arriveAbsolute:
			c.Dst = line
		default:
			return fmt.Errorf("line %q is neither sni=, alpn= nor dst=", line)
		}
	}
	return nil
}

func (c *Case) readConnectRaw(s string) error {
	raw, err := rawBytes(s)
	c.ConnectRaw = raw
	return err
}

func (c *Case) readRequest(s string) error {
	switch c.Arrive {
	case arriveDNS:
		return errors.New("DNS has queries: section query, or request.raw for the bytes of a TCP connection")
	case arriveTCP:
		c.Streams = append(c.Streams, []byte(s))
		return nil
	}
	if c.speaksH2() {
		q, err := h2Request(s)
		c.H2 = append(c.H2, q)
		return err
	}
	c.Streams = append(c.Streams, message(s))
	return nil
}

func (c *Case) readRequestRaw(s string) error {
	raw, err := rawBytes(s)
	if c.speaksH2() {
		c.H2 = append(c.H2, talk.Request{Raw: raw})
	} else {
		c.Streams = append(c.Streams, raw)
	}
	return err
}

// speaksH2 reports whether the client of the case speaks HTTP/2.
func (c *Case) speaksH2() bool { return slices.Contains(c.ALPN, "h2") }

// sent counts what the client sends.
func (c *Case) sent() int { return len(c.Streams) + len(c.H2) + len(c.Messages) }

// Frames is what the client sends after the nth stream, if that has opened a
// WebSocket.
func (c *Case) Frames(n int) []talk.Frame {
	var list []talk.Frame
	messages := c.Messages
	for i := n + 1; i <= len(c.Streams); i++ {
		for len(messages) > 0 && messages[0].After <= i {
			list = append(list, talk.Frame{Message: messages[0].Text})
			messages = messages[1:]
		}
		if i < len(c.Streams) {
			list = append(list, talk.Frame{Raw: c.Streams[i]})
		}
	}
	return list
}

func (c *Case) readMessages(s string) error {
	for line := range strings.SplitSeq(s, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if !json.Valid([]byte(line)) {
			return fmt.Errorf("line %.40q is no JSON value", line)
		}
		c.Messages = append(c.Messages, Message{Text: line, After: len(c.Streams)})
	}
	return nil
}

func (c *Case) readQuery(s string) error {
	for line := range strings.SplitSeq(s, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		q, err := parseQuery(line, len(c.Queries)+1)
		if err != nil {
			return err
		}
		c.Queries = append(c.Queries, q)
	}
	return nil
}

func (c *Case) readForwarded(s string) error {
	c.lastForwarded = s
	if strings.HasPrefix(s, `"`) {
		raw, err := rawBytes(s)
		c.Forwarded = append(c.Forwarded, raw)
		return err
	}
	if c.Arrive == arriveTCP || s == "" {
		c.Forwarded = append(c.Forwarded, []byte(s))
		return nil
	}
	if strings.HasPrefix(s, ":") {
		head, body, _ := strings.Cut(s, "\n\n")
		head = strings.ReplaceAll(strings.TrimSuffix(head, "\n"), "\n", "\r\n")
		c.Forwarded = append(c.Forwarded, []byte(head+"\r\n\r\n"+body))
		return nil
	}
	c.Forwarded = append(c.Forwarded, message(s))
	return nil
}

// readUpstream reads what the pretend server answers; of another protocol than
// HTTP, what it says first.
func (c *Case) readUpstream(s string) (err error) {
	switch {
	case c.Arrive == arriveTCP && strings.HasPrefix(s, `"`):
		c.Upstream, err = rawBytes(s)
	case c.Arrive == arriveTCP:
		c.Upstream = []byte(s)
	default:
		c.Upstream = responses(s)
	}
	return err
}

func (c *Case) readDNS(s string) error {
	for line := range strings.SplitSeq(s, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		d, err := parseDNSLine(line)
		if err != nil {
			return err
		}
		c.DNS = append(c.DNS, d)
	}
	return nil
}

// readState reads the state. What this build has no part for is not supported.
func (c *Case) readState(s string) error {
	var state map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(s), &state); err != nil {
		return err
	}
	for key, node := range state {
		switch key {
		case "time":
			t, err := time.Parse(time.RFC3339Nano, node.Value)
			if err != nil {
				return fmt.Errorf("time: %w", err)
			}
			c.Time = t
		case "budgets":
			if err := c.readUsed(&node); err != nil {
				return fmt.Errorf("budgets: %w", err)
			}
		case "pins", "credentials", "placeholders", "registries", "attestations":
			c.Unsupported = append(c.Unsupported, "state "+key)
		default:
			return fmt.Errorf("unknown key %q", key)
		}
	}
	slices.Sort(c.Unsupported)
	return nil
}

func (c *Case) readWant(s string) error {
	for line := range strings.SplitSeq(s, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		w, err := parseWant(words)
		if err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		c.Want = append(c.Want, w)
	}
	if len(c.Want) == 0 {
		return errors.New("empty")
	}
	return nil
}

func parseWant(words []string) (Want, error) {
	w := Want{Verdict: words[0]}
	rest := words[1:]
	most := map[string]int{"allow": 0, "nodata": 0, "deny": 1, "ask": 1, "close": 2}
	n, known := most[w.Verdict]
	if !known {
		return Want{}, errors.New("wants allow, deny, ask, close or nodata first")
	}
	if len(rest) > n {
		return Want{}, errors.New("too many words")
	}
	for _, word := range rest {
		switch {
		case word == "1002" || word == "1007" || word == "1008":
			if w.Verdict != "close" || w.Status != "" {
				return Want{}, fmt.Errorf("%s has no place here", word)
			}
			w.Status = word
		case w.Code != "" || w.Status != "":
			return Want{}, errors.New("a code has to come second")
		default:
			if _, ok := codes.Lookup(codes.Code(word)); !ok && !providerCode(word) {
				return Want{}, fmt.Errorf("%q is no code", word)
			}
			w.Code = codes.Code(word)
		}
	}
	return w, nil
}

// providerCode reports whether word has the form of a code that a provider
// guard of a later build brings.
func providerCode(word string) bool {
	provider, rest, ok := strings.Cut(word, "_")
	if !ok || provider == "" {
		return false
	}
	for _, p := range codes.Patterns() {
		if slices.Contains(p.Suffixes, rest) {
			return true
		}
	}
	return false
}

// dstName splits dst=NAME:PORT; ok is false for an address.
func dstName(dst string) (host names.Host, port uint16, ok bool) {
	a, err := names.ParseAuthority(dst)
	if err != nil || a.IsIP() || !a.HasPort {
		return names.Host{}, 0, false
	}
	return a.Host, a.Port, true
}
