// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 the peer of x/net gives hold of frames and connections that net/http hides

package h2conn_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"golang.org/x/net/http2"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

const kilobyte = 1 << 10

// cpu reports the processor time of both ends for each operation, which means
// the same on a machine that has other things to do.
func cpu(b *testing.B) (report func()) {
	b.ReportAllocs()
	before := processTime()
	return func() { b.ReportMetric(float64(processTime()-before)/float64(b.N), "cpu-ns/op") }
}

func processTime() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u) //nolint:errcheck // cannot fail for oneself
	return u.Utime.Nano() + u.Stime.Nano()
}

// answerKilobyte reads a request and answers with a kilobyte.
func answerKilobyte(s *h2conn.ServerStream) {
	var buf [4 << 10]byte
	for {
		if _, err := s.Body().Read(buf[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return
		}
	}
	s.WriteHead(status(200, "content-type", "application/json", "content-length", "1024"), false)
	s.Write(buf[:kilobyte])
	s.End(nil)
}

// ask sends a kilobyte and reads the answer.
func ask(k *h2conn.Client, buf []byte) error {
	s, err := k.Open(request("POST", "content-type", "application/json", "content-length", "1024", "authorization", "Bearer x"), "https", "/v1/things", false)
	if err != nil {
		return err
	}
	s.Write(buf[:kilobyte])
	if err := s.End(nil); err != nil {
		return err
	}
	var p httpwire.Response
	if err := s.ReadHead(&p); err != nil {
		return err
	}
	for {
		if _, err := s.Body().Read(buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func BenchmarkKilobyte(b *testing.B) {
	addr := serveH2(b, h2conn.Limits{}, answerKilobyte)
	k := dialH2(b, addr, h2conn.Limits{})
	b.Run("one by one", func(b *testing.B) {
		defer cpu(b)()
		buf := make([]byte, 4<<10)
		for b.Loop() {
			if err := ask(k, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many at a time", func(b *testing.B) {
		defer cpu(b)()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			buf := make([]byte, 4<<10)
			for pb.Next() {
				if err := ask(k, buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkKilobyteOfAnotherHouse is the measure for it.
func BenchmarkKilobyteOfAnotherHouse(b *testing.B) {
	addr := listen(b, func(nc net.Conn) {
		(&http2.Server{}).ServeConn(nc, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var buf [4 << 10]byte
			for {
				if _, err := r.Body.Read(buf[:]); err != nil {
					break
				}
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1024")
			w.Write(buf[:kilobyte])
		})})
	})
	tr := transport(b, addr)
	one := func(buf []byte) error {
		req, err := http.NewRequest("POST", "https://h/v1/things", bytes.NewReader(buf[:kilobyte]))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer x")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		for {
			if _, err := resp.Body.Read(buf); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	b.Run("one by one", func(b *testing.B) {
		defer cpu(b)()
		buf := make([]byte, 4<<10)
		for b.Loop() {
			if err := one(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many at a time", func(b *testing.B) {
		defer cpu(b)()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			buf := make([]byte, 4<<10)
			for pb.Next() {
				if err := one(buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkDownload(b *testing.B) {
	const size = 10 << 20
	piece := make([]byte, 32<<10)
	addr := serveH2(b, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		s.WriteHead(status(200), false)
		for n := 0; n < size; n += len(piece) {
			if _, err := s.Write(piece); err != nil {
				return
			}
		}
		s.End(nil)
	})
	k := dialH2(b, addr, h2conn.Limits{})
	b.SetBytes(size)
	defer cpu(b)()
	buf := make([]byte, 32<<10)
	for b.Loop() {
		s, err := k.Open(request("GET"), "https", "/", true)
		if err != nil {
			b.Fatal(err)
		}
		var p httpwire.Response
		if err := s.ReadHead(&p); err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			m, err := s.Body().Read(buf)
			n += m
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if n != size {
			b.Fatal(n)
		}
	}
}

func BenchmarkDownloadOfAnotherHouse(b *testing.B) {
	const size = 10 << 20
	piece := make([]byte, 32<<10)
	addr := listen(b, func(nc net.Conn) {
		(&http2.Server{}).ServeConn(nc, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for n := 0; n < size; n += len(piece) {
				w.Write(piece)
			}
		})})
	})
	tr := transport(b, addr)
	b.SetBytes(size)
	defer cpu(b)()
	buf := make([]byte, 32<<10)
	for b.Loop() {
		req, _ := http.NewRequest("GET", "https://h/", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			m, err := resp.Body.Read(buf)
			n += m
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		resp.Body.Close()
		if n != size {
			b.Fatal(n)
		}
	}
}
