// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package codes names every reason to refuse.
//
// A code is a stable snake_case string: the same in the 403 body, the record,
// the metric label and the DNS extended error. Codes are added, never renamed.
// [Catalogue] holds each with guidance for the agent and for the operator.
package codes

// A Code is the reason of a refusal. The zero Code is none.
type Code string

// The codes, in the order of docs/codes.md.
const (
	HostNotAllowed         Code = "host_not_allowed"
	PortNotAllowed         Code = "port_not_allowed"
	HostInvalid            Code = "host_invalid"
	IPLiteralDenied        Code = "ip_literal_denied"
	SNIMismatch            Code = "sni_mismatch"
	SNIMissing             Code = "sni_missing"
	HostHeaderInvalid      Code = "host_header_invalid"
	AuthorityMismatch      Code = "authority_mismatch"
	SyntheticUnknown       Code = "synthetic_unknown"
	PlainHTTPDenied        Code = "plain_http_denied"
	MethodNotAllowed       Code = "method_not_allowed"
	PathNotAllowed         Code = "path_not_allowed"
	TargetInvalid          Code = "target_invalid"
	HeaderInvalid          Code = "header_invalid"
	HeaderDuplicate        Code = "header_duplicate"
	HeadTooLarge           Code = "head_too_large"
	FramingInvalid         Code = "framing_invalid"
	BodyTruncated          Code = "body_truncated"
	BodyTooLarge           Code = "body_too_large"
	BodyNotAllowed         Code = "body_not_allowed"
	BodyUndecodable        Code = "body_undecodable"
	BodyNotJSON            Code = "body_not_json"
	JSONDuplicateKey       Code = "json_duplicate_key"
	JSONTooDeep            Code = "json_too_deep"
	FieldNotAllowed        Code = "field_not_allowed"
	ContentTypeDenied      Code = "content_type_denied"
	UpgradeDenied          Code = "upgrade_denied"
	WebSocketNotAllowed    Code = "websocket_not_allowed"
	WebSocketProtocolError Code = "websocket_protocol_error"
	WebSocketUninspectable Code = "websocket_uninspectable"
	ALPNDenied             Code = "alpn_denied"
	ProtocolError          Code = "protocol_error"
	AddressNotPublic       Code = "address_not_public"
	AddressUnresolved      Code = "address_unresolved"
	UpstreamUnreachable    Code = "upstream_unreachable"
	UpstreamTLSInvalid     Code = "upstream_tls_invalid"
	PolicyInvalid          Code = "policy_invalid"
	PolicyUnavailable      Code = "policy_unavailable"
	PolicyDenied           Code = "policy_denied"
	RuleExpired            Code = "rule_expired"
	LeaseLapsed            Code = "lease_lapsed"
	JournalUnavailable     Code = "journal_unavailable"
	BudgetExceeded         Code = "budget_exceeded"
	RateLimited            Code = "rate_limited"
	ConcurrencyExceeded    Code = "concurrency_exceeded"
	AuditQuota             Code = "audit_quota"
	ApprovalPending        Code = "approval_pending"
	ApprovalDenied         Code = "approval_denied"
	ApprovalExpired        Code = "approval_expired"
	InternalError          Code = "internal_error"
	DNSNameNotAllowed      Code = "dns_name_not_allowed"
	DNSTypeDenied          Code = "dns_type_denied"
	DNSMalformed           Code = "dns_malformed"
	DNSLabelBudget         Code = "dns_label_budget"
	TextTooLarge           Code = "text_too_large"
	TextEncoded            Code = "text_encoded"
	TextSecret             Code = "text_secret"
	TextPersonal           Code = "text_personal"
)

// Those of the road from the proxy to a server. UpstreamTLSInvalid is for what
// none of the others says.
const (
	UpstreamTLSExpired         Code = "upstream_tls_expired"
	UpstreamTLSNotYetValid     Code = "upstream_tls_not_yet_valid"
	UpstreamTLSSelfSigned      Code = "upstream_tls_self_signed"
	UpstreamTLSWrongHost       Code = "upstream_tls_wrong_host"
	UpstreamTLSUntrusted       Code = "upstream_tls_untrusted"
	UpstreamTLSNameConstrained Code = "upstream_tls_name_constrained"
	UpstreamTLSWeak            Code = "upstream_tls_weak"
	ParentProxyRefused         Code = "parent_proxy_refused"
	ParentProxyUnreachable     Code = "parent_proxy_unreachable"
	CredentialUnavailable      Code = "credential_unavailable"
	CredentialAmbiguous        Code = "credential_ambiguous"
)
