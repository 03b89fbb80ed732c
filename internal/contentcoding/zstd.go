// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package contentcoding

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the largest window that a receiver has to have room for (RFC 9659
// section 3), and so the largest that may be used in HTTP.
const maxWindow = 8 << 20

// unzstd reads one frame. The decoder would go on with the next, and pass over
// frames that are to be skipped, so the octets are walked first.
func unzstd(body []byte, most int64) ([]byte, error) {
	size, err := walk(body)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, errTooLarge
	}
	d, err := zstd.NewReader(bytes.NewReader(body),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	out, err := readAll(d, most)
	if err == nil && size >= 0 && size != int64(len(out)) {
		err = errors.New("the content is not as long as the frame says")
	}
	return out, err
}

var errCut = errors.New("the frame is not whole")

// walk checks that body is one frame (RFC 8878 section 3.1.1) and no more, and
// returns the size of its content, -1 where the frame does not say.
func walk(body []byte) (size int64, err error) {
	if len(body) < 5 || binary.LittleEndian.Uint32(body) != 0xfd2fb528 {
		return 0, errors.New("no frame of Zstandard")
	}
	descriptor, rest := body[4], body[5:]
	single, checksum := descriptor&(1<<5) != 0, descriptor&(1<<2) != 0
	if descriptor&(1<<3) != 0 || descriptor&3 != 0 {
		return 0, errors.New("a reserved bit is set, or a dictionary is needed")
	}
	if !single {
		if len(rest) < 1 {
			return 0, errCut
		}
		if w := window(rest[0]); w > maxWindow {
			return 0, fmt.Errorf("a window of %d octets", w)
		}
		rest = rest[1:]
	}
	size, rest, err = contentSize(descriptor>>6, single, rest)
	if err != nil {
		return 0, err
	}
	if single && size > maxWindow {
		return 0, fmt.Errorf("a window of %d octets", size)
	}
	if rest, err = blocks(rest); err != nil {
		return 0, err
	}
	if checksum {
		if len(rest) < 4 {
			return 0, errCut
		}
		rest = rest[4:]
	}
	if len(rest) > 0 {
		return 0, errTrailing
	}
	return size, nil
}

// window reads a window descriptor.
func window(b byte) int64 {
	base := int64(1) << (10 + b>>3)
	return base + base/8*int64(b&7)
}

// contentSize reads the field that has the size of the content.
func contentSize(flag byte, single bool, b []byte) (size int64, rest []byte, err error) {
	width := [...]int{0, 2, 4, 8}[flag]
	if flag == 0 && single {
		width = 1
	}
	if len(b) < width {
		return 0, nil, errCut
	}
	var field [8]byte
	copy(field[:], b[:width])
	n := binary.LittleEndian.Uint64(field[:])
	switch {
	case width == 0:
		return -1, b, nil
	case width == 2:
		n += 256
	case n > 1<<62:
		return 0, nil, errTooLarge
	}
	return int64(n), b[width:], nil
}

// blocks passes over the blocks of a frame.
func blocks(b []byte) (rest []byte, err error) {
	for {
		if len(b) < 3 {
			return nil, errCut
		}
		head := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
		last, kind, size := head&1 != 0, head>>1&3, head>>3
		switch kind {
		case 1: // one octet, repeated
			size = 1
		case 3:
			return nil, errors.New("a block of a reserved kind")
		}
		if len(b) < 3+size {
			return nil, errCut
		}
		b = b[3+size:]
		if last {
			return b, nil
		}
	}
}
