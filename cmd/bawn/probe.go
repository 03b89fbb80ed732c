// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bawn/internal/probe"
)

// maxProbeConfig bounds the line that says what to try, in bytes.
const maxProbeConfig = 256 << 10

func (a *app) probeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "probe", Hidden: true, Short: "Attack the boundary from an agent's place (bawn doctor runs it there)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := bufio.NewReader(io.LimitReader(a.stdin, maxProbeConfig))
			line, err := in.ReadString('\n')
			if err != nil {
				return err
			}
			c, err := probe.ReadConfig(strings.NewReader(line))
			if err != nil {
				return err
			}
			if err := probe.Run(cmd.Context(), c, a.stdout); err != nil {
				return err
			}
			// Whoever asked reads the counters of this place now, which end
			// with this process, and closes the input then.
			if f, ok := a.stdout.(*os.File); ok {
				f.Close()
			}
			_, err = io.Copy(io.Discard, in)
			return err
		},
	}
}
