// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"net/http"
)

// streamPages adds pages that begin, end and break off at odd times. A page
// with ?gate=NAME waits for [Upstream.Release]; one with ?told=NAME says by
// [Upstream.Told] that its client is gone.
func streamPages(mux *http.ServeMux, g *gates) {
	mux.HandleFunc("/sse", g.sse)
	mux.HandleFunc("/sse/endless", g.endless)
	mux.HandleFunc("/early", earlyHints)
	mux.HandleFunc("/refuse", refuseEarly)
	mux.HandleFunc("/swallow", g.swallow)
	mux.HandleFunc("/break", breakOff)
	mux.HandleFunc("/altsvc", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"; ma=86400, h2=":8443"`)
		echo(w, r)
	})
}

// sse sends one event at once and two more when the gate opens.
func (g *gates) sse(w http.ResponseWriter, r *http.Request) {
	for i := range 3 {
		if i == 1 {
			g.wait(r)
		}
		event(w, i)
	}
}

// endless sends one event at once, and then waits until the client goes.
func (g *gates) endless(w http.ResponseWriter, r *http.Request) {
	event(w, 0)
	<-r.Context().Done()
	g.release(r.URL.Query().Get("told"))
}

func event(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: tick\ndata: %d\n\n", n)
	_ = http.NewResponseController(w).Flush()
}

// earlyHints sends two interim answers before the final one.
func earlyHints(w http.ResponseWriter, r *http.Request) {
	for _, page := range []string{"style", "script"} {
		w.Header().Set("Link", "</"+page+">; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	}
	w.Header().Del("Link")
	echo(w, r)
}

// refuseEarly answers before it has read anything of the body.
func refuseEarly(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	fmt.Fprintln(w, "too large")
}

// swallow reads a body until it breaks off, and says so.
func (g *gates) swallow(w http.ResponseWriter, r *http.Request) {
	buf := make([]byte, 32<<10)
	for {
		_, err := r.Body.Read(buf)
		if err != nil {
			g.release(r.URL.Query().Get("told"))
			return
		}
	}
}

// breakOff promises a megabyte, sends some of it and drops the connection, or
// in HTTP/2 the stream.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1048576")
	_, _ = w.Write(make([]byte, 4096))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
