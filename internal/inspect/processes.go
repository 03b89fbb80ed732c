// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"bawn/internal/doctor"
)

// dumps looks whether the processes that hold keys can be dumped or traced by
// their own account. The kernel gives the files in the /proc directory of one
// that cannot to root (proc(5)).
func (h Host) dumps() doctor.Finding {
	var problems []problem
	for _, p := range h.Processes {
		info, err := os.Stat(filepath.Join(h.Proc, strconv.Itoa(p.PID), "environ"))
		if err != nil {
			problems = append(problems, problem{seen: p.Name + ": " + err.Error()})
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 {
			problems = append(problems, problem{seen: fmt.Sprintf("%s (process %d) can be dumped", p.Name, p.PID)})
		}
	}
	if len(h.Processes) == 0 {
		problems = []problem{{seen: "no process of Bawn's was seen"}}
	}
	return found(doctor.Dumps, names(h.Processes), problems)
}

// privileges looks whether they are what they should be: their own account,
// without a capability and without a way to one.
func (h Host) privileges() doctor.Finding {
	var problems []problem
	for _, p := range h.Processes {
		text, err := os.ReadFile(filepath.Join(h.Proc, strconv.Itoa(p.PID), "status"))
		if err != nil {
			problems = append(problems, problem{seen: p.Name + ": " + err.Error()})
			continue
		}
		for _, why := range privileged(string(text), p.UID) {
			problems = append(problems, problem{seen: fmt.Sprintf("%s (process %d) %s", p.Name, p.PID, why)})
		}
	}
	if len(h.Processes) == 0 {
		problems = []problem{{seen: "no process of Bawn's was seen"}}
	}
	return found(doctor.Privileges, names(h.Processes), problems)
}

// privileged says what a process with this /proc/PID/status has too much of.
func privileged(status string, uid int) (why []string) {
	f := fields(status)
	for _, u := range strings.Fields(f["Uid"]) {
		if u != strconv.Itoa(uid) {
			why = append(why, "has uid "+u)
			break
		}
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if strings.Trim(f[set], "0") != "" || f[set] == "" {
			why = append(why, fmt.Sprintf("has capabilities (%s %s)", set, f[set]))
			break
		}
	}
	if f["NoNewPrivs"] != "1" {
		why = append(why, "may gain privileges")
	}
	return why
}

// fields are those of a file of lines "Name:\tvalue".
func fields(text string) map[string]string {
	f := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			f[k] = strings.TrimSpace(v)
		}
	}
	return f
}

func names(list []Process) string {
	var all []string
	for _, p := range list {
		all = append(all, p.Name)
	}
	return strings.Join(all, ", ")
}
