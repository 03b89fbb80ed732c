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
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"time"
)

type job struct {
	To      string  // HOST:PORT; empty: the proxy of the environment
	Connect []byte  // head of a CONNECT to begin with; nil: none
	SNI     *string // name in TLS, "" for none; nil: no TLS
	Send    []byte
}

type answer struct {
	Connect []byte // what the proxy said to CONNECT
	Got     []byte // what came back, to the end of the connection
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
		if s, err = a.secure(s, *j.SNI); err != nil {
			return err
		}
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

// secure speaks TLS and checks the chain, but not the name: some jobs ask for
// a name that is not the one in the certificate.
func (a *answer) secure(c net.Conn, name string) (stream, error) {
	t := tls.Client(c, &tls.Config{
		ServerName: name, NextProtos: []string{"http/1.1"}, InsecureSkipVerify: true,
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
