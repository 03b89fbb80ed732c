// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package codes

func addressEntries() []Entry {
	reached := []Entry{
		{Code: AddressNotPublic, Meaning: "The name resolves to an address that is private, local or otherwise special.", Status: 403,
			Agent:    askOperator,
			Operator: showRecord + " If the target is meant, name its range in `addresses:` of the rule. Addresses of this host are never reached. Behind a parent proxy, whose addresses cannot be vetted, the host has to be in its `bypass:` as well."},
		{Code: AddressUnresolved, Meaning: "The name has no address.", Status: 502,
			Agent:    "Check the host name. Do not repeat the request.",
			Operator: showRecord + " The proxy asks the resolvers of its configuration only, never hosts files or search lists."},
		{Code: UpstreamUnreachable, Meaning: "The server could not be reached, or closed the connection without a proper answer.", Status: 502,
			Agent: passing, Operator: showRecord + " The request was allowed; the network or the server is at fault."},
	}
	return append(reached, append(upstreamTLSEntries(), roadEntries()...)...)
}

// keepVerifying is what an agent hears of every server that could not prove who
// it is.
const keepVerifying = "Do not switch verification off, and do not use http instead. Tell your operator."

func upstreamTLSEntries() []Entry {
	return []Entry{
		{Code: UpstreamTLSExpired, Meaning: "The certificate of the server, or of one of its issuers, has expired.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " Whoever runs the server has to renew it. If others reach the server, look at this host's clock."},
		{Code: UpstreamTLSNotYetValid, Meaning: "The certificate of the server, or of one of its issuers, is not valid yet.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " Look at this host's clock first."},
		{Code: UpstreamTLSSelfSigned, Meaning: "The server has signed its certificate itself, so that it proves nothing.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " If it is meant, put this certificate into the file of `upstream_roots:`."},
		{Code: UpstreamTLSWrongHost, Meaning: "The certificate of the server is for other hosts, or the server does not know the name.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " The name in the rule and in the request has to be one that the certificate holds."},
		{Code: UpstreamTLSUntrusted, Meaning: "The certificate of the server leads to no authority that is trusted here.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " A private authority has to be in the file of `upstream_roots:`. A server that does not send its intermediate certificates has to be mended."},
		{Code: UpstreamTLSNameConstrained, Meaning: "An issuer of the server's certificate may not sign for this name.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " The authority is limited to other names (name constraints); no setting widens it."},
		{Code: UpstreamTLSWeak, Meaning: "The server has nothing but old versions, suites, keys or signatures of TLS to offer, which others could forge or read.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " Needed are TLS 1.2 with a forward secret suite, RSA keys of 2048 bits, and signatures with SHA-256. No setting lowers that."},
		{Code: UpstreamTLSInvalid, Meaning: "The server could not prove that it is the host that was asked for.", Status: 502,
			Agent: keepVerifying, Operator: showRecord + " Verification cannot be switched off. A server that wants a client certificate needs a rule with `credential:`."},
	}
}

// roadEntries are about what stands between the proxy and the server.
func roadEntries() []Entry {
	return []Entry{
		{Code: ParentProxyRefused, Meaning: "The proxy through which this host reaches the internet refused the connection.", Status: 502,
			Agent: passing, Operator: showRecord + " The answer of the parent proxy stands there: 407 is about its `username:` and `password_file:`, 403 about its own rules, which often let through port 443 only."},
		{Code: ParentProxyUnreachable, Meaning: "The proxy through which this host reaches the internet cannot be reached, or could not prove who it is.", Status: 502,
			Agent: passing, Operator: "`bawn doctor`. " + showRecord + " The address stands in `parent_proxy:`; its certificate is verified by the roots of its `ca:`."},
		{Code: CredentialUnavailable, Meaning: "The credential that the rule uses is not there.", Status: 503,
			Agent: passing, Operator: "The proxy was started without it: look at `credentials:` in the configuration, and start `bawn up` again."},
	}
}
