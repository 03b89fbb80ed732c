// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command rawclient makes connections byte by byte: one for each JSON object
// on standard input, and one JSON object on standard output for each. Bytes
// are base64, as encoding/json has them.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"bawn/internal/casetest/talk"
	"bawn/internal/httpwire"
)

type job struct {
	To      string   // HOST:PORT; empty: the proxy of the environment
	Connect []byte   // head of a CONNECT to begin with; nil: none
	SNI     *string  // name in TLS, "" for none; nil: no TLS
	ALPN    []string // nil: http/1.1
	First   []byte   // what the server says before anything is sent
	Send    []byte

	H2 []talk.Request // instead of Send

	Responses int          // before Frames: to what was sent, the last of them to a handshake
	Frames    []talk.Frame // after the handshake
	Rest      []byte       // instead, where it opened nothing

	Queries  [][]byte // instead of all that: messages to the resolver, over UDP
	Segments [][]byte // and the bytes of connections to it
}

type answer struct {
	Connect []byte   // what the proxy said to CONNECT
	Got     []byte   // what came back, to the end of the connection
	Replies [][]byte // of the resolver
	Report  talk.Report
	Bye     talk.Farewell
	Error   string
	Issuer  string // of the certificate that was shown
}

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var j job
		if err := in.Decode(&j); err != nil {
			return
		}
		var a answer
		if err := a.do(j); err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

type stream interface {
	net.Conn
	CloseWrite() error
}

func (a *answer) do(j job) error {
	if j.Queries != nil || j.Segments != nil {
		return a.ask(j)
	}
	to := j.To
	if to == "" {
		u, err := url.Parse(os.Getenv("HTTPS_PROXY"))
		if err != nil || u.Host == "" {
			return fmt.Errorf("no proxy is set: %v", err)
		}
		to = u.Host
	}
	c, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	s := c.(stream)
	if j.Connect != nil {
		if _, err := s.Write(j.Connect); err != nil {
			return err
		}
		if len(j.Send) == 0 && j.SNI == nil {
			_ = s.CloseWrite()
		}
		r := bufio.NewReader(s)
		for !bytes.HasSuffix(a.Connect, []byte("\r\n\r\n")) {
			b, err := r.ReadByte()
			if err != nil {
				return err
			}
			a.Connect = append(a.Connect, b)
		}
		if !bytes.HasPrefix(a.Connect, []byte("HTTP/1.1 200")) {
			_ = s.CloseWrite()
			rest, err := io.ReadAll(r)
			a.Connect = append(a.Connect, rest...)
			return err
		}
	}
	if j.SNI != nil {
		if s, err = a.secure(s, *j.SNI, j.ALPN); err != nil {
			return err
		}
	}
	if j.First != nil {
		got := make([]byte, len(j.First))
		if n, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, j.First) {
			return fmt.Errorf("the server's first words are %q: %v", got[:n], err)
		}
	}
	if j.H2 != nil {
		a.Report = talk.H2(s, j.H2)
		return nil
	}
	if j.Responses > 0 {
		return a.upgrade(s, j)
	}
	// The other end may refuse and close while we still send: what it said is
	// worth reading all the same.
	_, sendErr := s.Write(j.Send)
	_ = s.CloseWrite()
	a.Got, err = io.ReadAll(s)
	if err != nil {
		return err
	}
	return sendErr
}

// upgrade sends a handshake, and frames if that opens a WebSocket.
func (a *answer) upgrade(s stream, j job) error {
	if _, err := s.Write(j.Send); err != nil {
		return err
	}
	r := bufio.NewReader(s)
	for range j.Responses {
		p, err := a.response(r)
		if err != nil {
			return err
		}
		if p.Status != 101 {
			continue
		}
		key := j.Send[bytes.LastIndex(bytes.ToLower(j.Send), []byte("\r\nsec-websocket-key:"))+len("\r\nsec-websocket-key:"):]
		line, _, _ := bytes.Cut(key, []byte("\r\n"))
		agreed, err := talk.Upgraded(p, string(bytes.TrimSpace(line)))
		if err != nil {
			return err
		}
		a.Bye = talk.WebSocket(s, r, agreed, j.Frames)
		return nil
	}
	_, sendErr := s.Write(j.Rest)
	_ = s.CloseWrite()
	rest, err := io.ReadAll(r)
	a.Got = append(a.Got, rest...)
	if err != nil {
		return err
	}
	return sendErr
}

// response reads a final response with its body.
func (a *answer) response(r *bufio.Reader) (*httpwire.Response, error) {
	for {
		p, err := httpwire.ReadResponse(r, "GET", httpwire.Limits{})
		if err != nil {
			return nil, err
		}
		a.Got = httpwire.AppendResponse(a.Got, p)
		if p.Status == 101 {
			return p, nil
		}
		if p.Informational() {
			continue
		}
		var body httpwire.Body
		body.Reset(r, p.Framing, httpwire.Limits{})
		_, err = io.Copy(io.Discard, &body)
		return p, err
	}
}

// secure speaks TLS and checks the chain, but not the name: some jobs ask for
// a name that is not the one in the certificate.
func (a *answer) secure(c net.Conn, name string, alpn []string) (stream, error) {
	if alpn == nil {
		alpn = []string{"http/1.1"}
	}
	t := tls.Client(c, &tls.Config{
		ServerName: name, NextProtos: alpn, InsecureSkipVerify: true,
		VerifyConnection: func(st tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, c := range st.PeerCertificates[1:] {
				between.AddCert(c)
			}
			a.Issuer = st.PeerCertificates[0].Issuer.String()
			_, err := st.PeerCertificates[0].Verify(x509.VerifyOptions{Intermediates: between})
			return err
		},
	})
	return t, t.Handshake()
}

// ask puts questions to the resolver of the agent's network.
func (a *answer) ask(j job) error {
	resolver, err := nameserver()
	if err != nil {
		return err
	}
	for _, q := range j.Queries {
		if err := a.datagram(resolver, q); err != nil {
			return err
		}
	}
	for _, s := range j.Segments {
		if err := a.segment(resolver, s); err != nil {
			return err
		}
	}
	return nil
}

func nameserver() (string, error) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			return net.JoinHostPort(words[1], "53"), nil
		}
	}
	return "", errors.New("no resolver is set")
}

func (a *answer) datagram(resolver string, q []byte) error {
	c, err := net.DialTimeout("udp", resolver, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(q); err != nil {
		return err
	}
	reply := make([]byte, 65535)
	n, err := c.Read(reply)
	a.Replies = append(a.Replies, reply[:n])
	return err
}

// segment writes bytes to a connection and splits what comes back.
func (a *answer) segment(resolver string, s []byte) error {
	c, err := net.DialTimeout("tcp", resolver, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(s); err != nil {
		return err
	}
	_ = c.(stream).CloseWrite()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return nil // closed: there is no more
		}
		reply := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, reply); err != nil {
			return err
		}
		a.Replies = append(a.Replies, reply)
	}
}
