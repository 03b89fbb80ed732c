// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/netplan"
	"bawn/internal/wswire"
)

// BenchmarkWebSocketEcho sends a message of 1 KB and waits for it to come back,
// through TLS on both legs: what a message costs each way, twice. The client
// and the server only copy frames that are made already.
func BenchmarkWebSocketEcho(b *testing.B) {
	json := strings.Repeat(`{"type":"response.output_text.delta","item_id":"msg_7919","output_index":12,"delta":"hello"},`, 12)[:1024]
	for name, c := range map[string]struct {
		path    string
		deflate bool
		payload string
	}{
		"plain":      {"/ws/a", false, strings.Repeat("x", 1024)},
		"compressed": {"/ws/a", true, json},
		"judged":     {"/json/a", false, `"` + strings.Repeat("x", 1022) + `"`},
	} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, chat, func(r *rig) {
				j, err := audit.OpenJournal(b.TempDir(), audit.Options{Plane: "egress"})
				must(b, err)
				b.Cleanup(func() { j.Close() })
				r.cfg.Recorder = j
			})
			echoWS(b, r, c.path, c.deflate, c.payload)
		})
	}
}

func echoWS(b *testing.B, r *rig, path string, deflate bool, payload string) {
	b.Helper()
	h := wswire.Header{Fin: true, Op: wswire.Text}
	if deflate {
		h.Rsv, payload = 4, squeezed(payload)
	}
	down := wswire.AppendFrame(nil, h, []byte(payload))
	h.Masked = true
	up := wswire.AppendFrame(nil, h, []byte(payload))
	w := r.openAt(r.listen(netplan.Explicit), path, deflate)
	must(b, w.server.SetDeadline(time.Time{}))
	must(b, w.agent.SetDeadline(time.Time{}))
	go func() {
		for skipFrame(w.serveR) == nil {
			if _, err := w.server.Write(down); err != nil {
				return
			}
		}
	}()
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		if _, err := w.agent.Write(up); err != nil {
			b.Fatal(err)
		}
		must(b, skipFrame(w.agentR))
	}
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

func skipFrame(r *bufio.Reader) error {
	head, err := r.Peek(4)
	if err != nil {
		return err
	}
	n, size := int(head[1]&0x7f), 2
	if n == 126 {
		n, size = int(head[2])<<8|int(head[3]), 4
	}
	if head[1]&0x80 != 0 {
		size += 4
	}
	_, err = io.CopyN(io.Discard, r, int64(size+n))
	return err
}
