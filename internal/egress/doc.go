// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package egress is the plane that everything an agent sends goes through.
//
// # The road of a request
//
// The files follow it:
//
//	accept.go       a connection comes in; whose it is, and its limits
//	reader.go       what of a connection is kept while it waits
//	explicit.go     CONNECT and absolute-form, from clients that know the proxy
//	transparent.go  redirected connections, whose address stands for a name
//	name.go         CONNECT authority, SNI and Host are one canonical name
//	tls.go          the greeting is read; TLS ends here, or is spliced
//	head.go         the head of one request: strict, canonical, judged
//	guard.go        guards, and the body where one asks for it
//	hold.go         how much of that is kept, for one agent
//	authority.go    what an agent must not send is taken out
//	doh.go          questions to a resolver by HTTP are refused
//	budget.go       names that the agent makes up under wildcards are counted
//	spend.go        what is let through is counted against the agent's budgets
//	record.go       the decision goes on record, and the lease is checked again
//	dial.go         the name is resolved, every address vetted, one dialled
//	parent.go       or another proxy is asked to do that
//	secure.go       verified TLS with the server
//	pool.go         upstream connections that wait for the next request
//	relay.go        head and body go up, the response comes down
//	leg.go          what a request needs of its two connections, in any version
//	h1_agent.go     HTTP/1.1 towards the agent
//	h1_upstream.go  HTTP/1.1 towards the server
//	h2_agent.go     HTTP/2 towards the agent: each stream is a request
//	h2_upstream.go  HTTP/2 towards the server: requests share a connection
//	upload.go       bodies that are longer than what has come with the head
//	websocket.go    a request becomes a WebSocket, if the server says so
//	ws_relay.go     messages are judged and go from one end to the other
//	ws_end.go       one end of a WebSocket: what is written, pings, the close
//	splice.go       bytes between two connections, unread
//	carry.go        one direction of them
//	greetings.go    a second greeting in TLS that is spliced
//	deny.go         what an agent hears instead
//	live.go         open connections are judged again, and bounded in time
//
// # What holds
//
// Every request is judged by the policy that is in force when it is judged,
// before a name is resolved or a byte sent, and is on record first. What cannot
// be decided is denied with a code. One agent's connections, to the proxy and
// from it, never serve another. A panic ends one request.
//
// # Use
//
// A [Server] is made by [New] and serves any number of listeners, each by one
// call of [Server.Serve]. It closes what it accepted when the call's context
// ends. Time limits and changes of policy are enforced by one goroutine that
// runs while there are connections.
package egress
