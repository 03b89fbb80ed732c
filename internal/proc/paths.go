// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// reserved lists the places of the view that no directory of the operator may
// cover or lie in: what Bawn answers for itself, and what an agent's other
// sessions could tamper with.
func (s *Spec) reserved() []string {
	return []string{"/proc", "/sys", "/dev", "/run", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/var", s.Home(), WorkPath}
}

func (s *Spec) checkPaths() error {
	var errs []error
	taken := map[string]bool{}
	check := func(what, p string, free ...string) {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
			errs = append(errs, fmt.Errorf("%s %q: not an absolute, clean path", what, p))
			return
		}
		for _, r := range s.reserved() {
			if len(free) > 0 && p == free[0] {
				continue
			}
			if within(p, r) || within(r, p) {
				errs = append(errs, fmt.Errorf("%s %s: %s belongs to the agent's own view; put the directory elsewhere", what, p, r))
				return
			}
		}
		if taken[p] {
			errs = append(errs, fmt.Errorf("%s %s: named twice", what, p))
		}
		taken[p] = true
	}
	if s.Work != nil {
		check("workspace", s.workPath(), WorkPath)
	}
	for _, l := range s.Lends {
		check("lent directory", l.Path)
	}
	return errors.Join(errs...)
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
