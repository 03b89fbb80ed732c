// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptrace"
	"testing"

	"bawn/internal/netplan"
)

// TestI8RecordsNameBothConnections: the record has the agent's end of its own
// connection and the proxy's end of the upstream one, as the two others see them.
func TestI8RecordsNameBothConnections(t *testing.T) {
	r := newRig(t, basic)
	var seen string
	r.upstream(apiHost, apiAddr, 443, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { seen = q.RemoteAddr }))
	client := r.client(r.listen(netplan.Explicit))
	cert, err := r.serverCA.Certificate(apiHost)
	must(t, err)
	sum := sha256.Sum256(cert.Certificate[0])
	for i := range 2 {
		var own string
		req, err := http.NewRequest("GET", "https://api.example.com/v1/a", nil)
		must(t, err)
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { own = c.Conn.LocalAddr().String() }}
		res, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
		must(t, err)
		res.Body.Close()
		o := r.journal.lastOutcome(t, i+1)
		if d := r.journal.lastDecision(t, i+1); d.Client != own || own == "" {
			t.Errorf("client is %q on record, and %q for the agent", d.Client, own)
		}
		if o.Local != seen || seen == "" {
			t.Errorf("local is %q on record, and the server saw %q", o.Local, seen)
		}
		if o.Certificate != hex.EncodeToString(sum[:]) {
			t.Errorf("certificate is %q on record", o.Certificate)
		}
	}
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	if len(r.journal.dials) != 1 {
		t.Fatalf("%d connections on record, want one", len(r.journal.dials))
	}
	d := r.journal.dials[0]
	if d.Local != seen || d.Upstream != apiAddr+":443" || d.Request != r.journal.decisions[0].Request || d.Agent != "dev" {
		t.Errorf("the connection is on record as %+v", d)
	}
}
