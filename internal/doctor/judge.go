// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outside are the checks that netd makes, which sees the host as root does.
var Outside = slices.DeleteFunc(In(Firewall, Files, Processes, Accounts, Kernel, Space), func(n Name) bool {
	return n == IndexLag || n == Checkpoint
})

// How far the wall clock may run apart from the steady one between two looks,
// and how much more for each hour in between: time services slew it by up to
// half a millisecond a second.
const (
	jumpAllowed = 2 * time.Second
	slewPerHour = 2 * time.Second
)

// Jump compares how far the wall clock and one that nobody sets have come
// between two looks. The first look has nothing to compare with.
func Jump(wallBefore, wall time.Time, steadyBefore, steady time.Duration) Finding {
	f := Finding{Name: ClockJump, State: OK}
	if wallBefore.IsZero() {
		f.Seen = "first look"
		return f
	}
	// Without the monotonic reading that Go keeps beside the wall clock.
	passed, real := wall.Round(0).Sub(wallBefore.Round(0)), steady-steadyBefore
	apart := passed - real
	allowed := jumpAllowed + time.Duration(float64(slewPerHour)*real.Hours())
	if apart.Abs() > allowed {
		f.State, f.Seen = Warn, fmt.Sprintf("the wall clock went %s in %s", passed.Round(time.Second), real.Round(time.Second))
		return f
	}
	f.Seen = fmt.Sprintf("%s apart in %s", apart.Abs().Round(time.Millisecond), real.Round(time.Second))
	return f
}

// noEarlier is before any build of this program.
var noEarlier = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Build compares the wall clock with the time at which the program was built; a
// zero one is not known.
func Build(now, built time.Time) Finding {
	if built.Before(noEarlier) {
		built = noEarlier
	}
	f := Finding{Name: ClockBuild, State: OK, Seen: now.UTC().Format(time.RFC3339)}
	if now.Before(built.Add(-24 * time.Hour)) {
		f.State, f.Seen = Fail, fmt.Sprintf("it is said to be %s, before this program was built (%s)", now.UTC().Format(time.DateOnly), built.UTC().Format(time.DateOnly))
	}
	return f
}

// endsSoon is when somebody has to look at the CA.
const endsSoon = 30 * 24 * time.Hour

// Dates judges those of the root certificate.
func Dates(now, from, to time.Time) Finding {
	f := Finding{Name: CADates, State: OK, Seen: "until " + to.UTC().Format(time.DateOnly)}
	switch {
	case now.Before(from):
		f.State, f.Seen = Fail, "valid only from "+from.UTC().Format(time.RFC3339)
		f.Fix = "look at the clock: timedatectl; the certificate was made later than it says"
	case !now.Before(to):
		f.State, f.Seen = Fail, "ended on "+to.UTC().Format(time.DateOnly)
	case to.Sub(now) < endsSoon:
		f.State, f.Seen = Warn, "ends on "+to.UTC().Format(time.DateOnly)
	}
	return f
}

// OfResolvers judges how many of the resolvers failed. That one of several does
// is a warning: the others are asked then.
func OfResolvers(asked int, failed []string) Finding {
	f := Finding{Name: Resolvers, State: OK, Seen: fmt.Sprintf("%d of %d", asked-len(failed), asked)}
	if len(failed) > 0 {
		f.State, f.Seen = Warn, Summary(failed)
	}
	if len(failed) == asked {
		f.State = Fail
	}
	return f
}

// A Covered says how far one journal is covered by checkpoints.
type Covered struct {
	Series  string
	Fault   string    // why nothing can be signed
	Broken  string    // in which way the journal is not what was written
	Waiting int64     // records that no checkpoint covers
	Signed  time.Time // when the newest was made
}

// waitsLong is how long a record may wait for its checkpoint: they are made every
// second.
const waitsLong = time.Minute

// Checkpoints judges them. Without a journal there is nothing to cover.
func Checkpoints(now time.Time, list []Covered) Finding {
	f := Finding{Name: Checkpoint, State: OK, Seen: fmt.Sprintf("%d journals", len(list))}
	var bad, late []string
	for _, c := range list {
		switch {
		case c.Broken != "":
			bad = append(bad, c.Series+": "+c.Broken)
		case c.Fault != "":
			bad = append(bad, c.Series+": "+c.Fault)
		case c.Waiting > 0 && now.Sub(c.Signed) > waitsLong:
			late = append(late, fmt.Sprintf("%s: %d records wait since %s", c.Series, c.Waiting, c.Signed.UTC().Format(time.TimeOnly)))
		}
	}
	switch {
	case len(bad) > 0:
		f.State, f.Seen = Fail, Summary(bad)
	case len(late) > 0:
		f.State, f.Seen = Warn, Summary(late)
	case len(list) == 0:
		f.State, f.Seen = NotApplicable, "there is no journal yet"
	}
	return f
}

// behindLong is how long the index may be behind the journals: it follows within
// a second.
const behindLong = time.Minute

// Behind judges how far the index is behind, in bytes and since when, and what it
// says is wrong itself.
func Behind(bytes int64, lag time.Duration, alarm string) Finding {
	f := Finding{Name: IndexLag, State: OK, Seen: fmt.Sprintf("%d bytes behind", bytes)}
	switch {
	case alarm != "":
		f.State, f.Seen = Warn, alarm
	case lag > behindLong:
		f.State, f.Seen = Warn, fmt.Sprintf("%d bytes behind, for %s", bytes, lag.Round(time.Second))
	}
	return f
}

// A Record is what the journal says of one try.
type Record struct {
	Allowed, Sensitive bool
	Host               string
	Metadata           bool // it was about a cloud's metadata
}

// Recorded judges what the journal says of a run.
func Recorded(list []Record, canary string, err error) Finding {
	f := Finding{Name: OnRecord, State: Fail}
	named, metadata := 0, 0
	for _, r := range list {
		switch {
		case r.Allowed:
			f.Seen = "a try was let through: " + r.Host
			return f
		case r.Metadata && !r.Sensitive:
			f.Seen = "the try at a metadata address is not marked as sensitive"
			return f
		case r.Metadata:
			metadata++
		case r.Host == canary:
			named++
		}
	}
	switch {
	case err != nil:
		f.Seen = err.Error()
	case named == 0:
		f.Seen = "the journal has nothing of the canary"
	case metadata == 0:
		f.Seen = "the journal has nothing of the metadata addresses"
	default:
		f.State, f.Seen = OK, fmt.Sprintf("%d records, %d of them of metadata", len(list), metadata)
	}
	return f
}

// An OtherChain is a base chain of somebody else's table.
type OtherChain struct {
	Family, Table, Name string
	Hook                string // output, input, forward
	Type                string // filter, nat, route
	Priority            int
	Drops               bool     // what no rule of it decides is dropped
	Beside              []string // the table's other chains
}

// ownPriority is that of Bawn's own chains (package netplan).
const ownPriority = 10

// OfOthers judges chains of other tables. That one accepts before Bawn's do
// changes nothing: each base chain judges for itself. What can be harmful is a
// chain that changes destinations after Bawn's have judged, and one that drops
// what no rule allows, which cuts off the proxy.
func OfOthers(chains []OtherChain) []Finding {
	foreign, forward := Finding{Name: Foreign, State: OK}, Finding{Name: Forward, State: OK}
	var bad, drops, fixes, fixesForward []string
	for _, c := range chains {
		where := fmt.Sprintf("table %s %s chain %s", c.Family, c.Table, c.Name)
		who, how := c.owner()
		switch {
		case c.Hook == "output" && c.Type != "filter" && c.Priority > ownPriority:
			bad = append(bad, where+" ("+who+") can change destinations after Bawn's rules")
			fixes = append(fixes, how)
		case c.Hook == "output" && c.Drops:
			bad = append(bad, where+" ("+who+") drops what no rule of it allows")
			fixes = append(fixes, "have it accept what bawn-proxy sends (meta skuid bawn-proxy accept): "+how)
		case c.Hook == "forward" && c.Drops:
			drops = append(drops, where+" ("+who+")")
			fixesForward = append(fixesForward, how)
		}
	}
	for f, list := range map[*Finding][2][]string{&foreign: {bad, fixes}, &forward: {drops, fixesForward}} {
		if len(list[0]) > 0 {
			slices.Sort(list[0])
			slices.Sort(list[1])
			f.State, f.Seen, f.Fix = Warn, Summary(list[0]), Summary(slices.Compact(list[1]))
		}
	}
	return []Finding{foreign, forward}
}

// owners are known by what they call their tables and chains.
var owners = []struct{ mark, who, how string }{
	{"firewalld", "firewalld", "firewall-cmd --list-all, and a policy for what Bawn needs"},
	{"ufw", "ufw", "ufw status verbose, and ufw default allow outgoing or a rule for it"},
	{"docker", "Docker", "look at the chain DOCKER-USER; iptables -I DOCKER-USER -j RETURN for what Bawn forwards"},
	{"kube", "Kubernetes", "look at kube-proxy and the network plug-in"},
	{"cali-", "Calico", "look at its FelixConfiguration"},
	{"cilium", "Cilium", "look at its host firewall"},
	{"libvirt", "libvirt", "virsh net-list, and its network filters"},
	{"lxd", "LXD", "lxc network list, and ipv4.firewall of its bridges"},
	{"incus", "Incus", "incus network list, and ipv4.firewall of its bridges"},
	{"ts-", "Tailscale", "tailscale set --netfilter-mode=off, or its documentation"},
	{"wg-quick", "wg-quick", "look at the interface's configuration in /etc/wireguard"},
	{"nixos-fw", "NixOS's firewall", "networking.firewall in the configuration"},
	{"f2b-", "fail2ban", "fail2ban-client status"},
}

// owner guesses whose table it is, and where to look.
func (c OtherChain) owner() (who, how string) {
	names := strings.ToLower(strings.Join(append([]string{c.Table, c.Name}, c.Beside...), " "))
	for _, o := range owners {
		if strings.Contains(names, o.mark) {
			return o.who, o.how
		}
	}
	if c.Table == "filter" || c.Table == "nat" || c.Table == "mangle" {
		return "iptables", "iptables -S, ip6tables -S"
	}
	return "not known", fmt.Sprintf("nft list table %s %s; /etc/nftables.conf may load it", c.Family, c.Table)
}
