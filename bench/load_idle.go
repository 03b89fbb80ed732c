// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "path"

// idleTLS asks one question on each connection, which then waits.
func idleTLS(l *load) ([]func() error, error) {
	return nil, l.idle(func(int) error { return l.oneQuestion(l.host) })
}

// idleWS has one message echoed on each WebSocket, which then waits.
func idleWS(l *load) ([]func() error, error) {
	message := wsMessage()
	return nil, l.idle(func(int) error { return l.oneMessage(message) })
}

// idleMix opens tunnels of three kinds, as many of each.
func idleMix(l *load) ([]func() error, error) {
	message := wsMessage()
	return nil, l.idle(func(i int) error {
		switch i % 3 {
		case 0:
			return l.oneQuestion(l.host)
		case 1:
			return l.oneQuestion(spliceHost)
		}
		return l.oneMessage(message)
	})
}

// idle opens all connections, which stay until the load ends.
func (l *load) idle(one func(i int) error) error {
	return parallel(l.conns, func(i int) error {
		err := one(i)
		if err == nil {
			l.units.Add(1)
		}
		return err
	})
}

func (l *load) oneQuestion(host string) error {
	c, err := l.connect(host, "http/1.1")
	if err != nil {
		return err
	}
	l.endWith(c)
	small := load{host: host, path: path.Join(path.Dir(l.path), "small")}
	return ask(c, small.question("GET", ""), make([]byte, 8<<10))
}

func (l *load) oneMessage(message []byte) error {
	ws, err := l.connectWS()
	if err != nil {
		return err
	}
	return echo(ws, message)
}
