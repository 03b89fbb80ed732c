// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"bawn/internal/fdpass"
	"bawn/internal/peercred"
)

// askTime bounds a hand-over on a socket.
const askTime = 10 * time.Second

// Give hands c over to the proxy, whose account is proxy, on a socket that it
// has connected to. Anybody else is refused.
func Give(c *net.UnixConn, proxy uint32, contents func() (*Contents, error)) error {
	peer, err := peercred.Of(c)
	if err != nil {
		return fmt.Errorf("handing over: %w", err)
	}
	if peer.UID != proxy {
		return fmt.Errorf("handing over: uid %d asks, who is not the proxy", peer.UID)
	}
	what, err := contents()
	if err != nil {
		return fmt.Errorf("handing over: %w", err)
	}
	f, err := what.File()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.SetDeadline(time.Now().Add(askTime)); err != nil {
		return fmt.Errorf("handing over: %w", err)
	}
	return fdpass.New(c).Send(struct{}{}, f)
}

// Ask takes over what the socket at path gives, for a proxy that a service
// manager started. Only root may give.
func Ask(ctx context.Context, path string) (*Contents, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("taking over: %w", err)
	}
	u := c.(*net.UnixConn)
	defer u.Close()
	if err := u.SetDeadline(time.Now().Add(askTime)); err != nil {
		return nil, fmt.Errorf("taking over: %w", err)
	}
	f, err := receive(u)
	if err != nil {
		return nil, fmt.Errorf("taking over from %s: %w", path, err)
	}
	return take(f)
}

func receive(c *net.UnixConn) (*os.File, error) {
	peer, err := peercred.Of(c)
	if err != nil {
		return nil, err
	}
	if peer.UID != 0 && int(peer.UID) != os.Geteuid() {
		return nil, fmt.Errorf("uid %d gives, who is not root", peer.UID)
	}
	files, err := fdpass.New(c).Receive(&struct{}{})
	if err != nil {
		return nil, fmt.Errorf("it gives nothing (its own log says why): %w", err)
	}
	if len(files) != 1 {
		fdpass.CloseAll(files)
		return nil, fmt.Errorf("it gives %d descriptors", len(files))
	}
	return files[0], nil
}
