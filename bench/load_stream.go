// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// wsEcho sends a message on each WebSocket and waits for it to come back.
func wsEcho(l *load) ([]func() error, error) {
	message := wsMessage()
	var list []func() error
	for range l.conns {
		ws, err := l.connectWS()
		if err != nil {
			return nil, err
		}
		list = append(list, func() error {
			defer ws.CloseNow()
			for !l.ended.Load() {
				if err := echo(ws, message); err != nil {
					return err
				}
				l.units.Add(1)
			}
			return nil
		})
	}
	return list, nil
}

// wsMessage is JSON of 1 KB, of a kind that compresses to about a third.
func wsMessage() []byte {
	b := bytes.NewBufferString("[")
	for i := 0; b.Len() < bodySize-80; i++ {
		fmt.Fprintf(b, `{"id":%d,"name":"item %x","price":%d.%02d},`, 100000+i*7919, i*2654435761, i*37%1000, i*61%100)
	}
	b.WriteByte('"')
	b.WriteString(strings.Repeat(".", bodySize-2-b.Len()))
	b.WriteString(`"]`)
	return b.Bytes()
}

func (l *load) connectWS() (*websocket.Conn, error) {
	mode := websocket.CompressionDisabled
	if l.deflate {
		mode = websocket.CompressionContextTakeover
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, "wss://"+l.host+l.path, &websocket.DialOptions{
		CompressionMode: mode, CompressionThreshold: 1,
		HTTPClient: &http.Client{Transport: &http.Transport{
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
				c, err := l.connect(l.host, "http/1.1")
				if err == nil {
					l.endWith(c)
				}
				return c, err
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	if got := strings.Contains(res.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate"); got != l.deflate {
		ws.CloseNow()
		return nil, fmt.Errorf("compression is %v, want %v", got, l.deflate)
	}
	return ws, nil
}

func echo(ws *websocket.Conn, message []byte) error {
	ctx := context.Background()
	if err := ws.Write(ctx, websocket.MessageText, message); err != nil {
		return err
	}
	_, got, err := ws.Read(ctx)
	if err == nil && !bytes.Equal(got, message) {
		err = fmt.Errorf("%d octets came back, and not the same", len(got))
	}
	return err
}

// begin asks for a stream and reads the head of the answer.
func begin(c *tls.Conn, question []byte) error {
	if _, err := c.Write(question); err != nil {
		return err
	}
	head, err := readHead(c)
	if err == nil && !strings.HasPrefix(string(head), "HTTP/1.1 200") {
		err = fmt.Errorf("answer: %q", head)
	}
	return err
}

// events reads a stream of events on each connection, from its beginning on, so
// that none has gathered when the load is ready.
func events(l *load) ([]func() error, error) {
	question := l.question("GET", "")
	ended := make(chan error, l.conns)
	err := parallel(l.conns, func(int) error {
		c, err := l.connect(l.host, "http/1.1")
		if err != nil {
			return err
		}
		l.endWith(c)
		if err := begin(c, question); err != nil {
			return err
		}
		go func() { ended <- l.readEvents(c) }()
		return nil
	})
	var wait []func() error
	for range l.conns {
		wait = append(wait, func() error { return <-ended })
	}
	return wait, err
}

// readEvents reads until the connection ends; each event says when it was due.
func (l *load) readEvents(c *tls.Conn) error {
	lines := bufio.NewReader(c)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		due, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue // chunk sizes and blank lines
		}
		at, _, ok := bytes.Cut(due, []byte(" "))
		ns, err := strconv.ParseInt(string(at), 10, 64)
		if !ok || err != nil {
			return errors.New("an event is not whole")
		}
		l.latency.add(time.Unix(0, ns), time.Now())
		l.units.Add(1)
	}
}
