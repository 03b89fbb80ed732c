// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"golang.org/x/net/http2"
)

// keepH2 asks on connections that stay open, some questions at a time on each.
func keepH2(l *load) ([]func() error, error) {
	var list []func() error
	for range l.conns {
		cc, err := l.connectH2()
		if err != nil {
			return nil, err
		}
		for range l.streams {
			list = append(list, func() error {
				buf := make([]byte, 4<<10)
				for !l.ended.Load() {
					if err := l.askH2(cc, buf); err != nil {
						return err
					}
					l.units.Add(1)
				}
				return nil
			})
		}
	}
	return list, nil
}

// newH2 asks each question on a connection of its own.
func newH2(l *load) ([]func() error, error) {
	return l.workers(func(buf []byte) error {
		cc, err := l.connectH2()
		if err != nil {
			return err
		}
		defer cc.Close()
		return l.askH2(cc, buf)
	}), nil
}

func (l *load) connectH2() (*http2.ClientConn, error) {
	c, err := l.connect(l.host, "h2")
	if err != nil {
		return nil, err
	}
	return (&http2.Transport{DisableCompression: true}).NewClientConn(c)
}

func (l *load) askH2(cc *http2.ClientConn, buf []byte) error {
	res, err := cc.RoundTrip(&http.Request{
		Method: "GET", Host: l.host, ProtoMajor: 2,
		URL: &url.URL{Scheme: "https", Host: l.host, Path: l.path, RawQuery: "page=3"},
		Header: http.Header{
			"User-Agent": {"bench/1"}, "Accept": {"application/json"},
			"Authorization": {"Bearer 0123456789abcdef0123456789abcdef"},
		},
	})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n := 0
	for {
		got, err := res.Body.Read(buf)
		n += got
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if res.StatusCode != 200 || n != bodySize {
		return fmt.Errorf("answer: %s with %d octets", res.Status, n)
	}
	return nil
}
