// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"slices"
	"strings"

	"bawn/internal/codes"
	"bawn/internal/doctor"
	"bawn/internal/ids"
	"bawn/internal/netplan"
)

// A rule is how the tries of one check are judged. What is not in rules is
// judged by the usual one: none may have got out.
type rule struct {
	answered bool          // Bawn must have answered every try
	refused  bool          // something must have refused every try, or Bawn answered; silence may be a packet on its way
	limit    ids.Placement // the placement whose documented limits it may tell
}

var rules = map[Check]rule{
	CheckTCP: {refused: true}, CheckUDP: {refused: true}, CheckICMP: {refused: true}, CheckDNS: {refused: true}, CheckMetadata: {refused: true},
	CheckLoopback: {refused: true}, CheckSource: {refused: true},
	CheckAbstract: {limit: ids.PlacementUID},
	CheckProxy:    {answered: true}, CheckResolver: {answered: true}, CheckCertificates: {answered: true},
}

// tried are the checks that are made of tries.
func tried(p ids.Placement) (names []Check) {
	for _, c := range doctor.All {
		switch {
		case c.Group != doctor.Place && c.Group != doctor.Gate:
		case c.Name == doctor.SelfTest, c.Name == doctor.OnRecord, c.Name == doctor.OneCode, c.Name == doctor.Counted:
		case c.Only == "" || c.Only == p:
			names = append(names, c.Name)
		}
	}
	return names
}

// fixLink mends most of what gets out of a namespace.
const fixLink = "something put a link into the agent's network namespace: keep programs that move links between namespaces away from it, and start Bawn again"

// moved are the counters that the probe's tries must have moved: silence proves
// nothing by itself.
var moved = map[ids.Placement][]string{
	ids.PlacementNetns: {netplan.CountRedirected, netplan.CountUDP},
	ids.PlacementUID:   {netplan.CountDenied4},
}

// Evaluate turns the tries of one placement, and the packets that the firewall
// had counted before and after, into findings. A check without a try is a
// failed one.
func Evaluate(placement ids.Placement, tries []Try, before, after map[string]uint64) []doctor.Finding {
	byCheck := map[Check][]Try{}
	for _, t := range tries {
		byCheck[t.Check] = append(byCheck[t.Check], t)
	}
	var list []doctor.Finding
	for _, name := range tried(placement) {
		list = append(list, rules[name].judge(name, placement, byCheck[name]))
	}
	list = append(list, oneCode(tries), judgeCounters(placement, before, after))
	for i := range list {
		list[i].Placement = placement
	}
	return list
}

func (r rule) judge(name Check, placement ids.Placement, tries []Try) doctor.Finding {
	f := doctor.Finding{Name: name, State: doctor.Fail}
	var bad, limits []string
	for _, t := range tries {
		if t.Outcome == GotOut && t.Limit && r.limit == placement {
			limits = append(limits, t.Target)
		} else if why := r.wrong(placement, t); why != "" {
			bad = append(bad, strings.TrimSpace(t.Target+" "+why))
		}
	}
	switch {
	case len(tries) == 0:
		f.Seen = "was not tried"
		f.Fix = "run bawn doctor again; if this stays, the probe cannot run in the agent's place: look at netd's log"
	case len(bad) > 0:
		f.Seen = doctor.Summary(bad)
		if placement == ids.PlacementNetns && networked[name] {
			f.Fix = fixLink
		}
	case len(limits) > 0:
		f.State = doctor.Warn
		f.Seen = "open on this kernel: " + doctor.Summary(limits)
	default:
		f.State = doctor.OK
		f.Seen = fmt.Sprintf("%d tries, %s", len(tries), r.word())
		if len(tries) == 1 {
			f.Seen = "1 try, " + r.word()
		}
	}
	return f
}

// networked are the checks that fail in a namespace because of a link.
var networked = map[Check]bool{
	CheckLinks: true, CheckTCP: true, CheckUDP: true, CheckICMP: true, CheckDNS: true, CheckMetadata: true, CheckLoopback: true, CheckAbstract: true,
}

// wrong says why a try is a failure, or nothing. In a namespace a connection
// that Bawn holds is silent too; there, what would be silent on its way out is
// counted.
func (r rule) wrong(placement ids.Placement, t Try) string {
	switch {
	case t.Outcome == GotOut:
		return t.Detail + " "
	case r.answered && t.Outcome != Answered:
		return t.Detail + " "
	case r.refused && placement == ids.PlacementUID && t.Silent:
		return "went into silence: nothing refused it"
	}
	return ""
}

func (r rule) word() string {
	if r.answered {
		return "each answered as it must be"
	}
	return "none got out"
}

// oneCode looks whether the canary was refused with one code, whatever the
// path.
func oneCode(tries []Try) doctor.Finding {
	f := doctor.Finding{Name: doctor.OneCode, State: doctor.Fail}
	paths := 0
	same := func(code string) string {
		if code == string(codes.DNSNameNotAllowed) { // what host_not_allowed is called by DNS
			return string(codes.HostNotAllowed)
		}
		return code
	}
	byCode := map[string][]string{}
	var all []string
	for _, t := range tries {
		if !t.Canary || t.Outcome != Answered {
			continue
		}
		paths++
		code := same(t.Code)
		if byCode[code] == nil {
			all = append(all, code)
		}
		byCode[code] = append(byCode[code], t.Target)
	}
	slices.Sort(all)
	switch {
	case paths < 2:
		f.Seen = fmt.Sprintf("the canary was refused on %d paths", paths)
	case len(all) > 1 || all[0] == "":
		var said []string
		for _, c := range all {
			said = append(said, fmt.Sprintf("%q by %s", c, byCode[c][0]))
		}
		f.Seen = strings.Join(said, "; ")
	default:
		f.State, f.Seen = doctor.OK, fmt.Sprintf("%s, on %d paths", all[0], paths)
	}
	return f
}

func judgeCounters(placement ids.Placement, before, after map[string]uint64) doctor.Finding {
	f := doctor.Finding{Name: doctor.Counted, State: doctor.Fail}
	var still, seen []string
	for _, name := range moved[placement] {
		if after[name] <= before[name] {
			still = append(still, name)
		} else {
			seen = append(seen, fmt.Sprintf("%s %d", name, after[name]-before[name]))
		}
	}
	if len(still) > 0 || len(seen) == 0 {
		f.Seen = "did not move: " + strings.Join(still, ", ")
		return f
	}
	f.State, f.Seen = doctor.OK, strings.Join(seen, ", ")
	return f
}
