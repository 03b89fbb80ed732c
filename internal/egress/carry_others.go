// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package egress

import (
	"errors"
	"syscall"
)

func (s *Server) readLate(syscall.RawConn) (*[]byte, int, error) {
	return nil, 0, errors.ErrUnsupported
}
