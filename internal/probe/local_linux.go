// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"bawn/internal/ids"

	"golang.org/x/sys/unix"
)

// local connects to a local service's socket.
func (p *prober) local(check Check, name string) trial {
	return func(context.Context) Try {
		t := Try{Check: check, Target: "unix " + strings.Replace(name, "\x00", "@", 1), Outcome: Blocked}
		err := connectUnix(name)
		if err == nil {
			t.Outcome, t.Detail = GotOut, "connected"
		} else {
			t.Detail = err.Error()
		}
		return t
	}
}

// connectUnix connects to the socket name, of whatever kind it is. A leading
// NUL makes the name abstract.
func connectUnix(name string) error {
	var err error
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM} {
		var fd int
		if fd, err = unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
		unix.Close(fd)
		if !errors.Is(err, unix.EPROTOTYPE) {
			break
		}
	}
	if errors.Is(err, unix.EAGAIN) { // its queue is full: it is there
		return nil
	}
	return err
}

// maxAbstract bounds the abstract sockets that are tried.
const maxAbstract = 64

// abstracts tries the abstract sockets that the caller named and those that the
// kernel shows here.
func (p *prober) abstracts() []trial {
	var seen []string
	if f, err := os.Open("/proc/net/unix"); err == nil {
		defer f.Close()
		seen = abstractNames(f)
	}
	var list []trial
	for _, n := range abstractChoice(p.Abstract, seen) {
		list = append(list, p.abstract("\x00"+n))
	}
	if len(list) == 0 {
		list = append(list, func(context.Context) Try {
			return Try{Check: CheckAbstract, Target: "abstract sockets", Outcome: Blocked, Detail: "none is to be seen"}
		})
	}
	return list
}

// abstractChoice is all that are given, and some of those that are seen: an agent
// that makes many can crowd out others of these, and must not the given.
func abstractChoice(given, seen []string) []string {
	list := slices.Compact(slices.Sorted(slices.Values(given)))
	for _, n := range slices.Compact(slices.Sorted(slices.Values(seen))) {
		if len(list) < maxAbstract && !slices.Contains(given, n) {
			list = append(list, n)
		}
	}
	return list
}

// abstract connects to one. Without Landlock's scopes the uid placement cannot
// keep an agent from those of the host.
func (p *prober) abstract(name string) trial {
	return func(ctx context.Context) Try {
		t := p.local(CheckAbstract, name)(ctx)
		t.Limit = t.Outcome == GotOut && p.Placement == ids.PlacementUID && !landlockScopes()
		return t
	}
}

// landlockScopes reports whether this kernel can (Landlock's version 6, Linux
// 6.12).
func landlockScopes() bool {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= 6
}

// abstractNames reads the names of listening abstract sockets out of
// /proc/net/unix. The kernel shows NUL as '@'.
func abstractNames(r io.Reader) (names []string) {
	const accepting = "00010000" // __SO_ACCEPTCON
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) >= 8 && f[3] == accepting && strings.HasPrefix(f[7], "@") {
			names = append(names, f[7][1:])
		}
	}
	return names
}

// ping tries ICMP, by a raw socket or by the kernel's own ping socket.
func (p *prober) ping(to netip.Addr, rawSocket bool) trial {
	return func(ctx context.Context) Try {
		kind, word := unix.SOCK_DGRAM, "ping"
		if rawSocket {
			kind, word = unix.SOCK_RAW, "raw"
		}
		t := Try{Check: CheckICMP, Target: "icmp " + word + " " + to.String(), Outcome: Blocked}
		end, ok := ctx.Deadline()
		if !ok {
			end = time.Now().Add(p.Timeout)
		}
		if err := echo(to, kind, time.Until(end)); err != nil {
			t.Detail, t.Silent = err.Error(), errors.Is(err, errNoEcho)
		} else {
			t.Outcome, t.Detail = GotOut, "an answer"
		}
		return t
	}
}

// echo sends an echo request and waits for an answer that is not its own echo.
func echo(to netip.Addr, kind int, wait time.Duration) error {
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	request := []byte{8, 0, 0xf7, 0xfe, 0, 0, 0, 1} // type, code, check sum, identifier, number
	var addr unix.Sockaddr
	if to.Is4() {
		addr = &unix.SockaddrInet4{Addr: to.As4()}
	} else {
		family, protocol, request[0] = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128 // the kernel sums up version 6
		addr = &unix.SockaddrInet6{Addr: to.As16()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(wait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	if err := unix.Connect(fd, addr); err != nil { // so that only the target's answers come
		return err
	}
	if _, err := unix.Write(fd, request); err != nil {
		return err
	}
	if _, err = unix.Read(fd, make([]byte, 512)); errors.Is(err, unix.EAGAIN) {
		return errNoEcho
	}
	return err
}

// errNoEcho says that a request was sent, and nothing refused it.
var errNoEcho = errors.New("no answer")

// certificate reads a file of certificates as the agent.
func (p *prober) certificate(name string) trial {
	return func(context.Context) Try {
		t := Try{Check: CheckCertificates, Target: name, Outcome: Blocked}
		text, err := os.ReadFile(name)
		switch {
		case err != nil:
			t.Detail = err.Error()
		case !strings.Contains(string(text), "-----BEGIN CERTIFICATE-----"):
			t.Detail = "holds no certificate"
		default:
			t.Outcome = Answered
			t.Detail = fmt.Sprintf("%d certificates", strings.Count(string(text), "-----BEGIN CERTIFICATE-----"))
		}
		return t
	}
}
