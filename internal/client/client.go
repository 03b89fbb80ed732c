// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client speaks the API on admin.sock. The command line and the planes
// have no other way to admin, so nothing can be done that the API cannot.
//
// Every error that admin answered is an [*apitype.Error]; when admin cannot be
// reached the error names the socket and what to do. A Client may be used by
// many goroutines.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/hindsight"
)

// A Client asks one admin.
type Client struct {
	sock string
	http *http.Client
}

// New returns a client of the admin that listens on the socket named sock. It
// does not connect.
func New(sock string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", sock)
	}
	return &Client{sock: sock, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// maxReply bounds what is read of one answer that is not a stream.
const maxReply = 16 << 20

// call sends in (nil: no body) and reads the answer into out (nil: ignored).
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	dec := json.NewDecoder(io.LimitReader(resp.Body, maxReply))
	if err := dec.Decode(out); err != nil {
		return fmt.Errorf("reading the answer of %s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://admin"+apitype.Prefix+path, body)
	if err != nil {
		return nil, fmt.Errorf("making %s %s: %w", method, path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, answered(resp)
	}
	return resp, nil
}

// answered reads the error that admin answered with.
func answered(resp *http.Response) error {
	e := &apitype.Error{Status: resp.StatusCode}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if json.Unmarshal(text, e) != nil || e.Message == "" {
		e.Message = fmt.Sprintf("admin answered %s", resp.Status)
	}
	return e
}

// unreachable names the socket and the likely fix.
func (c *Client) unreachable(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // its own text names an address that means nothing
	}
	answer := &apitype.Error{}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		answer.Message = fmt.Sprintf("Bawn does not run: nothing listens on %s", c.sock)
		answer.Hint = `start it with "bawn up" or "systemctl start bawn.target", as root; where it was started with --root, this needs the same --root`
	case errors.Is(err, fs.ErrPermission):
		answer.Message = fmt.Sprintf("asking admin on %s: permission denied", c.sock)
		answer.Hint = "only root and members of group bawn may ask; a new membership counts from the next login"
		answer.Status = http.StatusForbidden
	default:
		return fmt.Errorf("asking admin on %s: %w", c.sock, err)
	}
	return answer
}

// Status asks for the state of the installation.
func (c *Client) Status(ctx context.Context) (s apitype.Status, err error) {
	return s, c.call(ctx, "GET", "/status", nil, &s)
}

// Agents lists the registered agents.
func (c *Client) Agents(ctx context.Context) (list []apitype.Agent, err error) {
	return list, c.call(ctx, "GET", "/agents", nil, &list)
}

// CreateAgent registers an agent and makes its account.
func (c *Client) CreateAgent(ctx context.Context, a apitype.CreateAgent) (out apitype.Agent, err error) {
	return out, c.call(ctx, "POST", "/agents", a, &out)
}

// RemoveAgent removes an agent, its account and its files.
func (c *Client) RemoveAgent(ctx context.Context, name string) error {
	return c.call(ctx, "DELETE", "/agents/"+url.PathEscape(name), nil, nil)
}

// ApplyPolicy makes a new revision and returns once it is in force.
func (c *Client) ApplyPolicy(ctx context.Context, a apitype.ApplyPolicy) (out apitype.Applied, err error) {
	return out, c.call(ctx, "POST", "/policy", a, &out)
}

// CheckPolicy checks a policy as ApplyPolicy does, and changes nothing.
func (c *Client) CheckPolicy(ctx context.Context, a apitype.CheckPolicy) (out apitype.Checked, err error) {
	return out, c.call(ctx, "POST", "/policy/check", a, &out)
}

// ReplayPolicy asks what a policy would make of what is on record.
func (c *Client) ReplayPolicy(ctx context.Context, a apitype.ReplayPolicy) (out hindsight.Report, err error) {
	return out, c.call(ctx, "POST", "/policy/replay", a, &out)
}

// SuggestPolicy asks which rules would allow what was denied since a time, to one
// agent or with an empty name to all.
func (c *Client) SuggestPolicy(ctx context.Context, agent string, since time.Time) (out hindsight.Suggestions, err error) {
	q := url.Values{"since": {since.UTC().Format(time.RFC3339Nano)}}
	if agent != "" {
		q.Set("agent", agent)
	}
	return out, c.call(ctx, "GET", "/policy/suggest?"+q.Encode(), nil, &out)
}

// RollbackPolicy applies the text of an old revision as a new one.
func (c *Client) RollbackPolicy(ctx context.Context, r apitype.RollbackPolicy) (out apitype.Applied, err error) {
	return out, c.call(ctx, "POST", "/policy/rollback", r, &out)
}

// Policy returns a revision with its text; 0 asks for the one in force.
func (c *Client) Policy(ctx context.Context, revision uint64) (r apitype.Revision, err error) {
	return r, c.call(ctx, "GET", "/policy?revision="+strconv.FormatUint(revision, 10), nil, &r)
}

// Revisions lists all revisions without their texts, newest first.
func (c *Client) Revisions(ctx context.Context) (list []apitype.Revision, err error) {
	return list, c.call(ctx, "GET", "/policy/revisions", nil, &list)
}

// EffectivePolicy returns the compiled policy as text, with the origin of each
// line.
func (c *Client) EffectivePolicy(ctx context.Context) (t apitype.Text, err error) {
	return t, c.call(ctx, "GET", "/policy/effective", nil, &t)
}

// ExplainPolicy judges one request by the policy in force.
func (c *Client) ExplainPolicy(ctx context.Context, e apitype.ExplainPolicy) (out apitype.Explained, err error) {
	return out, c.call(ctx, "POST", "/policy/explain", e, &out)
}

// AddGrant gives an agent a rule for a time, and returns once it is in force.
func (c *Client) AddGrant(ctx context.Context, g apitype.AddGrant) (out apitype.Grant, err error) {
	return out, c.call(ctx, "POST", "/grants", g, &out)
}

// Grants lists the grants in force, or all that there ever were, oldest first.
func (c *Client) Grants(ctx context.Context, all bool) (list []apitype.Grant, err error) {
	return list, c.call(ctx, "GET", "/grants?all="+strconv.FormatBool(all), nil, &list)
}

// RevokeGrant ends a grant before its time.
func (c *Client) RevokeGrant(ctx context.Context, id string) error {
	return c.call(ctx, "DELETE", "/grants/"+url.PathEscape(id), nil, nil)
}

// Doctor runs the self-test and waits for its result.
func (c *Client) Doctor(ctx context.Context) (d apitype.Doctor, err error) {
	return d, c.call(ctx, "POST", "/doctor", nil, &d)
}

// A Stream is a log on its way, as JSON lines. Who got it closes it.
type Stream struct {
	io.ReadCloser
	More string // where the page before begins; empty: there is none
	Note string // in which way the answer is not all that there is
}

// Log streams records; query holds the filters.
func (c *Client) Log(ctx context.Context, query url.Values) (*Stream, error) {
	resp, err := c.send(ctx, "GET", "/log?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return &Stream{resp.Body, resp.Header.Get(apitype.HeadMore), resp.Header.Get(apitype.HeadNote)}, nil
}

// LogTotals adds up records by what the query says under by, such as
// "agent,code".
func (c *Client) LogTotals(ctx context.Context, query url.Values) (t apitype.Totals, err error) {
	return t, c.call(ctx, "GET", "/log/totals?"+query.Encode(), nil, &t)
}

// Usage adds up records by agent and host.
func (c *Client) Usage(ctx context.Context, query url.Values) (t apitype.Totals, err error) {
	return t, c.call(ctx, "GET", "/usage?"+query.Encode(), nil, &t)
}

// Who asks for the sessions behind an address.
func (c *Client) Who(ctx context.Context, query url.Values) (w apitype.Who, err error) {
	return w, c.call(ctx, "GET", "/who?"+query.Encode(), nil, &w)
}

// Report asks what agents did in a time.
func (c *Client) Report(ctx context.Context, query url.Values) (r apitype.Report, err error) {
	return r, c.call(ctx, "GET", "/report?"+query.Encode(), nil, &r)
}

// Backup asks for admin's part of a backup, an archive. The caller closes the
// stream.
func (c *Client) Backup(ctx context.Context, ask apitype.MakeBackup) (io.ReadCloser, error) {
	resp, err := c.send(ctx, "POST", "/backup", ask)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Lease is one beat of a plane.
func (c *Client) Lease(ctx context.Context, ask apitype.LeaseAsk) (a apitype.LeaseAnswer, err error) {
	return a, c.call(ctx, "POST", "/plane/lease", ask, &a)
}

// SignIntermediate has the root sign a plane's intermediate.
func (c *Client) SignIntermediate(ctx context.Context, csr []byte) (s apitype.Signed, err error) {
	return s, c.call(ctx, "POST", "/plane/intermediate", apitype.SignIntermediate{CSR: csr}, &s)
}

// Anchors returns the newest checkpoints of all journals.
func (c *Client) Anchors(ctx context.Context) (a apitype.Anchors, err error) {
	return a, c.call(ctx, "GET", "/audit/anchors", nil, &a)
}

// ExportAudit streams an export; take is called for each of its files. An export
// that is cut off or failed on the way is an error.
func (c *Client) ExportAudit(ctx context.Context, ask apitype.ExportAudit, take func(name string, r io.Reader) error) (end apitype.ExportEnd, err error) {
	resp, err := c.send(ctx, "POST", "/audit/export", ask)
	if err != nil {
		return end, err
	}
	defer resp.Body.Close()
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return end, fmt.Errorf("reading the export: %w", err)
	}
	parts := multipart.NewReader(resp.Body, params["boundary"])
	for {
		p, err := parts.NextRawPart()
		if err != nil {
			return end, fmt.Errorf("reading the export: it is cut off: %w", err)
		}
		name := p.Header.Get("X-Bawn-File")
		if name != "end" {
			if err := take(name, p); err != nil {
				return end, err
			}
			continue
		}
		if err := json.NewDecoder(io.LimitReader(p, maxReply)).Decode(&end); err != nil {
			return end, fmt.Errorf("reading the export: it is cut off: %w", err)
		}
		if end.Error != "" {
			return end, &apitype.Error{Message: "the export is not whole: " + end.Error}
		}
		return end, nil
	}
}

// Acts streams what was done to Bawn itself as JSON lines; query holds the
// filters. The caller closes the stream.
func (c *Client) Acts(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	resp, err := c.send(ctx, "GET", "/acts?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
