// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"math"
	"slices"

	"golang.org/x/net/http2"
)

// Everything here needs conn.mu. An error ends the connection.

// blame ends a stream for what the peer did on it.
func (c *conn) blame(id uint32, code http2.ErrCode, detail string) error {
	s := c.find(id)
	switch {
	case s == nil && c.idle(id):
		return violation(code, detail)
	case s == nil:
		return c.idleFrame("frames on streams that have ended")
	case !c.churn.take(1):
		return flood("streams that had to be reset")
	}
	s.reset(code, violation(code, detail))
	return c.polite()
}

func (c *conn) settingsIn(f *http2.SettingsFrame) error {
	if !c.noise.take(settingsNoise + f.NumSettings()) {
		return flood("settings")
	}
	if f.IsAck() {
		c.acknowledged()
		return nil
	}
	for i := range f.NumSettings() {
		if err := c.setting(f.Setting(i)); err != nil {
			return err
		}
	}
	c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	return c.polite()
}

// acknowledged takes in that the peer knows our settings. Streams that began
// with the window that HTTP/2 gives them now have ours, which may be less.
func (c *conn) acknowledged() {
	if c.acked {
		return
	}
	c.acked = true
	if less := initWindow - c.lim.StreamWindow; less > 0 {
		for _, s := range c.streams {
			s.body.window -= less
		}
	}
}

func (c *conn) setting(s http2.Setting) error {
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.peerTable = s.Val
		if c.henc != nil {
			c.henc.SetMaxDynamicTableSize(s.Val)
		}
	case http2.SettingEnablePush:
		if s.Val > 1 || s.Val == 1 && c.server == nil {
			return violation(http2.ErrCodeProtocol, "a setting about pushes that is none")
		}
	case http2.SettingMaxConcurrentStreams:
		c.peerStreams = int(min(s.Val, math.MaxInt32))
	case http2.SettingInitialWindowSize:
		return c.initialWindow(s.Val)
	case http2.SettingMaxFrameSize:
		if s.Val < maxFrame || s.Val > 1<<24-1 {
			return violation(http2.ErrCodeProtocol, "a frame size outside its bounds")
		}
	case http2.SettingEnableConnectProtocol:
		if s.Val > 1 {
			return violation(http2.ErrCodeProtocol, "a setting about extended CONNECT that is none")
		}
	}
	return nil
}

// initialWindow changes the window of each stream by as much as that of new
// ones changes (RFC 9113 section 6.9.2). It may leave one below zero.
func (c *conn) initialWindow(v uint32) error {
	if v > maxWindow {
		return violation(http2.ErrCodeFlowControl, "an initial window over its bound")
	}
	change := int(v) - c.peerWindow
	c.peerWindow = int(v)
	for _, s := range c.streams {
		if s.sendWindow += change; s.sendWindow > maxWindow {
			return violation(http2.ErrCodeFlowControl, "a window over its bound")
		}
		s.writes.Broadcast()
	}
	return nil
}

func (c *conn) windowUpdateIn(id uint32, n int) error {
	if err := c.idleFrame("window updates"); err != nil {
		return err
	}
	if id == 0 {
		if c.sendWindow += n; c.sendWindow > maxWindow {
			return violation(http2.ErrCodeFlowControl, "a window over its bound")
		}
		c.feed()
		return nil
	}
	s := c.find(id)
	switch {
	case s == nil && c.idle(id):
		return violation(http2.ErrCodeProtocol, "an update of the window of a stream that is not open")
	case s == nil:
		return nil
	}
	if s.sendWindow += n; s.sendWindow > maxWindow {
		return c.blame(id, http2.ErrCodeFlowControl, "a window over its bound")
	}
	s.writes.Broadcast()
	return nil
}

func (c *conn) rstIn(id uint32, code http2.ErrCode) error {
	s := c.find(id)
	switch {
	case s == nil && c.idle(id):
		return violation(http2.ErrCodeProtocol, "a reset of a stream that is not open")
	case s == nil:
		return c.idleFrame("resets of streams that have ended")
	case c.server != nil && !s.ended && !c.churn.take(1):
		return flood("resets")
	}
	s.abort(&ResetError{Code: code})
	c.remove(s)
	return nil
}

func (c *conn) pingIn(f *http2.PingFrame) error {
	if err := c.idleFrame("pings"); err != nil || f.IsAck() {
		return err
	}
	c.frame(http2.FramePing, http2.FlagPingAck, 0, len(f.Data), f.Data[:]...)
	return c.polite()
}

// priorityIn overlooks priorities, as RFC 9113 section 5.3.2 allows, but not a
// stream that is to depend on itself.
func (c *conn) priorityIn(f *http2.PriorityFrame) error {
	if err := c.idleFrame("priorities"); err != nil {
		return err
	}
	if f.StreamDep == f.StreamID {
		return c.blame(f.StreamID, http2.ErrCodeProtocol, "a stream that depends on itself")
	}
	return nil
}

// goAwayIn takes in that the peer opens or takes no more streams. Those of ours
// that it will not look at end here; the others go on.
func (c *conn) goAwayIn(f *http2.GoAwayFrame) error {
	if err := c.idleFrame("farewells"); err != nil || c.server != nil {
		return err
	}
	c.draining = true
	for _, s := range slices.Clone(c.streams) {
		if s.id > f.LastStreamID {
			c.remember(s.id)
			s.abort(ErrGone)
			c.remove(s)
		}
	}
	c.maybeOver()
	return nil
}
