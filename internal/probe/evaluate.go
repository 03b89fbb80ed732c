// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"strings"

	"bawn/internal/apitype"
	"bawn/internal/ids"
	"bawn/internal/netplan"
)

// A rule is how the tries of one check are judged.
type rule struct {
	check Check
	title string
	// answered says that Bawn must have answered every try; otherwise it is
	// enough that none got out.
	answered bool
	only     ids.Placement // empty: every placement
	limit    ids.Placement // the placement whose documented limits it may tell
	fix      map[ids.Placement]string
}

// The fixes, where more than one check has the same.
const (
	fixLink  = "something put a link into the agent's network namespace: keep programs that move links between namespaces away from it, and start bawn up again"
	fixTable = "the table inet bawn does not hold: look at nft list table inet bawn, find what else changes the rules, and start bawn up again"
	fixView  = "something shows the host's /run or /var in the agent's view: agents see /usr, /opt, /nix and /gnu of the host; move the socket elsewhere"
	fixProxy = "the proxy does not refuse as it must: look at bawn status and at the proxy's log; bawn up starts it again"
)

func both(fix string) map[ids.Placement]string {
	return map[ids.Placement]string{ids.PlacementNetns: fix, ids.PlacementUID: fix}
}

func each(netns, uid string) map[ids.Placement]string {
	return map[ids.Placement]string{ids.PlacementNetns: netns, ids.PlacementUID: uid}
}

// rules are the lines of doctor, in their order.
var rules = []rule{
	{check: CheckLinks, title: "no link to anywhere", only: ids.PlacementNetns, fix: both(fixLink)},
	{check: CheckTCP, title: "direct TCP", fix: each(fixLink, fixTable)},
	{check: CheckUDP, title: "direct UDP", fix: each(fixLink, fixTable)},
	{check: CheckICMP, title: "ICMP", fix: each(fixLink, fixTable)},
	{check: CheckDNS, title: "other resolvers", fix: each(fixLink, fixTable)},
	{check: CheckMetadata, title: "cloud metadata", fix: each(fixLink, fixTable)},
	{check: CheckLoopback, title: "the host's loopback", fix: each(fixLink, fixTable)},
	{check: CheckServices, title: "local services", fix: both(fixView)},
	{check: CheckAbstract, title: "abstract sockets", limit: ids.PlacementUID, fix: each(fixLink,
		"Linux 6.12 or newer with Landlock keeps agents from the host's abstract sockets; or use the netns placement, where there are none")},
	{check: CheckOwn, title: "Bawn's own sockets", fix: both(fixView)},
	{check: CheckKernel, title: "the kernel's back doors", fix: both("the agent's list of system calls does not hold: a kernel with CONFIG_SECCOMP_FILTER is needed, and Bawn's binary must be its own, unchanged")},
	{check: CheckProxy, title: "a name that is not allowed, by the proxy", answered: true, fix: both(fixProxy)},
	{check: CheckResolver, title: "a name that is not allowed, by DNS", answered: true, only: ids.PlacementNetns, fix: both(fixProxy)},
	{check: CheckCertificates, title: "Bawn's certificates", answered: true, fix: both("the agent cannot read Bawn's public certificates: look at the permissions of the directory public in Bawn's state directory, which everybody must be able to read")},
}

// moved are the counters that the probe's tries must have moved: silence proves
// nothing by itself.
var moved = map[ids.Placement][]string{
	ids.PlacementNetns: {netplan.CountRedirected, netplan.CountUDP},
	ids.PlacementUID:   {netplan.CountDenied4},
}

// Evaluate turns the tries of one placement, and the packets that the firewall
// had counted before and after, into lines. A check without a try is a failed
// one.
func Evaluate(placement ids.Placement, tries []Try, before, after map[string]uint64) []apitype.DoctorLine {
	byCheck := map[Check][]Try{}
	for _, t := range tries {
		byCheck[t.Check] = append(byCheck[t.Check], t)
	}
	var lines []apitype.DoctorLine
	for _, r := range rules {
		if r.only == "" || r.only == placement {
			lines = append(lines, r.judge(placement, byCheck[r.check]))
		}
	}
	return append(lines, judgeCounters(placement, before, after))
}

func (r rule) judge(placement ids.Placement, tries []Try) apitype.DoctorLine {
	line := apitype.DoctorLine{Placement: placement, Check: r.title}
	var bad, limits []string
	for _, t := range tries {
		if t.Outcome == GotOut && t.Limit && r.limit == placement {
			limits = append(limits, t.Target)
		} else if t.Outcome == GotOut || r.answered && t.Outcome != Answered {
			bad = append(bad, strings.TrimSpace(t.Target+" "+t.Detail))
		}
	}
	switch {
	case len(tries) == 0:
		line.Detail = "was not tried"
		line.Fix = "run bawn doctor again; if this stays, the probe cannot run in the agent's place: look at netd's log"
	case len(bad) > 0:
		line.Detail = summary(bad)
		line.Fix = r.fix[placement]
	case len(limits) > 0:
		line.OK = true
		line.Detail = "open on this kernel: " + summary(limits) + ": " + r.fix[placement]
	default:
		line.OK = true
		line.Detail = fmt.Sprintf("%d tries, %s", len(tries), r.word())
		if len(tries) == 1 {
			line.Detail = "1 try, " + r.word()
		}
	}
	return line
}

func (r rule) word() string {
	if r.answered {
		return "each answered as it must be"
	}
	return "none got out"
}

// summary names the first few.
func summary(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:most], "; "), len(list)-most)
}

func judgeCounters(placement ids.Placement, before, after map[string]uint64) apitype.DoctorLine {
	line := apitype.DoctorLine{Placement: placement, Check: "the firewall counted the tries"}
	var still, seen []string
	for _, name := range moved[placement] {
		if after[name] <= before[name] {
			still = append(still, name)
		} else {
			seen = append(seen, fmt.Sprintf("%s %d", name, after[name]-before[name]))
		}
	}
	if len(still) > 0 || len(seen) == 0 {
		line.Detail = "did not move: " + strings.Join(still, ", ")
		line.Fix = "the rules are not where the agent's packets pass: start bawn up again, and look for another program that changes the firewall"
		return line
	}
	line.OK = true
	line.Detail = strings.Join(seen, ", ")
	return line
}
