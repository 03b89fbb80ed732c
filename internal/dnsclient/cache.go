// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnsclient

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"

	"bawn/internal/names"
)

// A result is what a name resolved to: addresses, or the reason why none.
type result struct {
	addrs  []netip.Addr
	ttl    time.Duration
	reason Reason
}

// list gives the result to a caller who may change the slice.
func (r result) list(h names.Host) ([]netip.Addr, error) {
	if len(r.addrs) == 0 {
		return nil, &Error{Host: h, Reason: r.reason}
	}
	return slices.Clone(r.addrs), nil
}

// A cache keeps results until they are out of date. When it is full, the result
// that was put in first makes room. The zero cache holds nothing, ever.
type cache struct {
	most int

	mu    sync.Mutex
	order list.List // of *entry, oldest first
	byKey map[names.Host]*list.Element
}

type entry struct {
	host    names.Host
	result  result
	expires time.Time
}

func (c *cache) get(h names.Host, now time.Time) (result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byKey[h]
	if !ok {
		return result{}, false
	}
	e := el.Value.(*entry)
	if !now.Before(e.expires) {
		c.remove(el)
		return result{}, false
	}
	return e.result, true
}

func (c *cache) put(h names.Host, r result, now time.Time) {
	ttl := min(r.ttl, MaxTTL)
	if ttl <= 0 || c.most == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil {
		c.byKey = map[names.Host]*list.Element{}
	}
	if old, ok := c.byKey[h]; ok {
		c.remove(old)
	}
	for c.order.Len() >= c.most {
		c.remove(c.order.Front())
	}
	c.byKey[h] = c.order.PushBack(&entry{h, r, now.Add(ttl)})
}

// remove takes an entry out; the lock is held.
func (c *cache) remove(el *list.Element) {
	c.order.Remove(el)
	delete(c.byKey, el.Value.(*entry).host)
}
