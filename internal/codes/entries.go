// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package codes

// The guidance says the same thing in every entry in the same words. Nothing in
// it may invite an agent to try a refused thing again, or to look for a way
// around.
const (
	askOperator = "Do not repeat the request. Go on without it, or ask your operator."
	fixRequest  = "The request itself is malformed. Do not repeat it as it is; correct the program that wrote it, or go on without it."
	passing     = "Nothing about the request is wrong, and repeating it at once will not help. Tell your operator, and go on with other work."
	explain     = "`bawn policy explain AGENT METHOD URL` shows every rule and why it does not match."
	showRecord  = "`bawn log --code CODE --agent NAME` shows the records with the detail."
)

func nameEntries() []Entry {
	return []Entry{
		{Code: HostNotAllowed, Meaning: "No rule allows this host.", Status: 403,
			Agent:    askOperator + " Another spelling or address of the host is refused as well.",
			Operator: explain + " To allow it, add a rule with `host:` and run `bawn policy apply`."},
		{Code: PortNotAllowed, Meaning: "The host is allowed, but not on this port.", Status: 403,
			Agent:    "Use the port that is allowed, which is 443 (https) unless you were told another one. " + askOperator,
			Operator: explain + " A rule without `ports:` allows 443 only; port 80 has to be written."},
		{Code: HostInvalid, Meaning: "What was sent as a host name or authority is none.", Status: 400,
			Agent:    fixRequest + " Host names are letters, digits, hyphens and dots, without user name and with a decimal port.",
			Operator: showRecord + " No rule can allow such a name."},
		{Code: IPLiteralDenied, Meaning: "The request names an address instead of a host.", Status: 403,
			Agent:    "Use the host name. " + askOperator,
			Operator: "Rules are about names. Allow the name with a rule, with `addresses:` if it resolves to a private range."},
		{Code: SNIMismatch, Meaning: "The name in the TLS greeting is not the name that the connection was opened for.", Status: 403,
			Agent:    "Open the connection for the host that you mean. " + askOperator,
			Operator: showRecord + " One connection reaches one name; no rule changes that."},
		{Code: SNIMissing, Meaning: "The TLS greeting names no host, and the rule needs one to judge the connection.", Status: 403,
			Agent:    "Use a client that sends the server name (SNI). " + askOperator,
			Operator: "The rule has `inspect: sni`. `inspect: full` takes the name from the tunnel instead."},
		{Code: HostHeaderInvalid, Meaning: "The Host field is missing, doubled, malformed or names another host than the connection is for.", Status: 400,
			Agent:    fixRequest + " Each request needs one Host field with the host of the connection.",
			Operator: showRecord + " Naming one host and reaching another is a way to hide the destination."},
		{Code: AuthorityMismatch, Meaning: "The target of the request names another host or port than the connection is for.", Status: 421,
			Agent:    fixRequest + " Open a connection of its own for each host.",
			Operator: showRecord},
		{Code: SyntheticUnknown, Meaning: "The connection went to a stand-in address that stands for no name of this agent.", Status: 403,
			Agent:    "Resolve the host name again instead of keeping addresses. " + askOperator,
			Operator: "Bawn's resolver hands these addresses out per agent; one from elsewhere or from long ago means nothing."},
		{Code: PlainHTTPDenied, Meaning: "The request came without TLS for a port on which TLS is allowed.", Status: 403,
			Agent:    "Use https. " + askOperator,
			Operator: explain + " Plain HTTP is allowed by port 80 or by `PORT/http` in `ports:`."},
	}
}

func requestEntries() []Entry {
	return append(headEntries(), append(bodyEntries(), protocolEntries()...)...)
}

func headEntries() []Entry {
	return []Entry{
		{Code: MethodNotAllowed, Meaning: "The host is allowed, but not with this method.", Status: 403,
			Agent: askOperator, Operator: explain + " Methods stand in `methods:`; `guard: read-only` allows GET, HEAD and OPTIONS."},
		{Code: PathNotAllowed, Meaning: "The host is allowed, but not this path.", Status: 403,
			Agent: askOperator, Operator: explain + " Paths stand in `paths:`."},
		{Code: TargetInvalid, Meaning: "The target of the request can be read in more than one way, or not at all.", Status: 400,
			Agent:    fixRequest + " Send a path without dot segments, empty segments, backslashes, fragments and doubly encoded characters.",
			Operator: showRecord + " No rule can allow such a target: the receiver might read another path than was judged."},
		{Code: HeaderInvalid, Meaning: "A line of the head is malformed, or holds a field that is not forwarded.", Status: 400,
			Agent: fixRequest, Operator: showRecord},
		{Code: HeaderDuplicate, Meaning: "A field that may stand once stands twice.", Status: 400,
			Agent: fixRequest, Operator: showRecord},
		{Code: HeadTooLarge, Meaning: "The head of the request is larger than the limit.", Status: 431,
			Agent: "Send fewer or shorter header fields. Do not repeat the request as it is.", Operator: showRecord},
		{Code: FramingInvalid, Meaning: "Where the body ends is not clear: the length is malformed, doubled or contradicts the transfer coding.", Status: 400,
			Agent: fixRequest, Operator: showRecord + " Two readers could disagree where the next request begins."},
	}
}

func bodyEntries() []Entry {
	return []Entry{
		{Code: BodyTruncated, Meaning: "The body ended before its announced end.", Status: 400,
			Agent: fixRequest, Operator: showRecord + " Nothing that a guard has to judge is sent on in part."},
		{Code: BodyTooLarge, Meaning: "The body is larger than what can be judged.", Status: 413,
			Agent: "Send less in one request. Do not repeat it as it is.", Operator: showRecord},
		{Code: BodyNotAllowed, Meaning: "The request carries a body where only reading is allowed.", Status: 403,
			Agent: askOperator, Operator: "The rule has `guard: read-only`. " + explain},
		{Code: BodyUndecodable, Meaning: "The body has an encoding that cannot be undone, so that it cannot be judged.", Status: 415,
			Agent: "Send the body without Content-Encoding. Do not repeat it as it is.", Operator: showRecord},
		{Code: BodyNotJSON, Meaning: "The body is not the JSON document that the guard of this host expects.", Status: 400,
			Agent: fixRequest, Operator: showRecord},
		{Code: JSONDuplicateKey, Meaning: "A JSON object in the body has a key twice, or two keys that differ in case only.", Status: 400,
			Agent: fixRequest, Operator: showRecord + " Two readers could take different values."},
		{Code: JSONTooDeep, Meaning: "The JSON document nests deeper than the limit.", Status: 400,
			Agent: fixRequest, Operator: showRecord},
		{Code: FieldNotAllowed, Meaning: "The body has a field that the guard of this host does not allow.", Status: 403,
			Agent: "Leave the field away if the task allows it. " + askOperator, Operator: showRecord + " The field may be named in `allow_fields:` where the guard takes it."},
		{Code: ContentTypeDenied, Meaning: "The body, or the answer that is asked for, is of a type that cannot be judged here, such as DNS over HTTPS.", Status: 415,
			Agent: askOperator, Operator: showRecord},
	}
}

func protocolEntries() []Entry {
	return []Entry{
		{Code: UpgradeDenied, Meaning: "The request asks for a change of protocol that is not open.", Status: 403,
			Agent: "Use HTTP/1.1 without an upgrade. " + askOperator, Operator: showRecord},
		{Code: WebSocketNotAllowed, Meaning: "No rule allows a WebSocket here.", Status: 403,
			Agent: "Use plain requests if the service has them. " + askOperator, Operator: explain + " WebSockets need `websocket: true`."},
		{Code: WebSocketProtocolError, Meaning: "The WebSocket stream breaks its protocol.", Status: 400,
			Agent: fixRequest, Operator: showRecord},
		{Code: WebSocketUninspectable, Meaning: "A WebSocket message cannot be judged.", Status: 403,
			Agent: askOperator, Operator: showRecord},
		{Code: ALPNDenied, Meaning: "The TLS greeting offers no protocol that can be inspected, or the server does not speak HTTP/2, which gRPC needs.", Status: 403,
			Agent: "Offer h2 or http/1.1. A server without HTTP/2 serves no gRPC. " + askOperator, Operator: "For a protocol that is not HTTP write a rule with `inspect: sni` or `inspect: none`. The detail on record says which of the two it was."},
		{Code: ProtocolError, Meaning: "The bytes are not the protocol that this port speaks.", Status: 400,
			Agent: fixRequest, Operator: "For a protocol that is not HTTP write a rule with `inspect: none`, for HTTP without TLS one with `PORT/http`."},
	}
}

func stateEntries() []Entry {
	return append(policyEntries(), append(limitEntries(), approvalEntries()...)...)
}

func policyEntries() []Entry {
	return []Entry{
		{Code: PolicyInvalid, Meaning: "The policy was refused; nothing of it is in force.", Status: 503,
			Agent: passing, Operator: "`bawn policy test` and `bawn policy apply` list every problem with its line."},
		{Code: PolicyUnavailable, Meaning: "There is no policy to judge by.", Status: 503,
			Agent: passing, Operator: "`bawn status` shows which part is missing; `bawn policy show` shows the policy in force. Without one everything is denied."},
		{Code: PolicyDenied, Meaning: "A rule denies this.", Status: 403,
			Agent: askOperator, Operator: explain + " A rule that denies wins over every rule that allows."},
		{Code: RuleExpired, Meaning: "The rule that would have allowed this has expired.", Status: 403,
			Agent: askOperator, Operator: explain + " Give the rule a new `expires:`, or remove it."},
		{Code: CredentialAmbiguous, Meaning: "Rules with different credentials allow this, and which of them to use would be a guess.", Status: 403,
			Agent: askOperator, Operator: explain + " Give the rules paths, methods or ports that no request can match together, or one credential."},
		{Code: LeaseLapsed, Meaning: "The proxy has not heard from the part that keeps the policy, and may not go on by an old one.", Status: 503,
			Agent: passing, Operator: "`bawn status` and `bawn doctor`: `bawn admin` or its database has stopped or hangs."},
		{Code: JournalUnavailable, Meaning: "The decision could not be put on record, and what is not on record is not done.", Status: 503,
			Agent: passing, Operator: "`bawn doctor`: the disk that holds the journal is full or has failed."},
		{Code: InternalError, Meaning: "Bawn has a fault; the request was refused because nothing decided that it may go.", Status: 500,
			Agent: passing, Operator: showRecord + " The cause is in the log of the proxy. Please report it."},
	}
}

func limitEntries() []Entry {
	return []Entry{
		{Code: BudgetExceeded, Meaning: "A budget of this agent is used up.", Status: 429,
			Agent: "Stop sending. " + askOperator, Operator: showRecord + " `bawn budget NAME` shows what is used and when it begins anew. Budgets stand in `budgets:` of the policy; a larger one counts at once."},
		{Code: RateLimited, Meaning: "This agent sends requests faster than it may.", Status: 429,
			Agent: "Send less, and more slowly. Do not repeat what was refused.", Operator: showRecord + " Rates stand in `budgets:` of the policy, but for those of pings and of questions to the resolver, which are fixed as well."},
		{Code: ConcurrencyExceeded, Meaning: "This agent has as many connections or requests open as it may.", Status: 429,
			Agent: "Finish what is open before you open more. Do not repeat what was refused.", Operator: showRecord + " `connections` in `budgets:` of the policy may be the bound."},
		{Code: AuditQuota, Meaning: "This agent has asked for so much that its share of the record, which grows again with time, is used up.", Status: 429,
			Agent: "Send less, and more slowly. " + askOperator, Operator: showRecord + " Look at what the agent is doing."},
	}
}

func approvalEntries() []Entry {
	return []Entry{
		{Code: ApprovalPending, Meaning: "The request waits for a person.", Status: 403,
			Agent: "Do not repeat the request: it is already being asked for. Go on with other work until you are told.", Operator: showRecord},
		{Code: ApprovalDenied, Meaning: "A person has said no.", Status: 403,
			Agent: "Do not ask for it again. Go on without it.", Operator: showRecord},
		{Code: ApprovalExpired, Meaning: "Nobody answered in time.", Status: 403,
			Agent: "Do not repeat the request. Tell your operator that nobody answered.", Operator: showRecord},
	}
}

func dnsEntries() []Entry {
	return []Entry{
		{Code: DNSNameNotAllowed, Meaning: "No rule allows this name, so it is not resolved.",
			Agent: askOperator, Operator: explain},
		{Code: DNSTypeDenied, Meaning: "Only addresses are answered for, no other type of record.",
			Agent: "Connect to the host by its name; no other records are needed. " + askOperator, Operator: showRecord},
		{Code: DNSMalformed, Meaning: "The DNS message is malformed.",
			Agent: fixRequest, Operator: showRecord},
		{Code: DNSLabelBudget, Meaning: "Under a wildcard more names were used in a day, or a longer name, than services need.", Status: 429,
			Agent:    "Stop making up names. " + askOperator,
			Operator: showRecord + " Many names under a wildcard can carry data out. Name the hosts that are needed, or raise `wildcards:` in the configuration."},
	}
}

func textEntries() []Entry {
	return []Entry{
		{Code: TextTooLarge, Meaning: "A text that leaves the boundary is longer than the limit.", Status: 413,
			Agent: "Send a shorter text. Do not repeat it as it is.", Operator: showRecord},
		{Code: TextEncoded, Meaning: "A text that leaves the boundary is encoded or holds invisible characters, so that it cannot be judged.", Status: 403,
			Agent: "Write plain words. " + askOperator, Operator: showRecord},
		{Code: TextSecret, Meaning: "A text that leaves the boundary holds what looks like a secret.", Status: 403,
			Agent: "Leave the secret away. Do not send it in another form. " + askOperator, Operator: showRecord},
		{Code: TextPersonal, Meaning: "A text that leaves the boundary holds what looks like personal data.", Status: 403,
			Agent: "Leave the personal data away. " + askOperator, Operator: showRecord},
	}
}
