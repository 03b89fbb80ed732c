// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"bawn/internal/doctor"
	"bawn/internal/netplan"
)

// accountPrefix begins the names of agents' accounts.
const accountPrefix = "bawn-"

// An account is one line of passwd.
type account struct {
	name, shell string
	uid         int
}

// accounts are those of the passwd file: the name service of the host may know
// more, and may also be slow.
func (h Host) accounts() (list []account, err error) {
	err = h.lines("etc/passwd", func(f []string) {
		if len(f) < 7 {
			return
		}
		if uid, err := strconv.Atoi(f[2]); err == nil {
			list = append(list, account{f[0], f[6], uid})
		}
	})
	return list, err
}

// lines reads a file of fields with colons. One that does not exist has none.
func (h Host) lines(name string, each func(fields []string)) error {
	text, err := os.ReadFile(filepath.Join(h.System, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			each(strings.Split(line, ":"))
		}
	}
	return nil
}

func agents(list []account) (own []account) {
	for _, a := range list {
		if netplan.IsAgentUID(uint32(a.uid)) && a.uid >= 0 {
			own = append(own, a)
		}
	}
	return own
}

// uidRange looks for others that use the uids of agents: what they send would be
// held as an agent's, and an agent would own their files.
func (h Host) uidRange() doctor.Finding {
	var problems []problem
	all, err := h.accounts()
	if err != nil {
		problems = append(problems, problem{seen: err.Error()})
	}
	seen := map[int]string{}
	for _, a := range agents(all) {
		if !strings.HasPrefix(a.name, accountPrefix) {
			problems = append(problems, problem{fmt.Sprintf("account %s has uid %d", a.name, a.uid), "usermod -u another uid: " + a.name})
		} else if seen[a.uid] != "" {
			problems = append(problems, problem{fmt.Sprintf("accounts %s and %s have uid %d", seen[a.uid], a.name, a.uid), "bawn agent remove one of them"})
		}
		seen[a.uid] = a.name
	}
	problems = append(problems, h.subordinate("etc/subuid", "--del-subuids")...)
	problems = append(problems, h.subordinate("etc/subgid", "--del-subgids")...)
	problems = append(problems, h.strangers()...)
	return found(doctor.UIDRange, fmt.Sprintf("%d-%d", netplan.FirstUID, netplan.LastUID), problems)
}

func (h Host) subordinate(file, flag string) (problems []problem) {
	err := h.lines(file, func(f []string) {
		if len(f) != 3 {
			return
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 != nil || err2 != nil || count == 0 {
			return
		}
		if last := first + count - 1; first <= netplan.LastUID && last >= netplan.FirstUID {
			problems = append(problems, problem{
				fmt.Sprintf("/%s gives %d-%d to %s", file, first, last, f[0]),
				fmt.Sprintf("usermod %s %d-%d %s", flag, first, last, f[0]),
			})
		}
	})
	if err != nil {
		problems = append(problems, problem{seen: err.Error()})
	}
	return problems
}

// strangers looks for processes with an agent's uid outside of Bawn's cgroup.
func (h Host) strangers() (problems []problem) {
	entries, err := os.ReadDir(h.Proc)
	if err != nil {
		return []problem{{seen: err.Error()}}
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join(h.Proc, e.Name(), "status"))
		if err != nil {
			continue // gone meanwhile
		}
		uid, err := strconv.ParseUint(strings.Split(fields(string(status))["Uid"]+"\t", "\t")[0], 10, 32)
		if err != nil || !netplan.IsAgentUID(uint32(uid)) {
			continue
		}
		group, err := os.ReadFile(filepath.Join(h.Proc, e.Name(), "cgroup"))
		if err != nil || h.held(string(group)) {
			continue
		}
		problems = append(problems, problem{fmt.Sprintf("process %s runs as uid %d outside of Bawn's cgroups", e.Name(), uid), "find out who started it (systemctl status " + e.Name() + "), and end it"})
	}
	return problems
}

// held reports whether a /proc/PID/cgroup is that of a session. Another
// installation's counts too: its uids are of the same range.
func (h Host) held(text string) bool {
	for line := range strings.Lines(text) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, part := range strings.Split(path, "/") {
			if part == "bawn" || strings.HasPrefix(part, "bawn-") {
				return true
			}
		}
	}
	return false
}

// logins looks for ways in which the host would run something for an agent's
// account outside of its place.
func (h Host) logins() doctor.Finding {
	all, err := h.accounts()
	if err != nil {
		return found(doctor.Logins, "", []problem{{seen: err.Error()}})
	}
	own := map[string]account{}
	for _, a := range agents(all) {
		own[a.name] = a
	}
	var problems []problem
	for _, name := range sortedNames(own) {
		if s := filepath.Base(own[name].shell); s != "nologin" && s != "false" {
			problems = append(problems, problem{fmt.Sprintf("account %s has the shell %q", name, own[name].shell), "usermod -s /usr/sbin/nologin " + name})
		}
	}
	is := func(name string) bool { _, ok := own[name]; return ok }
	problems = append(problems, h.passwords(is)...)
	problems = append(problems, h.groups(is)...)
	problems = append(problems, h.sudoers(own)...)
	problems = append(problems, h.spools(is)...)
	return found(doctor.Logins, count(len(own), "account"), problems)
}

func sortedNames(m map[string]account) []string {
	var list []string
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// passwords looks which accounts have one: a hash never begins with "!" or "*".
func (h Host) passwords(is func(string) bool) (problems []problem) {
	err := h.lines("etc/shadow", func(f []string) {
		if len(f) > 1 && is(f[0]) && !strings.HasPrefix(f[1], "!") && !strings.HasPrefix(f[1], "*") {
			problems = append(problems, problem{"account " + f[0] + " has a password", "usermod -L " + f[0]})
		}
	})
	if err != nil {
		problems = append(problems, problem{seen: err.Error()})
	}
	return problems
}

func (h Host) groups(is func(string) bool) (problems []problem) {
	err := h.lines("etc/group", func(f []string) {
		if len(f) < 4 {
			return
		}
		for _, member := range strings.Split(f[3], ",") {
			if is(member) && member != f[0] {
				problems = append(problems, problem{fmt.Sprintf("account %s is in group %s", member, f[0]), fmt.Sprintf("gpasswd -d %s %s", member, f[0])})
			}
		}
	})
	if err != nil {
		problems = append(problems, problem{seen: err.Error()})
	}
	return problems
}

// sudoers looks for the names and uids of agents in what sudo and doas read. It
// does not read their languages: that one is named is enough to look.
func (h Host) sudoers(own map[string]account) (problems []problem) {
	files := append(glob(filepath.Join(h.System, "etc/sudoers.d/*")), filepath.Join(h.System, "etc/sudoers"), filepath.Join(h.System, "etc/doas.conf"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "# ")
			for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t,=:%", r) }) {
				a, ok := own[word]
				if !ok {
					i := slices.IndexFunc(sortedNames(own), func(n string) bool { return word == "#"+strconv.Itoa(own[n].uid) })
					if i < 0 {
						continue
					}
					a = own[sortedNames(own)[i]]
				}
				problems = append(problems, problem{fmt.Sprintf("%s names account %s", name, a.name), "take the account out of " + name})
			}
		}
	}
	return problems
}

// spools looks for jobs of agents' accounts, which daemons of root's would run
// outside of the place.
func (h Host) spools(is func(string) bool) (problems []problem) {
	for dir, fix := range map[string]string{
		"var/spool/cron/crontabs": "crontab -r -u ", "var/spool/cron": "crontab -r -u ", "var/lib/systemd/linger": "loginctl disable-linger ",
		"var/spool/cron/tabs": "crontab -r -u ",
	} {
		for _, path := range glob(filepath.Join(h.System, dir, "*")) {
			if name := filepath.Base(path); is(name) {
				problems = append(problems, problem{"there is " + path, fix + name})
			}
		}
	}
	for _, dir := range []string{"var/spool/cron/atjobs", "var/spool/at", "var/spool/atjobs"} {
		for _, path := range glob(filepath.Join(h.System, dir, "*")) {
			if uid, ok := ownerOf(path); ok && netplan.IsAgentUID(uid) {
				problems = append(problems, problem{fmt.Sprintf("there is %s of uid %d", path, uid), "rm " + path})
			}
		}
	}
	slices.SortFunc(problems, func(a, b problem) int { return strings.Compare(a.seen, b.seen) })
	return problems
}
