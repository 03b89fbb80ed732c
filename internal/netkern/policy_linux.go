// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"bawn/internal/netplan"
)

// run calls do in ns, or right here where ns is nil.
func run(ns *os.File, do func() error) error {
	if ns == nil {
		return do()
	}
	return inNamespace(ns, do)
}

// prohibit is FR_ACT_PROHIBIT of linux/fib_rules.h.
const prohibit = 8

func policyRule(r netplan.PolicyRule) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family = unix.AF_INET
	if r.Family == netplan.IPv6 {
		rule.Family = unix.AF_INET6
	}
	rule.Priority = r.Priority
	rule.UIDRange = netlink.NewRuleUIDRange(r.First, r.Last)
	rule.Type = prohibit
	return rule
}

// noFamily reports whether the kernel was built or started without the family:
// what cannot be sent needs no rule.
func noFamily(r netplan.PolicyRule, err error) bool {
	return r.Family == netplan.IPv6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP))
}

// setPolicy adds the routing rules that are missing.
func setPolicy(ns *os.File, rules []netplan.PolicyRule) error {
	return run(ns, func() error {
		for _, r := range rules {
			found, err := hasPolicy(r)
			if err == nil && !found {
				err = netlink.RuleAdd(policyRule(r))
			}
			if err != nil && !noFamily(r, err) {
				return fmt.Errorf("adding %s: %w", r, err)
			}
		}
		return nil
	})
}

// checkPolicy reports which of the routing rules is missing.
func checkPolicy(ns *os.File, rules []netplan.PolicyRule) error {
	return run(ns, func() error {
		for _, r := range rules {
			found, err := hasPolicy(r)
			if err != nil && !noFamily(r, err) {
				return fmt.Errorf("looking for %s: %w", r, err)
			}
			if err == nil && !found {
				return fmt.Errorf("the routing rule is gone: %s", r)
			}
		}
		return nil
	})
}

// clearPolicy removes the routing rules, each as often as it is there.
func clearPolicy(ns *os.File, rules []netplan.PolicyRule) error {
	return run(ns, func() error {
		for _, r := range rules {
			for {
				found, err := hasPolicy(r)
				if err == nil && found {
					err = netlink.RuleDel(policyRule(r))
				}
				if err != nil && !noFamily(r, err) && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("removing %s: %w", r, err)
				}
				if !found {
					break
				}
			}
		}
		return nil
	})
}

// hasPolicy looks for the rule in the calling thread's namespace. A rule that
// names a table is another one, whatever its range.
func hasPolicy(r netplan.PolicyRule) (bool, error) {
	want := policyRule(r)
	var list []netlink.Rule
	var err error
	for range 10 {
		list, err = netlink.RuleListFiltered(want.Family, want, netlink.RT_FILTER_PRIORITY)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return false, err
	}
	for _, rule := range list {
		if rule.UIDRange != nil && *rule.UIDRange == *want.UIDRange && rule.Table <= 0 && rule.Goto < 0 && !rule.Invert {
			return true, nil
		}
	}
	return false, nil
}
