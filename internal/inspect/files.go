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
	"strings"
	"syscall"

	"bawn/internal/doctor"
	"bawn/internal/netplan"
)

// anybody stands for a uid or gid that does not matter.
const anybody = -1

// A want is what a file is to be.
type want struct {
	path     string
	kind     fs.FileMode // 0: a regular file
	uid, gid int
	most     fs.FileMode // permissions that it may have at most
	least    fs.FileMode // that it must have
	optional bool        // it may be absent
}

const permissions = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// look compares what is there with what is wanted.
func look(w want) []problem {
	info, err := os.Lstat(w.path)
	if errors.Is(err, fs.ErrNotExist) && w.optional {
		return nil
	}
	if err != nil {
		return []problem{{seen: err.Error(), fix: "start Bawn again, which makes what it needs; a lost key or database is to be restored"}}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Type() != w.kind {
		return []problem{{seen: fmt.Sprintf("%s is a %s", w.path, kindName(info.Mode())), fix: "move " + w.path + " away and start Bawn again"}}
	}
	var list []problem
	if w.uid != anybody && int(st.Uid) != w.uid || w.gid != anybody && int(st.Gid) != w.gid {
		list = append(list, problem{fmt.Sprintf("%s belongs to %d:%d", w.path, st.Uid, st.Gid), fmt.Sprintf("chown %s %s", owner(w.uid, w.gid), w.path)})
	}
	mode := info.Mode() & permissions
	if mode&^w.most != 0 || w.least&^mode != 0 {
		list = append(list, problem{fmt.Sprintf("%s has mode %s", w.path, octal(mode)), fmt.Sprintf("chmod %s %s", octal(mode&w.most|w.least), w.path)})
	}
	return list
}

func owner(uid, gid int) string {
	switch {
	case gid == anybody:
		return fmt.Sprint(uid)
	case uid == anybody:
		return fmt.Sprintf(":%d", gid)
	}
	return fmt.Sprintf("%d:%d", uid, gid)
}

// octal is a mode as chmod takes it.
func octal(m fs.FileMode) string {
	n := uint32(m.Perm())
	for bit, value := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			n |= value
		}
	}
	return fmt.Sprintf("%04o", n)
}

func kindName(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	case fs.ModeSocket:
		return "socket"
	}
	return "device or pipe"
}

func lookAll(list []want) (all []problem) {
	for _, w := range list {
		all = append(all, look(w)...)
	}
	return all
}

// glob lists what there is of a pattern.
func glob(pattern string) []string {
	list, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	slices.Sort(list)
	return list
}

// secretOf is a file of an account's for nobody else.
func secretOf(path string, a Account, optional bool) want {
	return want{path: path, uid: a.UID, gid: a.GID, most: 0o600, optional: optional}
}

func (h Host) caKey() doctor.Finding {
	return found(doctor.CAKey, "", lookAll([]want{secretOf(filepath.Join(h.state("admin"), "ca.key"), h.Admin, false)}))
}

func (h Host) auditKey() doctor.Finding {
	name := filepath.Join(h.state("admin"), "audit.key")
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return none(doctor.AuditKey, "there is none")
	}
	return found(doctor.AuditKey, "", lookAll([]want{secretOf(name, h.Admin, true)}))
}

func (h Host) databases() doctor.Finding {
	var list []want
	for _, pattern := range []string{"*.db", "*.db-wal", "*.db-shm", "*.db-journal"} {
		for _, name := range glob(filepath.Join(h.state("admin"), pattern)) {
			list = append(list, secretOf(name, h.Admin, true))
		}
	}
	problems := lookAll(list)
	if len(list) == 0 {
		problems = []problem{{"there is no database in " + h.state("admin"), "restore it, or start Bawn again for an empty one"}}
	}
	return found(doctor.Databases, count(len(list), "file"), problems)
}

func (h Host) configuration() doctor.Finding {
	list := []want{
		{path: h.Etc, kind: fs.ModeDir, uid: 0, gid: anybody, most: 0o755},
		{path: filepath.Join(h.Etc, "config.yaml"), uid: 0, gid: anybody, most: 0o644, optional: true},
	}
	for _, name := range h.Secrets {
		list = append(list, want{path: name, uid: 0, gid: anybody, most: 0o600})
	}
	return found(doctor.Configuration, count(len(h.Secrets), "secret file"), lookAll(list))
}

func (h Host) sockets() doctor.Finding {
	return found(doctor.Sockets, "", lookAll([]want{
		{path: filepath.Join(h.Run, "admin.sock"), kind: fs.ModeSocket, uid: h.Proxy.UID, gid: h.Operators, most: 0o660, least: 0o660},
		{path: filepath.Join(h.Run, "netd.sock"), kind: fs.ModeSocket, uid: h.Proxy.UID, gid: h.Admin.GID, most: 0o660, least: 0o660},
		{path: h.Run, kind: fs.ModeDir, uid: 0, gid: anybody, most: 0o755, least: 0o711},
	}))
}

func (h Host) stateDirectories() doctor.Finding {
	return found(doctor.StateDirs, "", lookAll([]want{
		{path: h.Lib, kind: fs.ModeDir, uid: 0, gid: 0, most: 0o755, least: 0o711},
		{path: h.state("admin"), kind: fs.ModeDir, uid: h.Admin.UID, gid: h.Admin.GID, most: 0o700, least: 0o700},
		{path: h.state("proxy"), kind: fs.ModeDir, uid: h.Proxy.UID, gid: h.Admin.GID, most: 0o750, least: 0o750},
		{path: filepath.Join(h.state("proxy"), "names"), kind: fs.ModeDir, uid: h.Proxy.UID, gid: anybody, most: 0o750, optional: true},
		{path: filepath.Join(h.state("proxy"), "labels"), kind: fs.ModeDir, uid: h.Proxy.UID, gid: anybody, most: 0o750, optional: true},
		{path: filepath.Join(h.state("proxy"), "budgets"), kind: fs.ModeDir, uid: h.Proxy.UID, gid: anybody, most: 0o750, optional: true},
		{path: filepath.Join(h.Lib, "agents"), kind: fs.ModeDir, uid: 0, gid: 0, most: 0o711, least: 0o711},
	}))
}

func (h Host) journals() doctor.Finding {
	var list []want
	for _, plane := range []struct {
		name  string
		owner Account
		most  fs.FileMode
	}{{"proxy", h.Proxy, 0o640}, {"admin", h.Admin, 0o640}} {
		dir := filepath.Join(h.state(plane.name), "journal")
		list = append(list, want{path: dir, kind: fs.ModeDir, uid: plane.owner.UID, gid: anybody, most: fs.ModeSetgid | 0o750, least: 0o700, optional: plane.name != "proxy"})
		for _, name := range glob(filepath.Join(dir, "*")) {
			list = append(list, want{path: name, uid: plane.owner.UID, gid: h.Admin.GID, most: plane.most, optional: true})
		}
	}
	return found(doctor.Journals, count(max(len(list)-2, 0), "file"), lookAll(list))
}

func (h Host) public() doctor.Finding {
	dir := filepath.Join(h.Lib, "public")
	list := []want{{path: dir, kind: fs.ModeDir, uid: h.Admin.UID, gid: h.Admin.GID, most: 0o755, least: 0o755}}
	names := glob(filepath.Join(dir, "*"))
	for _, must := range []string{"ca.crt", "bundle.crt"} {
		if path := filepath.Join(dir, must); !slices.Contains(names, path) {
			names = append(names, path)
		}
	}
	for _, name := range names {
		list = append(list, want{path: name, uid: h.Admin.UID, gid: h.Admin.GID, most: 0o644, least: 0o444})
	}
	return found(doctor.Public, "", lookAll(list))
}

// homes looks at every agent's. What lies within a home is the agent's own
// business.
func (h Host) homes() doctor.Finding {
	entries, err := os.ReadDir(filepath.Join(h.Lib, "agents"))
	if err != nil {
		return found(doctor.Homes, "", []problem{{seen: err.Error()}})
	}
	uids, err := h.agentUIDs()
	if err != nil {
		return found(doctor.Homes, "", []problem{{seen: err.Error()}})
	}
	var list, own []want
	for _, e := range entries {
		top := filepath.Join(h.Lib, "agents", e.Name())
		list = append(list, want{path: top, kind: fs.ModeDir, uid: 0, gid: 0, most: 0o711, least: 0o711})
		uid, known := uids[e.Name()]
		if !known {
			uid = anybody
		}
		list = append(list, want{path: filepath.Join(top, "tmp"), kind: fs.ModeDir, uid: 0, gid: anybody, most: 0o700, least: 0o700, optional: true})
		for _, name := range []string{"home", "work"} {
			w := want{path: filepath.Join(top, name), kind: fs.ModeDir, uid: uid, gid: anybody, most: permissions, optional: true}
			list = append(list, w)
			w.most = 0o700
			own = append(own, w)
		}
	}
	if problems := lookAll(list); len(problems) > 0 {
		return found(doctor.Homes, "", problems)
	}
	// The modes of its own directories are the agent's to change.
	f := found(doctor.Homes, count(len(entries), "agent"), lookAll(own))
	if f.State != doctor.OK {
		f.State = doctor.Warn
	}
	return f
}

// agentUIDs are those of the accounts of agents.
func (h Host) agentUIDs() (map[string]int, error) {
	accounts, err := h.accounts()
	if err != nil {
		return nil, err
	}
	uids := map[string]int{}
	for _, a := range accounts {
		if name, ok := strings.CutPrefix(a.name, accountPrefix); ok && netplan.IsAgentUID(uint32(a.uid)) {
			uids[name] = a.uid
		}
	}
	return uids, nil
}

// binary looks at the program and every directory above it.
func (h Host) binary() doctor.Finding {
	var problems []problem
	for at := h.Binary; ; at = filepath.Dir(at) {
		problems = append(problems, roots(at)...)
		if at == filepath.Dir(at) {
			return found(doctor.Binary, h.Binary, problems)
		}
	}
}

// roots reports why somebody else than root could put another file in at's
// place.
func roots(at string) []problem {
	info, err := os.Stat(at)
	if err != nil {
		return []problem{{seen: err.Error()}}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	var list []problem
	if !ok || st.Uid != 0 {
		list = append(list, problem{fmt.Sprintf("%s belongs to uid %d", at, st.Uid), "chown root " + at})
	}
	if loose := info.Mode().Perm() & 0o022; loose != 0 && info.Mode()&fs.ModeSticky == 0 && (loose&0o002 != 0 || st.Gid != 0) {
		list = append(list, problem{fmt.Sprintf("%s has mode %s", at, octal(info.Mode()&permissions)), "chmod go-w " + at})
	}
	return list
}
