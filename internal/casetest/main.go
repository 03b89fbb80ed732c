// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bawn/internal/termfilter"
)

// The exit statuses of [Main].
const (
	statusOK         = 0
	statusFailed     = 1 // a case failed
	statusUnreadable = 2 // a file cannot be read, or is no case file; or wrong use
)

// Main runs the case files that args name, folders with all that is below them,
// and prints a line a case and a summary; with -json first, one JSON object a
// case. It returns the exit status: 0, 1 when a case failed, 2 when a file could
// not be read as a case.
func Main(args []string, stdout, stderr io.Writer) int {
	asJSON := len(args) > 0 && (args[0] == "-json" || args[0] == "--json")
	if asJSON {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(stderr, "bawn: wants at least one case file or folder")
		return statusUnreadable
	}
	files, err := find(args)
	if err != nil {
		fmt.Fprintf(stderr, "bawn: %s\n", termfilter.Line(err.Error()))
		return statusUnreadable
	}
	env, err := NewEnv()
	if err != nil {
		fmt.Fprintf(stderr, "bawn: %s\n", termfilter.Line(err.Error()))
		return statusUnreadable
	}
	print := printLine
	if asJSON {
		print = printJSON
	}
	failed, unreadable := 0, 0
	for _, file := range files {
		r, err := runFile(file, env)
		switch {
		case err != nil:
			unreadable++
		case !r.OK:
			failed++
		}
		print(stdout, r)
	}
	if !asJSON {
		cases := "cases"
		if len(files) == 1 {
			cases = "case"
		}
		fmt.Fprintf(stdout, "%d %s: %d passed, %d failed, %d cannot be read\n", len(files), cases, len(files)-failed-unreadable, failed, unreadable)
	}
	switch {
	case unreadable > 0:
		return statusUnreadable
	case failed > 0:
		return statusFailed
	}
	return statusOK
}

// runFile reads and runs one file. An error says that it is no case.
func runFile(file string, env *Env) (Result, error) {
	broken := Result{File: file, Results: []Verdict{}, Wanted: []string{}}
	data, err := os.ReadFile(file)
	if err != nil {
		broken.fail("%v", err)
		return broken, err
	}
	c, err := Parse(file, data)
	if err != nil {
		broken.fail("%v", err)
		return broken, err
	}
	return Run(c, env), nil
}

var errNoCases = errors.New("no case file (*.txtar)")

// find lists the files to run: those named, and those below the folders named.
func find(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		before := len(files)
		err = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".txtar") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: %w", arg, errNoCases)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func printJSON(w io.Writer, r Result) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(r) //nolint:errcheck // strings encode; a closed output has no reader
}

// printLine prints a line for a person, which may quote the file: it is
// filtered.
func printLine(w io.Writer, r Result) {
	if r.OK {
		fmt.Fprintf(w, "ok    %s\n", termfilter.Line(r.File))
		return
	}
	for i, line := range strings.Split(r.Why, "\n") {
		if i == 0 {
			fmt.Fprintf(w, "FAIL  %s: %s\n", termfilter.Line(r.File), termfilter.Line(line))
		} else {
			fmt.Fprintf(w, "      %s\n", termfilter.Line(line))
		}
	}
}
