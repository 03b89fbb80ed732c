// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Doctor says when the self-test runs by itself.
type Doctor struct {
	Every time.Duration `yaml:"every"` // 0: after starts and changes only
}

// leastEvery bounds what the self-test may cost.
const leastEvery = time.Minute

func (d Doctor) validate() error {
	if d.Every < 0 || d.Every > 0 && d.Every < leastEvery {
		return fmt.Errorf("doctor: every: %s is less than %s; 0 switches the timer off", d.Every, leastEvery)
	}
	return nil
}

// Secrets are the files that c names and that nobody but root may read.
func (c Config) Secrets() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.Credentials)) {
		list = append(list, c.Credentials[name].Key)
	}
	if f := c.ParentProxy.PasswordFile; f != "" {
		list = append(list, f)
	}
	return list
}
