// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package uptls

import (
	"container/list"
	"crypto/tls"
	"sync"
	"time"
)

// maxSessions is how many sessions a client may resume.
const maxSessions = 64

// sessions keeps the newest session of each host and scope.
type sessions struct {
	mu    sync.Mutex
	byKey map[sessionKey]*list.Element // of *session
	order list.List                    // the one used last is first
}

type sessionKey struct{ host, scope string }

type session struct {
	key   sessionKey
	state *tls.ClientSessionState
	until time.Time // when the chain that it began with will not verify any more
}

// get returns a session whose server would still be accepted. One that is past
// its time goes: the server has another certificate by now.
func (s *sessions) get(key sessionKey, now time.Time) (*tls.ClientSessionState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[key]
	if e == nil {
		return nil, false
	}
	found := e.Value.(*session)
	if !now.Before(found.until) {
		s.remove(e)
		return nil, false
	}
	s.order.MoveToFront(e)
	return found.state, true
}

// put keeps a session; one without a state forgets what there is.
func (s *sessions) put(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[n.key]; e != nil {
		s.remove(e)
	}
	if n.state == nil {
		return
	}
	if s.byKey == nil {
		s.byKey = map[sessionKey]*list.Element{}
	}
	s.byKey[n.key] = s.order.PushFront(n)
	if s.order.Len() > maxSessions {
		s.remove(s.order.Back())
	}
}

// remove forgets a session. mu is held.
func (s *sessions) remove(e *list.Element) {
	s.order.Remove(e)
	delete(s.byKey, e.Value.(*session).key)
}

func (h *handshake) key() sessionKey { return sessionKey{h.use.Host, h.use.Scope} }

// Get and Put make a handshake the [tls.ClientSessionCache] of its connection,
// whose own idea of a key says too little.
func (h *handshake) Get(string) (*tls.ClientSessionState, bool) {
	return h.client.sessions.get(h.key(), h.client.trust.now())
}

// Put is called once the server has been verified.
func (h *handshake) Put(_ string, state *tls.ClientSessionState) {
	h.client.sessions.put(&session{h.key(), state, h.until})
}
