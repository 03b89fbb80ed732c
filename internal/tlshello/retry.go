// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package tlshello

import (
	"bytes"
	"fmt"
	"slices"
)

// An Answer is what a server says to a ClientHello.
type Answer int

// The zero Answer is that there is none yet.
const (
	Unanswered Answer = iota
	Accepted          // a ServerHello: no ClientHello follows in the clear
	Retry             // a HelloRetryRequest: the client greets once more
	NotTLS            // something that is no answer to a ClientHello
)

// retryRandom marks a ServerHello as a HelloRetryRequest (RFC 8446 section
// 4.1.3).
var retryRandom = []byte{
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
	0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
}

const (
	recordCCS   = 20
	recordAlert = 21
	recordData  = 23

	maxCiphertext = maxFragment + 2048 // of TLS 1.2, the larger one

	messageServerHello = 2
	messageRetry       = 6 // in drafts of TLS 1.3
	// untilRandom is what of a ServerHello tells it from a HelloRetryRequest: the
	// header of the message, a version and the random.
	untilRandom = messageHeader + 2 + 32
)

// An Answering reads a server's first flight until it says which kind of
// answer it is. The zero Answering is ready.
type Answering struct {
	head [recordHeader]byte
	have int // bytes of head
	left int // bytes to come of the record
	msg  []byte
	said Answer
}

// Feed takes the server's next bytes and tells what is known then. Once it is
// not Unanswered it does not change.
func (a *Answering) Feed(b []byte) Answer {
	for len(b) > 0 && a.said == Unanswered {
		if a.have < recordHeader {
			n := copy(a.head[a.have:], b)
			a.have, b = a.have+n, b[n:]
			if a.have == recordHeader {
				a.begin()
			}
			continue
		}
		n := min(a.left, len(b))
		a.content(b[:n])
		b = b[n:]
		if a.left -= n; a.left == 0 {
			a.have = 0
		}
	}
	return a.said
}

// begin looks at the header of a record. Warnings may come before the answer
// (RFC 6066 section 3 has one).
func (a *Answering) begin() {
	a.left = int(a.head[3])<<8 | int(a.head[4])
	kind := a.head[0]
	if kind != recordHandshake && kind != recordAlert || a.head[1] != 3 || a.left == 0 || a.left > maxCiphertext {
		a.said = NotTLS
	}
}

func (a *Answering) content(b []byte) {
	if a.head[0] != recordHandshake {
		return
	}
	a.msg = append(a.msg, b[:min(len(b), untilRandom-len(a.msg))]...)
	switch {
	case a.msg[0] == messageRetry:
		a.said = Retry
	case a.msg[0] != messageServerHello:
		a.said = NotTLS
	case len(a.msg) < untilRandom:
	case bytes.Equal(a.msg[messageHeader+2:], retryRandom):
		a.said = Retry
	default:
		a.said = Accepted
	}
}

// A Following reads what a client sends behind its first ClientHello, as long
// as the server may still have it greet once more, and holds a second
// ClientHello until it is complete, so that it can be judged before any of it
// goes on.
//
// What else may come then, data that the client sends ahead (RFC 8446 section
// 4.2.10) and the records of middlebox compatibility, passes. The zero Following
// is ready.
type Following struct {
	held  []byte // not passed yet: the head of a record, or a ClientHello
	left  int    // bytes to come of a record that passes
	first Reader // of the second ClientHello
	fed   int    // bytes of held that first has
}

// Feed takes the client's next bytes. pass is what may go on now. When found is
// true the second ClientHello is complete: it and what came behind it are in
// [Following.Held], to be sent once it is judged, and nothing more is to be fed.
func (f *Following) Feed(b []byte) (pass []byte, second Hello, found bool, err error) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			pass, b, f.left = append(pass, b[:n]...), b[n:], f.left-n
			continue
		}
		n := 1 // a header comes byte by byte, a held record as it is
		if f.greeting() {
			n = len(b)
		}
		f.held, b = append(f.held, b[:n]...), b[n:]
		if f.greeting() {
			if second, found, err = f.greet(); found || err != nil {
				f.held = append(f.held, b...)
				return pass, second, found, err
			}
			continue
		}
		if len(f.held) < recordHeader {
			continue
		}
		if f.left, err = passing(f.held); err != nil {
			return pass, Hello{}, false, err
		}
		pass, f.held = append(pass, f.held...), f.held[:0]
	}
	return pass, Hello{}, false, nil
}

// Held is what was fed and has not passed.
func (f *Following) Held() []byte { return f.held }

// greeting reports whether what is held begins a handshake record.
func (f *Following) greeting() bool { return len(f.held) > 0 && f.held[0] == recordHandshake }

// greet feeds what is new to the reader of ClientHellos.
func (f *Following) greet() (Hello, bool, error) {
	hello, done, err := f.first.Feed(f.held[f.fed:])
	f.fed = len(f.held)
	return hello, done, err
}

// passing gives the length of a record that may pass.
func passing(head []byte) (int, error) {
	n := int(head[3])<<8 | int(head[4])
	if !slices.Contains([]byte{recordCCS, recordAlert, recordData}, head[0]) || head[1] != 3 || n == 0 || n > maxCiphertext {
		return 0, &Error{fmt.Sprintf("record of type %d and %d bytes before the server has answered", head[0], n)}
	}
	return n, nil
}
