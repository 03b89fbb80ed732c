// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package egress

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"
)

func peerGone(syscall.RawConn, bool) bool { return false }

func sinceData(syscall.RawConn) time.Duration { return 0 }

func silent(syscall.RawConn) bool { return true }

var errUnsupported = errors.New("no redirected connections on " + runtime.GOOS)

func originalDst(net.Conn) (netip.AddrPort, error) { return netip.AddrPort{}, errUnsupported }
