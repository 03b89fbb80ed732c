// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"crypto/sha1" //nolint:gosec // the format's own check sum; nothing relies on it
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"unicode/utf16"
)

// JavaPassword is the password of a Java key store. It is no secret: Java wants
// one, and every installation has this.
const JavaPassword = "changeit"

// JavaStore writes the certificates of a PEM bundle as a Java key store of
// trusted roots, in the old format that every Java reads ("JKS", version 2, as
// sun.security.provider.JavaKeyStore defines it), with [JavaPassword]. Java
// reads no PEM bundle: in an agent's view this file lies over Java's own.
func JavaStore(bundle []byte) ([]byte, error) {
	var certificates [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			certificates = append(certificates, block.Bytes)
		}
	}
	if len(certificates) == 0 {
		return nil, errors.New("writing a Java key store: no certificate in the bundle")
	}
	const magic, version, trusted = 0xfeedfeed, 2, 2
	b := binary.BigEndian.AppendUint32(nil, magic)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(certificates)))
	for i, c := range certificates {
		b = binary.BigEndian.AppendUint32(b, trusted)
		b = appendString(b, fmt.Sprintf("root-%d", i))
		b = binary.BigEndian.AppendUint64(b, 0) // when it was added: of no use to anybody
		b = appendString(b, "X.509")
		b = binary.BigEndian.AppendUint32(b, uint32(len(c)))
		b = append(b, c...)
	}
	return append(b, checkSum(b)...), nil
}

// appendString is writeUTF of java.io.DataOutputStream for ASCII.
func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// checkSum is the keyed digest at a store's end.
func checkSum(store []byte) []byte {
	h := sha1.New() //nolint:gosec // see above
	for _, u := range utf16.Encode([]rune(JavaPassword)) {
		h.Write([]byte{byte(u >> 8), byte(u)})
	}
	h.Write([]byte("Mighty Aphrodite"))
	h.Write(store)
	return h.Sum(nil)
}
