// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uptls makes the verified TLS of upstream connections.
//
// A [Trust] says whom to believe; it is made once for a process. A [Client] is
// one lease's share of it and keeps the sessions that may be resumed, so that
// one agent's connections never resume another's. [Client.Handshake] turns a
// connection into a verified one or says why not: an [*Error] has the code of
// the refusal, any other error says that the connection failed, which tells
// nothing of who is at its end.
//
// # What is accepted
//
// TLS 1.2 and 1.3, with suites that are forward secret and authenticate what
// they encrypt. A certificate for exactly the name, by a chain to a root that is
// trusted, valid now, for servers, within the name constraints of its issuers,
// with no signature by SHA-1 or MD5 and no RSA key below 2048 bits in it. The
// chain is verified again when a session is resumed. Renegotiation is refused.
// Nobody is asked whether a certificate was revoked.
//
// # Client certificates
//
// A server that asks for a certificate gets that of the [Use], after its own has
// been verified, and none where the use has none.
//
// Everything here may be used by many goroutines.
package uptls

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"net"
	"sync"
	"time"
)

// A Trust is whom upstreams are verified by. It does not change.
type Trust struct {
	roots *x509.CertPool
	now   func() time.Time
	base  *tls.Config
}

// New returns the trust in roots; nil are the system's. A nil now is time.Now.
func New(roots *x509.CertPool, now func() time.Time) *Trust {
	if now == nil {
		now = time.Now
	}
	return &Trust{roots: roots, now: now, base: &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Of TLS 1.2; those of 1.3 are all of this kind, and not to be chosen.
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		Renegotiation:               tls.RenegotiateNever,
		DynamicRecordSizingDisabled: true,
		Time:                        now,
		// Not unverified: VerifyConnection, which every handshake sets, does it,
		// for resumed sessions too, with a code for each reason.
		InsecureSkipVerify: true,
	}}
}

// A Client is one lease's share of a [Trust].
type Client struct {
	trust    *Trust
	sessions sessions

	mu       sync.Mutex
	verified map[[sha256.Size]byte]time.Time // chains of a host that were verified, and how long they stay so
}

// maxVerified bounds what is remembered of chains.
const maxVerified = 256

// Client returns a new client.
func (t *Trust) Client() *Client {
	return &Client{trust: t, verified: map[[sha256.Size]byte]time.Time{}}
}

// A Use is what a connection is for.
type Use struct {
	Host string // a name, or an address in its canonical spelling
	// Scope is what connections have to share, besides the host, to resume one
	// another's sessions.
	Scope       string
	ALPN        []string         // the protocols to offer, the best first
	Certificate *tls.Certificate // for a server that asks for one; nil: none
}

// A Secured is a connection whose other end has been verified.
type Secured struct {
	*tls.Conn
	ALPN      string // that was agreed on; empty: none
	Resumed   bool
	Presented bool // the server asked for a certificate and got that of the use
}

// Fingerprint returns the SHA-256 of the server's certificate, in hex.
func (s *Secured) Fingerprint() string {
	chain := s.ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return ""
	}
	sum := sha256.Sum256(chain[0].Raw)
	return hex.EncodeToString(sum[:])
}

// Handshake begins verified TLS on raw, which stays the caller's to close after
// an error.
func (c *Client) Handshake(ctx context.Context, raw net.Conn, u Use) (*Secured, error) {
	h := &handshake{client: c, use: &u}
	cfg := c.trust.base.Clone()
	cfg.ServerName, cfg.NextProtos = u.Host, u.ALPN
	cfg.VerifyConnection = h.verify
	cfg.GetClientCertificate = h.certificate
	cfg.ClientSessionCache = h
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, h.classify(err)
	}
	state := conn.ConnectionState()
	return &Secured{Conn: conn, ALPN: state.NegotiatedProtocol, Resumed: state.DidResume, Presented: h.presented}, nil
}

// A handshake is one on its way. It stays with its connection, which may learn
// of a session to resume at any time.
type handshake struct {
	client    *Client
	use       *Use
	accepted  bool      // the server has been verified
	until     time.Time // when its chain will not verify any more
	asked     bool      // the server wants a certificate
	presented bool
}

func (h *handshake) verify(cs tls.ConnectionState) error {
	until, err := h.client.verify(cs.PeerCertificates, h.use.Host)
	if err != nil {
		return err
	}
	h.accepted, h.until = true, until
	return nil
}

// certificate answers a server that asks for one. Which issuers it names makes
// no difference: whether it takes what the operator says is for it to tell.
func (h *handshake) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	h.asked = true
	if h.use.Certificate == nil {
		return &tls.Certificate{}, nil
	}
	h.presented = true
	return h.use.Certificate, nil
}

// verify is [Trust.Verify] with a memory: servers send the same chain again and
// again.
func (c *Client) verify(chain []*x509.Certificate, host string) (time.Time, error) {
	key := chainKey(chain, host)
	c.mu.Lock()
	until, known := c.verified[key]
	c.mu.Unlock()
	if known && c.trust.now().Before(until) {
		return until, nil
	}
	until, err := c.trust.Verify(chain, host)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.verified, key)
		return until, err
	}
	if len(c.verified) >= maxVerified {
		clear(c.verified)
	}
	c.verified[key] = until
	return until, nil
}

func chainKey(chain []*x509.Certificate, host string) (key [sha256.Size]byte) {
	sum := sha256.New()
	var length [8]byte
	add := func(b []byte) {
		binary.BigEndian.PutUint64(length[:], uint64(len(b)))
		sum.Write(length[:])
		sum.Write(b)
	}
	add([]byte(host))
	for _, cert := range chain {
		add(cert.Raw)
	}
	sum.Sum(key[:0])
	return key
}
