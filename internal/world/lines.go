// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bufio"
	"fmt"
	"net"
	"strings"
)

// serveLines echoes each line with a prefix: the "database". The line
// "tell NAME" has it open a gate when the connection ends, NAME-reset if that
// was not in good order; "reset" resets the connection, "end" ends this half
// and reads on.
func (g *gates) serveLines(addr, port string) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, port))
	if err != nil {
		return fmt.Errorf("opening line server: %w", err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go g.lines(c)
		}
	}()
	return nil
}

func (g *gates) lines(c net.Conn) {
	defer c.Close()
	tell, ended := "", false
	in := bufio.NewScanner(c)
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch tcp, _ := c.(*net.TCPConn); {
		case word == "tell":
			tell = rest
		case word == "reset" && tcp != nil:
			_ = tcp.SetLinger(0)
			return
		case word == "end" && tcp != nil:
			_ = tcp.CloseWrite()
			ended = true
		case ended:
		default:
			if _, err := fmt.Fprintf(c, "row: %s\n", in.Text()); err != nil {
				return
			}
		}
	}
	switch {
	case tell == "":
	case in.Err() != nil:
		g.release(tell + "-reset")
	default:
		if !ended {
			fmt.Fprintln(c, "bye")
		}
		g.release(tell)
	}
}
