// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/doctor"
	"bawn/internal/inspect"
)

// A way breaks one thing, and says what is then to be seen and how it is mended.
type way struct {
	do        func(r *rig)
	seen, fix string
}

// breaks has for each check the ways in which it turns red.
var breaks = map[doctor.Name][]way{
	doctor.CAKey: {
		{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/admin/ca.key"), 0o644)) }, "ca.key has mode 0644", "chmod 0600 "},
		{func(r *rig) { r.must(os.Chown(r.at("var/lib/bawn/admin/ca.key"), 1000, 1000)) }, "ca.key belongs to 1000:1000", "chown 61001:61001 "},
		{func(r *rig) { r.must(os.Remove(r.at("var/lib/bawn/admin/ca.key"))) }, "no such file", "restored"},
		{func(r *rig) {
			r.must(os.Rename(r.at("var/lib/bawn/admin/ca.key"), r.at("x")))
			r.must(os.Symlink(r.at("x"), r.at("var/lib/bawn/admin/ca.key")))
		}, "ca.key is a symbolic link", "move "},
	},
	doctor.AuditKey: {{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/admin/audit.key"), 0o640)) }, "audit.key has mode 0640", "chmod 0600 "}},
	doctor.Databases: {
		{func(r *rig) { r.write("var/lib/bawn/admin/index.db-wal", "x", adminID, adminID, 0o644) }, "index.db-wal has mode 0644", "chmod 0600 "},
		{func(r *rig) { r.must(os.Remove(r.at("var/lib/bawn/admin/bawn.db"))) }, "there is no database", "restore it"},
	},
	doctor.Configuration: {
		{func(r *rig) { r.must(os.Chmod(r.at("etc/bawn/config.yaml"), 0o666)) }, "config.yaml has mode 0666", "chmod 0644 "},
		{func(r *rig) { r.must(os.Chown(r.at("etc/bawn"), 1000, 0)) }, "etc/bawn belongs to 1000:0", "chown 0 "},
		{func(r *rig) { r.must(os.Chmod(r.at("etc/bawn/secret"), 0o640)) }, "secret has mode 0640", "chmod 0600 "},
	},
	doctor.Sockets: {
		{func(r *rig) { r.must(os.Chmod(r.at("run/bawn/admin.sock"), 0o666)) }, "admin.sock has mode 0666", "chmod 0660 "},
		{func(r *rig) { r.must(os.Chown(r.at("run/bawn/netd.sock"), proxyID, operators)) }, "netd.sock belongs to 61002:61003", "chown 61002:61001 "},
		{func(r *rig) { r.must(os.Chmod(r.at("run/bawn"), 0o777)) }, "run/bawn has mode 0777", "chmod 0755 "},
	},
	doctor.StateDirs: {
		{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/admin"), 0o755)) }, "admin has mode 0755", "chmod 0700 "},
		{func(r *rig) { r.must(os.Chown(r.at("var/lib/bawn"), 1000, 1000)) }, "bawn belongs to 1000:1000", "chown 0:0 "},
	},
	doctor.Journals: {
		{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/proxy/journal/1.jsonl"), 0o644)) }, "1.jsonl has mode 0644", "chmod 0640 "},
		{func(r *rig) { r.must(os.Chown(r.at("var/lib/bawn/proxy/journal/1.jsonl"), adminID, adminID)) }, "1.jsonl belongs to 61001:61001", "chown 61002:61001 "},
		{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/proxy/journal"), 0o777)) }, "journal has mode 0777", "chmod 0750 "},
	},
	doctor.Public: {
		{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/public/ca.crt"), 0o666)) }, "ca.crt has mode 0666", "chmod 0644 "},
		{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/public/ca.crt"), 0o600)) }, "ca.crt has mode 0600", "chmod 0644 "},
		{func(r *rig) { r.must(os.Remove(r.at("var/lib/bawn/public/bundle.crt"))) }, "bundle.crt: no such file", "start Bawn again"},
	},
	doctor.Homes: {
		{func(r *rig) { r.must(os.Chmod(r.at("var/lib/bawn/agents/dev"), 0o777)) }, "dev has mode 0777", "chmod 0711 "},
		{func(r *rig) { r.must(os.Chown(r.at("var/lib/bawn/agents/dev/work"), agentID+1, agentID+1)) }, "work belongs to", "chown "},
		{func(r *rig) { r.must(os.Chown(r.at("var/lib/bawn/agents/dev"), agentID, agentID)) }, "dev belongs to", "chown 0:0 "},
	},
	doctor.Binary: {
		{func(r *rig) { r.must(os.Chmod(r.at("usr/bin/bawn"), 0o777)) }, "bawn has mode 0777", "chmod go-w "},
		{func(r *rig) { r.must(os.Chown(r.at("usr/bin"), 1000, 0)) }, "usr/bin belongs to uid 1000", "chown root "},
	},
	doctor.Dumps: {{func(r *rig) { r.h.Processes[1].PID = r.process(proxyID, "tame") }, "proxy (process ", "start Bawn again"}},
	doctor.Privileges: {
		{func(r *rig) { r.h.Processes[0].PID = r.process(adminID, "closed") }, "may gain privileges", "start Bawn again"},
		{func(r *rig) { r.h.Processes[0].PID = r.process(0, "closed", "tame") }, "has uid 0", "start Bawn again"},
	},
	doctor.Units: {
		{func(r *rig) {
			r.write("etc/systemd/system/bawn-proxy.service.d/mine.conf", "[Service]\nNoNewPrivileges=no\n", 0, 0, 0o644)
		}, "bawn-proxy.service: NoNewPrivileges=no in ", "take NoNewPrivileges out of "},
		{func(r *rig) {
			r.write("usr/lib/systemd/system/bawn-proxy.service", strings.Replace(service, "ProtectSystem=strict\n", "", 1), 0, 0, 0o644)
		}, "does not set ProtectSystem=strict", "write ProtectSystem=strict into "},
		{func(r *rig) {
			r.write("etc/systemd/system/bawn-proxy.service", strings.Replace(service, "LimitCORE=0", "LimitCORE=infinity", 1), 0, 0, 0o644)
		}, "LimitCORE=infinity", "take LimitCORE out of "},
		{func(r *rig) { r.must(os.Chown(r.at("usr/lib/systemd/system/bawn-proxy.service"), 1000, 0)) }, "belongs to uid 1000", "chown root "},
	},
	doctor.UIDRange: {
		{func(r *rig) {
			r.append("etc/passwd", "bob:x:1900000123:100::/home/bob:/usr/sbin/nologin\n")
		}, "account bob has uid 1900000123", "usermod "},
		{func(r *rig) { r.append("etc/subuid", "alice:1899990000:65536\n") }, "gives 1899990000-1900055535 to alice", "usermod --del-subuids 1899990000-1900055535 alice"},
		{func(r *rig) { r.append("etc/subgid", "alice:1900009999:1\n") }, "/etc/subgid", "usermod --del-subgids "},
		{func(r *rig) { r.process(agentID + 900) }, "outside of Bawn's cgroups", "end it"},
	},
	doctor.Logins: {
		{func(r *rig) { r.replace("etc/passwd", "/usr/sbin/nologin", "/bin/bash") }, `bawn-dev has the shell "/bin/bash"`, "usermod -s "},
		{func(r *rig) { r.replace("etc/shadow", "bawn-dev:!:", "bawn-dev:$y$x:") }, "bawn-dev has a password", "usermod -L bawn-dev"},
		{func(r *rig) { r.replace("etc/group", "sudo:x:27:alice", "sudo:x:27:alice,bawn-dev") }, "bawn-dev is in group sudo", "gpasswd -d bawn-dev sudo"},
		{func(r *rig) { r.write("etc/sudoers.d/agents", "bawn-dev ALL=(ALL) NOPASSWD: ALL\n", 0, 0, 0o440) }, "names account bawn-dev", "take the account out"},
		{func(r *rig) { r.append("etc/sudoers", "#1900000007 ALL=(ALL) ALL\n") }, "names account bawn-dev", "take the account out"},
		{func(r *rig) { r.write("var/spool/cron/crontabs/bawn-dev", "* * * * * id\n", agentID, 0, 0o600) }, "crontabs/bawn-dev", "crontab -r -u bawn-dev"},
		{func(r *rig) { r.write("var/spool/cron/atjobs/a0001", "id\n", agentID, 0, 0o700) }, "atjobs/a0001", "rm "},
		{func(r *rig) { r.write("var/lib/systemd/linger/bawn-dev", "", 0, 0, 0o644) }, "linger/bawn-dev", "loginctl disable-linger bawn-dev"},
	},
	doctor.Cgroups: {{func(r *rig) { r.must(os.Remove(filepath.Join(r.h.Cgroups, r.h.Mark))) }, "cgroup.kill", "a kernel from 5.14"}},
	doctor.Limits:  {{func(r *rig) { r.h.Limits = []string{"memory: no controller"} }, "memory: no controller", "cgroup.subtree_control"}},
	doctor.Seccomp: {{func(r *rig) { r.sysctl("kernel.seccomp.actions_avail", "trap errno allow") }, "no action kill_process", "CONFIG_SECCOMP_FILTER"}},
	doctor.Namespaces: {
		{func(r *rig) { r.sysctl("user.max_net_namespaces", "0") }, "user.max_net_namespaces is 0", "sysctl -w user.max_net_namespaces=4096"},
	},
	doctor.UserNS:  {{func(r *rig) { r.sysctl("kernel.unprivileged_userns_clone", "1") }, "is 1", "sysctl -w "}},
	doctor.IOUring: {{func(r *rig) { r.sysctl("kernel.io_uring_disabled", "0") }, "is 0", "sysctl -w "}},
	doctor.Dmesg:   {{func(r *rig) { r.sysctl("kernel.dmesg_restrict", "0") }, "is 0", "sysctl -w "}},
	doctor.BPF:     {{func(r *rig) { r.sysctl("kernel.unprivileged_bpf_disabled", "0") }, "is 0", "sysctl -w "}},
	doctor.Blocks: {
		{func(r *rig) { r.tmpfs("var/lib/bawn/proxy/journal", "size=1m") }, "journal: 1 MiB left", "make room"},
		{func(r *rig) { r.must(os.RemoveAll(r.at("var/lib/bawn/proxy/journal"))) }, "no such file", ""},
	},
	doctor.Inodes: {{func(r *rig) { r.tmpfs("var/lib/bawn/proxy/journal", "nr_inodes=100") }, "inodes left", "remove files"}},
}

func (r *rig) append(path, text string) {
	r.t.Helper()
	old, err := os.ReadFile(r.at(path))
	r.must(err)
	r.must(os.WriteFile(r.at(path), append(old, text...), 0o600))
}

func (r *rig) replace(path, old, with string) {
	r.t.Helper()
	text, err := os.ReadFile(r.at(path))
	r.must(err)
	if !strings.Contains(string(text), old) {
		r.t.Fatalf("%s has no %q", path, old)
	}
	r.must(os.WriteFile(r.at(path), []byte(strings.Replace(string(text), old, with, 1)), 0o600))
}

// states are those that lines have, worst ones as the catalogue says.
func states(list []doctor.Finding) map[string]string {
	m := map[string]string{}
	for _, f := range list {
		l := f.Line()
		m[l.Name] = l.State
	}
	return m
}

func TestASoundInstallationIsFoundSound(t *testing.T) {
	r := newRig(t)
	for _, f := range r.h.All() {
		if f.State != doctor.OK {
			t.Errorf("%+v", f)
		}
	}
}

// TestI12EachThingThatIsBrokenTurnsItsLineRed, and no other.
func TestI12EachThingThatIsBrokenTurnsItsLineRed(t *testing.T) {
	sound := states(newRig(t).h.All())
	for name, ways := range breaks {
		for _, w := range ways {
			t.Run(string(name)+"/"+w.seen, func(t *testing.T) {
				r := newRig(t)
				want := maps.Clone(sound)
				w.do(r)
				row, _ := doctor.Find(name)
				want[string(name)] = string(row.Worst)
				list := r.h.All()
				got := states(list)
				for _, side := range sideEffects[w.seen] {
					want[string(side)] = got[string(side)]
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				for _, f := range list {
					l := f.Line()
					if f.Name == name && (!strings.Contains(l.Detail, w.seen) || !strings.Contains(l.Fix, w.fix) || l.Fix == "") {
						t.Errorf("saw %q with %q, fix %q with %q", l.Detail, w.seen, l.Fix, w.fix)
					}
				}
			})
		}
	}
}

// sideEffects are other checks that the same thing breaks.
var sideEffects = map[string][]doctor.Name{
	"no such file": {doctor.Journals, doctor.Inodes}, // there is no journal at all
}

// TestWhatAHostDoesNotHaveIsNotApplicable: an installation without units, and
// without a key that signs.
func TestWhatAHostDoesNotHaveIsNotApplicable(t *testing.T) {
	r := newRig(t)
	r.must(os.Remove(r.at("usr/lib/systemd/system/bawn-proxy.service")))
	r.must(os.Remove(r.at("var/lib/bawn/admin/audit.key")))
	r.must(os.Remove(r.at("proc/sys/kernel/io_uring_disabled")))
	got := states(r.h.All())
	for _, name := range []doctor.Name{doctor.Units, doctor.AuditKey, doctor.IOUring} {
		if got[string(name)] != string(doctor.NotApplicable) {
			t.Errorf("%s: %s", name, got[string(name)])
		}
	}
}

// TestAnAgentCannotMakeACheckFail by what is its own: it is told, and no more.
func TestAnAgentCannotMakeACheckFail(t *testing.T) {
	r := newRig(t)
	r.must(os.Chmod(r.at("var/lib/bawn/agents/dev/home"), 0o777))
	for _, f := range r.h.All() {
		if l := f.Line(); f.Name == doctor.Homes && (l.State != string(doctor.Warn) || !strings.HasSuffix(l.Detail, "home has mode 0777") || !strings.HasPrefix(l.Fix, "chmod 0700 ")) {
			t.Errorf("%+v", l)
		}
	}
}

// TestTheUnitsThatAreInstalledAreSound.
func TestTheUnitsThatAreInstalledAreSound(t *testing.T) {
	files, err := filepath.Glob("../install/units/*.service")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	r := newRig(t)
	for _, name := range files {
		text, err := os.ReadFile(name)
		r.must(err)
		r.write("usr/lib/systemd/system/"+filepath.Base(name), string(text), 0, 0, 0o644)
	}
	for _, f := range r.h.All() {
		if f.Name == doctor.Units && (f.State != doctor.OK || f.Seen != fmt.Sprintf("%d services", len(files))) {
			t.Errorf("%+v", f)
		}
	}
}

// TestWhatMayBeStricterIsSound: an operator may close more than Bawn asks for.
func TestWhatMayBeStricterIsSound(t *testing.T) {
	r := newRig(t)
	for path, mode := range map[string]os.FileMode{
		"var/lib/bawn/admin/ca.key": 0o400, "etc/bawn": 0o700, "etc/bawn/config.yaml": 0o600, "var/lib/bawn/proxy/journal/1.jsonl": 0o440, "run/bawn": 0o711,
	} {
		r.must(os.Chmod(r.at(path), mode))
	}
	for _, f := range r.h.All() {
		if f.State != doctor.OK {
			t.Errorf("%+v", f)
		}
	}
}

func TestDefaultNamesThePlacesOfAHost(t *testing.T) {
	if h := inspect.Default(); h.Proc != "/proc" || h.Sysctl != "/proc/sys" || h.System != "/" {
		t.Errorf("%+v", h)
	}
}
