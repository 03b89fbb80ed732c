// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manualCommand writes the manual pages of all commands. What they say is what
// --help says, so that there is nothing to keep in step.
func (a *app) manualCommand() *cobra.Command {
	return &cobra.Command{
		Use: "manual DIR", Hidden: true, Short: "Write manual pages into a directory", Args: wants("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			date := ""
			if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
				date = time.Unix(epoch, 0).UTC().Format(time.DateOnly)
			}
			return writeManual(cmd.Root(), args[0], date)
		},
	}
}

func writeManual(cmd *cobra.Command, dir, date string) error {
	if !cmd.IsAvailableCommand() && cmd.HasParent() {
		return nil
	}
	path := filepath.Join(dir, pageName(cmd)+".1")
	if err := os.WriteFile(path, []byte(page(cmd, date)), 0o644); err != nil {
		return fmt.Errorf("writing manual: %w", err)
	}
	for _, c := range cmd.Commands() {
		if err := writeManual(c, dir, date); err != nil {
			return err
		}
	}
	return nil
}

// pageName is that of the page about cmd: bawn-agent-create.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is a manual page in the man macros (man(7)).
func page(cmd *cobra.Command, date string) string {
	var b strings.Builder
	name := pageName(cmd)
	fmt.Fprintf(&b, ".TH \"%s\" 1 \"%s\" \"bawn %s\" \"Bawn\"\n", strings.ToUpper(roff(name)), date, roff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	synopsis(&b, cmd)
	b.WriteString(".SH DESCRIPTION\n")
	prose(&b, cmp0(cmd.Long, cmd.Short+"."))
	commands(&b, cmd)
	options(&b, "OPTIONS", cmd.NonInheritedFlags())
	options(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if !cmd.HasParent() {
		b.WriteString(".SH EXIT STATUS\n")
		prose(&b, "0 done, 1 a fault, 2 wrong use. That of bawn run is the command's, or 125 when Bawn could not run it, 126 when you may not or the command cannot be executed, 127 when the agent has no such command.")
		b.WriteString(".SH FILES\n.TP\n.I /etc/bawn/config.yaml\nthe configuration of this host\n.TP\n.I /var/lib/bawn\nthe state: database, record, agents\n")
	}
	seeAlso(&b, cmd)
	return b.String()
}

func cmp0(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

func synopsis(b *strings.Builder, cmd *cobra.Command) {
	words := strings.Fields(cmd.Use)
	path := cmd.CommandPath()
	fmt.Fprintf(b, ".SH SYNOPSIS\n.B %s\n", roff(path))
	rest := words[1:]
	if cmd.HasAvailableSubCommands() {
		rest = []string{"COMMAND"}
	} else if cmd.HasAvailableLocalFlags() && !slices.Contains(rest, "[flags]") {
		rest = append([]string{"[OPTIONS]"}, rest...)
	}
	if len(rest) > 0 {
		b.WriteString(roff(strings.Join(rest, " ")) + "\n")
	}
}

// prose writes paragraphs; lines that are indented stay as they are.
func prose(b *strings.Builder, text string) {
	verbatim := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
		switch {
		case indented && !verbatim:
			b.WriteString(".PP\n.nf\n")
		case !indented && verbatim && line != "":
			b.WriteString(".fi\n.PP\n")
		}
		if line != "" {
			verbatim = indented
		}
		switch {
		case line == "" && !verbatim:
			b.WriteString(".PP\n")
		case line == "":
			b.WriteString(".sp\n")
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
}

func commands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(c)), roff(c.Short))
		}
	}
}

func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH \"%s\"\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.Name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

func seeAlso(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasParent() {
		return
	}
	b.WriteString(".SH \"SEE ALSO\"\n")
	var others []*cobra.Command
	for _, c := range cmd.Parent().Commands() {
		if c != cmd && c.IsAvailableCommand() && c.Name() != "help" {
			others = append(others, c)
		}
	}
	if cmd.Parent() == cmd.Root() {
		others = nil // bawn(1) names them all
	}
	fmt.Fprintf(b, ".BR %s (1)", roff(pageName(cmd.Parent())))
	for _, c := range others {
		fmt.Fprintf(b, ",\n.BR %s (1)", roff(pageName(c)))
	}
	b.WriteString("\n")
}

// roff makes text what it is in roff too.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\u00a0", `\ `, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
