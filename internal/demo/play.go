// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"text/tabwriter"

	"bawn/internal/world"
	"bawn/internal/world/attempts"
	"bawn/internal/world/operator"
)

// policy is what the agent of the demonstration may do.
const policy = `version: 1
profiles:
  coder:
    rules:
      - host: api.example.com
        methods: [GET, POST]
      - host: git.example.com
      - host: registry.example.net
        methods: [GET]
agents:
  dev: {profile: coder}
`

// stage is where the demonstration plays.
type stage struct {
	op  *operator.Operator
	w   *world.World
	out io.Writer
	bad []error // what did not go as it must
}

// play runs the scenes. It returns what did not go as it must.
func (s *stage) play(ctx context.Context) error {
	for i, scene := range []struct {
		title string
		run   func(context.Context)
	}{
		{"The operator draws the boundary", s.boundary},
		{"The agent does its work", s.work},
		{"The agent tries to get a secret out", s.exfiltrate},
		{"Who did what", s.record},
	} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintf(s.out, "%d. %s\n\n", i+1, scene.title)
		scene.run(ctx)
		fmt.Fprintln(s.out)
	}
	return errors.Join(s.bad...)
}

// boundary shows "bawn up", an agent and its policy.
func (s *stage) boundary(ctx context.Context) {
	fmt.Fprintf(s.out, "# bawn up\n%s", s.lines(s.op.Log(), "bawn: "))
	s.bawn(ctx, "agent", "create", "dev", "--user", "alice")
	fmt.Fprintf(s.out, "$ cat policy.yaml\n%s", indent(policy))
	cmd := s.op.Command(ctx, "policy", "apply", "-", "--why", "the demonstration")
	cmd.Stdin = strings.NewReader(policy)
	s.show(cmd, "bawn policy apply policy.yaml --why 'the demonstration'")
	s.bawn(ctx, "policy", "explain", "dev", "GET", "https://api.example.com/v1/models")
}

// work shows what is allowed, with programs that know nothing of Bawn.
func (s *stage) work(ctx context.Context) {
	for _, line := range []string{
		"curl -sS https://api.example.com/v1/models",
		"git clone -q https://git.example.com/tools/hello.git && cat hello/README",
		"npm install --silent --registry https://registry.example.net/ greeting && node -p 'require(\"greeting\")'",
		"unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy; curl -sS https://api.example.com/without-proxy-variables",
	} {
		s.show(s.op.Command(ctx, "run", "--", "sh", "-c", "cd && rm -rf hello && "+line), "bawn run -- sh -c '"+line+"'")
	}
}

// shown are the attempts that the demonstration shows, ten of all.
func shown() []string {
	return []string{"name", "dns_tunnel", "tcp_tls", "udp", "icmp", "ipv6", "ip_literal", "host_front", "metadata", "redirect"}
}

// exfiltrate lets the agent try, and asks the attacker what arrived.
func (s *stage) exfiltrate(ctx context.Context) {
	if err := errors.Join(s.w.Attacker.Forget(), s.w.LAN.Forget(), s.w.ForgetWire()); err != nil {
		s.bad = append(s.bad, err)
		return
	}
	cmd := s.op.Command(ctx, append([]string{"run", "--"}, attempts.Argv(shown()...)...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	results, parseErr := attempts.Parse(string(text))
	if err != nil || parseErr != nil || len(results) != len(shown()) {
		s.bad = append(s.bad, fmt.Errorf("trying to get out: %d of %d attempts: %w: %s", len(results), len(shown()), errors.Join(err, parseErr), stderr.String()))
	}
	t := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "  \ttried\twhat the agent saw\tcode")
	for i, r := range results {
		fmt.Fprintf(t, "  %2d\t%s\t%s\t%s\n", i+1, r.Tried, r.What, r.Code)
	}
	_ = t.Flush()
	s.verdict()
}

// verdict says what arrived where nothing may.
func (s *stage) verdict() {
	packets, err := s.w.Attacker.Packets()
	flows, flowErr := s.w.Wire()
	queries, queryErr := s.w.DNS.Queries()
	if err := errors.Join(err, flowErr, queryErr); err != nil {
		s.bad = append(s.bad, err)
		return
	}
	metadata, evil := 0, 0
	for _, f := range flows {
		if f.Dst.String() == world.MetadataAddr {
			metadata += f.Packets
		}
	}
	for _, q := range queries {
		if strings.HasSuffix(q.Name, s.w.Names.Evil) {
			evil++
		}
	}
	fmt.Fprintf(s.out, "\n  packets that reached the attacker:           %d\n", len(packets))
	fmt.Fprintf(s.out, "  packets to the cloud's metadata address:     %d\n", metadata)
	fmt.Fprintf(s.out, "  questions to any resolver about the attacker: %d\n", evil)
	if len(packets)+metadata+evil > 0 {
		s.bad = append(s.bad, errors.New("something got out"))
	}
}

// record shows the log, as the operator reads it.
func (s *stage) record(ctx context.Context) {
	s.bawn(ctx, "log", "--verdict", "deny")
	s.bawn(ctx, "log", "--host", "git.example.com")
	s.bawn(ctx, "status")
}

// bawn runs a command line of the operator and shows it.
func (s *stage) bawn(ctx context.Context, args ...string) {
	s.show(s.op.Command(ctx, args...), "bawn "+strings.Join(args, " "))
}

// show prints a command as one would type it, and what it said.
func (s *stage) show(cmd *exec.Cmd, typed string) {
	fmt.Fprintf(s.out, "$ %s\n", typed)
	text, err := cmd.CombinedOutput()
	fmt.Fprint(s.out, indent(string(text)))
	if err != nil {
		s.bad = append(s.bad, fmt.Errorf("%s: %w: %s", typed, err, bytes.TrimSpace(text)))
	}
}

// lines keeps the lines that begin so.
func (s *stage) lines(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			b.WriteString(line)
		}
	}
	return indent(b.String())
}

// indent sets output apart from commands.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
	}
	return b.String()
}
