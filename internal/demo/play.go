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
	"slices"
	"strings"

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
		"npm install --silent --registry https://registry.example.net/ greeting && node -p 'require(process.argv[1])' greeting",
		"unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy; curl -sS https://api.example.com/without-proxy-variables",
	} {
		s.show(s.op.Command(ctx, "run", "--", "sh", "-c", "cd && rm -rf hello && "+line), `bawn run -- sh -c "`+line+`"`)
	}
}

// shown are the attempts that the demonstration shows, ten of all.
func shown() []string {
	return []string{"name", "dns_tunnel", "tcp_tls", "udp", "icmp", "ipv6", "ip_literal", "host_front", "metadata", "redirect"}
}

// exfiltrate lets the agent try, and asks the attacker what arrived.
func (s *stage) exfiltrate(ctx context.Context) {
	if err := s.control(ctx); err != nil {
		s.bad = append(s.bad, err)
		return
	}
	fmt.Fprintf(s.out, line, "", "tried", "what the agent saw", "code")
	for i, name := range shown() {
		r, code, err := s.attempt(ctx, name)
		if err != nil {
			s.bad = append(s.bad, fmt.Errorf("trying %s: %w", name, err))
			continue
		}
		fmt.Fprintf(s.out, line, fmt.Sprint(i+1), r.Tried, r.What, code)
	}
	s.verdict()
}

// control runs the attempts that need no proxy under an account of the host that
// Bawn does not hold, so that the zeros below mean something.
func (s *stage) control(ctx context.Context) error {
	var direct []string
	for _, name := range shown() {
		if slices.Contains(attempts.Reaching(), name) {
			direct = append(direct, name)
		}
	}
	if text, err := s.w.Host.CommandAs(ctx, operator.Account, attempts.Argv(direct...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("trying without Bawn: %w: %s", err, text)
	}
	packets, err := s.w.Attacker.Packets()
	if err != nil {
		return err
	}
	if len(packets) == 0 {
		return errors.New("trying without Bawn: nothing reached the attacker, so the demonstration would show nothing")
	}
	fmt.Fprintf(s.out, "  First without Bawn, from an ordinary account of the host: %d of the ten\n", len(direct))
	fmt.Fprintf(s.out, "  need no proxy, and bring %d packets to the attacker. Now the agent:\n\n", len(packets))
	return errors.Join(s.w.Attacker.Forget(), s.w.LAN.Forget(), s.w.ForgetWire(), s.w.DNS.Forget())
}

// line is one line of the table of attempts.
const line = "  %2s  %-66s  %-24s  %s\n"

// attempt runs one attempt. The code is the one that the agent was told, or
// else the one on record; "-" where there is no way on which something could
// be judged.
func (s *stage) attempt(ctx context.Context, name string) (attempts.Result, string, error) {
	before, err := s.op.Decisions(denied)
	if err != nil {
		return attempts.Result{}, "", err
	}
	cmd := s.op.Command(ctx, append([]string{"run", "--"}, attempts.Argv(name)...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	results, parseErr := attempts.Parse(string(text))
	if err := errors.Join(err, parseErr); err != nil || len(results) != 1 {
		return attempts.Result{}, "", fmt.Errorf("%d results: %w: %s", len(results), err, stderr.String())
	}
	after, err := s.op.Decisions(denied)
	if err != nil {
		return attempts.Result{}, "", err
	}
	code := results[0].Code
	if code == "" && len(after) > len(before) {
		code = after[len(after)-1].Code
	}
	if code == "" {
		code = "-"
	}
	return results[0], code, nil
}

func denied(r operator.Record) bool { return r.Verdict == "deny" }

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
	fmt.Fprintf(s.out, "\n  packets that reached the attacker:            %d\n", len(packets))
	fmt.Fprintf(s.out, "  packets to the cloud's metadata address:      %d\n", metadata)
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
