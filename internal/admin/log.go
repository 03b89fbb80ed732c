// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/session"
	"bawn/internal/verdict"
)

func stream(w http.ResponseWriter, q *http.Request, entries iter.Seq2[audit.Entry, error]) error {
	w.Header().Set("Content-Type", "application/jsonl")
	out := http.NewResponseController(w)
	out.Flush() // a follower knows at once that it is heard
	enc := json.NewEncoder(w)
	for e, err := range entries {
		if q.Context().Err() != nil {
			return nil
		}
		if err != nil {
			return enc.Encode(map[string]string{"error": err.Error()})
		}
		if enc.Encode(e) != nil || out.Flush() != nil {
			return nil // the reader has gone
		}
	}
	return nil
}

// filterKeys are the query parameters of the log.
var filterKeys = []string{
	"agent", "user", "session", "host", "verdict", "code", "plane", "rule", "method", "path", "request", "client", "status", "upstream",
	"since", "until", "limit", "follow",
}

func parseFilter(q url.Values) (f audit.Filter, follow bool, err error) {
	for k := range q {
		if !slices.Contains(filterKeys, k) || len(q[k]) != 1 {
			return f, false, badRequest("log: filter %q is unknown or given twice", k)
		}
	}
	f.Agent, f.User, f.Session = q.Get("agent"), q.Get("user"), q.Get("session")
	f.Plane, f.Rule, f.Method, f.Path, f.Request = q.Get("plane"), q.Get("rule"), q.Get("method"), q.Get("path"), q.Get("request")
	if f.Client, err = filterAddress("client", q.Get("client")); err != nil {
		return f, false, err
	}
	if f.Upstream, err = filterAddress("upstream", q.Get("upstream")); err != nil {
		return f, false, err
	}
	if n := q.Get("status"); n != "" {
		if f.Status, err = strconv.Atoi(n); err != nil || f.Status < 100 || f.Status > 999 {
			return f, false, badRequest("log: status %q is not a status of HTTP", n)
		}
	}
	if f.Agent == "" {
		f.Except = session.Doctor // Bawn's own attacks on itself are not the operator's question
	}
	if f.Host, err = filterHost(q.Get("host")); err != nil {
		return f, false, err
	}
	if f.Verdict, err = filterVerdict(q.Get("verdict")); err != nil {
		return f, false, err
	}
	if f.Code, err = filterCode(q.Get("code")); err != nil {
		return f, false, err
	}
	if f.Since, err = filterTime("since", q.Get("since")); err != nil {
		return f, false, err
	}
	if f.Until, err = filterTime("until", q.Get("until")); err != nil {
		return f, false, err
	}
	if n := q.Get("limit"); n != "" {
		if f.Limit, err = strconv.Atoi(n); err != nil || f.Limit < 0 {
			return f, false, badRequest("log: limit %q is not a number", n)
		}
	}
	return f, q.Get("follow") == "true", nil
}

// filterAddress brings an address, or an address and port, into the form that
// records hold.
func filterAddress(key, s string) (string, error) {
	if s == "" {
		return "", nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().String(), nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Port() == 0 {
		return "", badRequest("log: %s %q is not ADDRESS or ADDRESS:PORT", key, s)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String(), nil
}

// filterHost brings a name into the form that records hold.
func filterHost(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	h, err := names.Parse(s)
	if err != nil {
		return "", &apitype.Error{
			Status: http.StatusBadRequest, Message: fmt.Sprintf("log: host: %v", err),
			Hint: `--host takes one exact name; "bawn log --by host" shows all of them`,
		}
	}
	return h.String(), nil
}

func filterVerdict(s string) (*verdict.Effect, error) {
	for _, e := range []verdict.Effect{verdict.Deny, verdict.Allow, verdict.Ask} {
		if s == e.String() {
			return &e, nil
		}
	}
	if s == "" {
		return nil, nil
	}
	return nil, badRequest("log: verdict %q is not allow, deny or ask", s)
}

// filterCode wants a code that there is: a misspelt one would show nothing, as
// if nothing had been refused.
func filterCode(s string) (codes.Code, error) {
	code := codes.Code(s)
	if _, ok := codes.Lookup(code); !ok && s != "" {
		return "", &apitype.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("log: there is no code %q", s), Hint: `one exact code; "bawn codes" lists all, "bawn log --by code" those that came up`}
	}
	return code, nil
}

func filterTime(key, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, badRequest("log: %s %q is not a time (RFC 3339)", key, s)
	}
	return t, nil
}
