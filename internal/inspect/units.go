// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"bawn/internal/doctor"
)

// unitDirs are where systemd reads units, the first found wins; drop-ins are
// read from all of them (systemd.unit(5)).
var unitDirs = []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}

// hardened are the settings that every service of Bawn's keeps, each with the
// values that are good. netd starts agents and makes namespaces, which leaves
// it few.
var (
	everyUnit = map[string][]string{
		"NoNewPrivileges": {"yes", "true", "1", "on"}, "SystemCallArchitectures": {"native"}, "LockPersonality": {"yes", "true", "1", "on"},
		"RestrictRealtime": {"yes", "true", "1", "on"}, "KeyringMode": {"private"},
	}
	otherUnits = map[string][]string{
		"ProtectSystem": {"strict"}, "PrivateDevices": {"yes", "true", "1", "on"}, "PrivateTmp": {"yes", "true", "1", "on", "disconnected"},
		"ProtectKernelTunables": {"yes", "true", "1", "on"}, "ProtectKernelModules": {"yes", "true", "1", "on"}, "ProtectKernelLogs": {"yes", "true", "1", "on"},
		"ProtectControlGroups": {"yes", "true", "1", "on", "strict", "private"}, "ProtectClock": {"yes", "true", "1", "on"},
		"RestrictNamespaces": {"yes", "true", "1", "on"}, "RestrictSUIDSGID": {"yes", "true", "1", "on"}, "MemoryDenyWriteExecute": {"yes", "true", "1", "on"},
		"CapabilityBoundingSet": {""}, "AmbientCapabilities": {"", unset}, "LimitCORE": {"0", "0:0"},
	}
)

// unset is the value of a setting that nobody has written.
const unset = "\x00"

// netdUnit is the one that runs as root with capabilities.
const netdUnit = "bawn-netd.service"

// units looks at the services of Bawn's as systemd would read them.
func (h Host) units() doctor.Finding {
	files := map[string]string{}
	for _, dir := range unitDirs {
		for _, path := range glob(filepath.Join(h.System, dir, "bawn-*.service")) {
			if name := filepath.Base(path); files[name] == "" {
				files[name] = path
			}
		}
	}
	if len(files) == 0 {
		return none(doctor.Units, "Bawn is not installed as a service")
	}
	var list []string
	for name := range files {
		list = append(list, name)
	}
	slices.Sort(list)
	var problems []problem
	for _, name := range list {
		problems = append(problems, h.unit(name, files[name])...)
	}
	return found(doctor.Units, count(len(list), "service"), problems)
}

func (h Host) unit(name, path string) []problem {
	texts := []string{path}
	for _, dir := range slices.Backward(unitDirs) { // what comes last counts
		texts = append(texts, glob(filepath.Join(h.System, dir, name+".d", "*.conf"))...)
	}
	values := map[string]string{}
	from := map[string]string{}
	var problems []problem
	for _, file := range texts {
		text, err := os.ReadFile(file)
		if err != nil {
			problems = append(problems, problem{seen: err.Error()})
			continue
		}
		if uid, ok := ownerOf(file); ok && uid != 0 {
			problems = append(problems, problem{fmt.Sprintf("%s belongs to uid %d", file, uid), "chown root " + file})
		}
		for k, v := range service(string(text)) {
			values[k], from[k] = v, file
		}
	}
	wanted := []map[string][]string{everyUnit}
	if name != netdUnit {
		wanted = append(wanted, otherUnits)
	}
	for _, set := range wanted {
		for _, key := range sortedKeys(set) {
			got, ok := values[key]
			if !ok {
				got = unset
			}
			if slices.Contains(set[key], got) {
				continue
			}
			problems = append(problems, weak(name, path, key, got, from[key], set[key][0]))
		}
	}
	return problems
}

func weak(unit, path, key, got, from, want string) problem {
	if got == unset {
		return problem{fmt.Sprintf("%s does not set %s=%s", unit, key, want), fmt.Sprintf("write %s=%s into %s, and systemctl daemon-reload", key, want, path)}
	}
	return problem{fmt.Sprintf("%s: %s=%s in %s", unit, key, got, from), fmt.Sprintf("take %s out of %s, and systemctl daemon-reload", key, from)}
}

func sortedKeys(m map[string][]string) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// service reads the settings of a unit's [Service] section; the last of a name
// counts, and lines are joined at backslashes.
func service(text string) map[string]string {
	values := map[string]string{}
	in := false
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "", strings.HasPrefix(line, "#"), strings.HasPrefix(line, ";"):
		case strings.HasPrefix(line, "["):
			in = line == "[Service]"
		case in:
			k, v, _ := strings.Cut(line, "=")
			values[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return values
}

// ownerOf is the uid of a file, not of what it links to.
func ownerOf(path string) (uint32, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false
	}
	return owned(info)
}

func owned(info fs.FileInfo) (uint32, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}
