// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnsclient

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"bawn/internal/dnswire"
	"bawn/internal/names"
)

// maxStrays bounds the UDP packets that answer something else. Somebody who can
// send them guesses ids; after this many the server counts as failed.
const maxStrays = 32

// A question is one question with its id.
type question struct {
	id   uint16
	host names.Host
	typ  dnswire.Type
}

// newQuestion gives the question an id that nobody can guess.
func newQuestion(h names.Host, t dnswire.Type) question {
	var id [2]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the process instead
	return question{binary.BigEndian.Uint16(id[:]), h, t}
}

// overUDP sends the question once and waits for its answer. Whatever else
// arrives is passed over.
func (q question) overUDP(conn io.ReadWriter) (dnswire.Answer, error) {
	if _, err := conn.Write(dnswire.AppendQuery(nil, q.id, q.host, q.typ)); err != nil {
		return dnswire.Answer{}, err
	}
	buf := make([]byte, 4096)
	for range maxStrays {
		n, err := conn.Read(buf)
		if err != nil {
			return dnswire.Answer{}, err
		}
		answer, err := dnswire.ParseAnswer(buf[:n], q.id, q.host, q.typ)
		if !errors.Is(err, dnswire.ErrOtherAnswer) {
			return answer, err
		}
	}
	return dnswire.Answer{}, fmt.Errorf("%d packets that answer something else", maxStrays)
}

// overTCP sends the question and reads one answer, each with its length in front
// (RFC 7766 section 8).
func (q question) overTCP(conn io.ReadWriter) (dnswire.Answer, error) {
	msg := dnswire.AppendQuery(make([]byte, 2, 512), q.id, q.host, q.typ)
	binary.BigEndian.PutUint16(msg, uint16(len(msg)-2))
	if _, err := conn.Write(msg); err != nil {
		return dnswire.Answer{}, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return dnswire.Answer{}, err
	}
	reply := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return dnswire.Answer{}, err
	}
	return dnswire.ParseAnswer(reply, q.id, q.host, q.typ)
}
