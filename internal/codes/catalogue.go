// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package codes

import (
	"slices"
	"strings"
)

// An Entry is what the catalogue says of a code.
type Entry struct {
	Code     Code
	Group    string // the heading it stands under; see [Groups]
	Meaning  string // what was refused, and what for, in one sentence
	Agent    string // what the agent should do instead; never to try again
	Operator string // what the operator can look at or change
	Status   int    // of the HTTP answer; 0 for codes that never stand in one
}

// The groups of the catalogue. A code of [GroupRequests] says that the request
// itself is at fault; what is refused with a code of
// [GroupAddresses] was allowed by policy first.
const (
	groupNames     = "Names and ports"
	GroupRequests  = "Requests"
	GroupAddresses = "Addresses and upstream"
	groupState     = "State"
	groupDNS       = "DNS"
	groupText      = "Text filter"
)

// Groups lists the groups in the order of the catalogue.
func Groups() []string {
	return []string{groupNames, GroupRequests, GroupAddresses, groupState, groupDNS, groupText}
}

// entries is the catalogue, and byCode where each code stands in it. Neither
// changes after the start of the program.
var (
	entries = build()
	byCode  = index(entries)
)

func build() []Entry {
	var all []Entry
	for _, group := range []struct {
		name    string
		entries []Entry
	}{
		{groupNames, nameEntries()},
		{GroupRequests, requestEntries()},
		{GroupAddresses, addressEntries()},
		{groupState, stateEntries()},
		{groupDNS, dnsEntries()},
		{groupText, textEntries()},
	} {
		for _, e := range group.entries {
			e.Group = group.name
			all = append(all, e)
		}
	}
	return all
}

func index(all []Entry) map[Code]int {
	m := make(map[Code]int, len(all))
	for i, e := range all {
		m[e.Code] = i
	}
	return m
}

// OperatorFor is what an operator can do, with the code in place of its name, and
// the agent's where one is given.
func (e Entry) OperatorFor(agent string) string {
	s := strings.ReplaceAll(e.Operator, "--code CODE", "--code "+string(e.Code))
	if agent != "" {
		s = strings.ReplaceAll(s, "--agent NAME", "--agent "+agent)
		s = strings.ReplaceAll(s, "bawn budget NAME", "bawn budget "+agent)
		s = strings.ReplaceAll(s, "bawn policy explain AGENT ", "bawn policy explain "+agent+" ")
	}
	return s
}

// Catalogue lists every code, in the order of its groups.
func Catalogue() []Entry { return slices.Clone(entries) }

// Lookup returns the entry of a code. A code that the catalogue does not have
// gets the entry of [InternalError] and false: whoever refuses without a known
// reason has a fault, and has still refused.
func Lookup(code Code) (Entry, bool) {
	i, ok := byCode[code]
	if !ok {
		i = byCode[InternalError]
	}
	return entries[i], ok
}

// StatusOf returns the HTTP status of a refusal with code.
func StatusOf(code Code) int {
	if e, _ := Lookup(code); e.Status != 0 {
		return e.Status
	}
	return 403
}

// A Pattern describes the codes that each provider guard adds under its own
// name, so that they are the same words everywhere. No guard of this build has
// any.
type Pattern struct {
	Suffixes []string // PROVIDER_SUFFIX is the code
	Meaning  string
}

// Patterns lists the forms of codes that guards bring.
func Patterns() []Pattern {
	return []Pattern{
		{[]string{"account_unavailable", "account_mismatch", "credential_required"},
			"openai_, anthropic_, google_, xai_: whose account a request uses is not known, is not the operator's, or is not said."},
		{[]string{"tool_denied", "search_denied", "remote_mcp_denied", "url_fetch_denied", "path_denied"},
			"openai_, anthropic_, google_, xai_: the request would make the provider run, search, call or fetch something on the agent's behalf, or uses an interface that is not open."},
		{[]string{"write_denied", "admin_write_denied", "graphql_denied", "lfs_denied", "push_held"},
			"github_: a write outside the repositories that may be written, or a push that waits for a person."},
		{[]string{"signature_invalid", "region_denied", "model_denied"},
			"bedrock_: a signature, a region or a model that is not the operator's."},
		{[]string{"write_denied", "origin_denied"},
			"registry_: a registry is there to be read, and only through its own origins."},
	}
}
