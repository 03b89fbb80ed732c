// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	"bawn/internal/world/operator"
)

// An agent "cannot modify code, configuration, network policy, proxy
// certificates, or admin API". Below, one test a noun: each tries from the
// agent's account, in both placements, and then looks from outside.

// forEach runs a line as each agent and returns what was printed, by placement.
func (h *host) forEach(t *testing.T, line string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for placement, agent := range placements() {
		r := h.sh(t, agent, line)
		out[placement] = r.out + r.err
	}
	return out
}

// refusedAll checks that each command that printed a line "did: ..." is absent.
func refusedAll(t *testing.T, outputs map[string]string) {
	t.Helper()
	for placement, out := range outputs {
		for line := range strings.Lines(out) {
			if after, ok := strings.CutPrefix(line, "did: "); ok {
				t.Errorf("%s: the agent %s", placement, after)
			}
		}
		if !strings.HasSuffix(out, "tried all\n") {
			t.Errorf("%s: the attempts did not come to their end: %s", placement, out)
		}
	}
}

// try makes a shell line that says what it did if it could.
func try(what, line string) string {
	return "if ( " + line + " ) >/dev/null 2>&1; then echo \"did: " + what + "\"; fi\n"
}

func TestAgentCannotModifyCode(t *testing.T) {
	h := boot(t)
	before := h.root(t, "sha256sum "+operator.Binary).out
	refusedAll(t, h.forEach(t, try("write the program", "echo x >>"+operator.Binary)+
		try("replace the program", "mv "+operator.Binary+" /tmp/x")+
		try("write beside it", "touch "+operator.Binary+".new")+
		try("write in /usr/bin", "touch /usr/bin/bawn-was-here")+
		try("write in /lib", "touch /lib/bawn-was-here")+
		try("preload for others", "echo /tmp/x.so >/etc/ld.so.preload")+
		try("write another's memory", "for p in /proc/[0-9]*; do test $(stat -c %u $p) = $(id -u) || { echo x | dd of=$p/mem bs=1 seek=4096 && exit 0; }; done; false")+
		try("become root", "sudo -n true || su -c true </dev/null")+
		try("see a process of Bawn", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -E 'bawn (--root [^ ]+ )?(proxy|admin|netd|up)'")+
		try("signal everything else", "kill -0 $(ls /proc | grep -E '^[0-9]+$' | grep -vx $$) ; false")+
		"echo tried all"))
	if after := h.root(t, "sha256sum "+operator.Binary).out; after != before {
		t.Errorf("the program changed: %s, was %s", after, before)
	}
}

func TestAgentCannotModifyConfiguration(t *testing.T) {
	h := boot(t)
	h.root(t, "printf 'version: 1\\n' >/etc/bawn/config.yaml || { mkdir -p /etc/bawn && printf 'version: 1\\n' >/etc/bawn/config.yaml; }")
	before := h.root(t, "cat /etc/bawn/config.yaml; cat /etc/passwd /etc/group; find /var/lib/bawn -path '*/agents/*' -prune -o -printf '%p %m %U\\n' | sort").out
	refusedAll(t, h.forEach(t, try("write the configuration", "echo x >>/etc/bawn/config.yaml")+
		try("read the configuration's directory for writing", "touch /etc/bawn/x")+
		try("make an account", "echo 'x::0:0::/:/bin/sh' >>/etc/passwd")+
		try("join the operators", "sed -i 's/^bawn:.*/&,me/' /etc/group")+
		try("write in Bawn's state", "touch /var/lib/bawn/x || touch /var/lib/bawn/admin/x || touch /var/lib/bawn/proxy/x")+
		try("read Bawn's database", "ls /var/lib/bawn/admin/ | grep .")+
		try("write its own resolver setting", "echo nameserver 1.1.1.1 >/etc/resolv.conf")+
		try("write its own hosts file", "echo 1.1.1.1 "+h.w.Names.API+" >>/etc/hosts")+
		"echo tried all"))
	after := h.root(t, "cat /etc/bawn/config.yaml; cat /etc/passwd /etc/group; find /var/lib/bawn -path '*/agents/*' -prune -o -printf '%p %m %U\\n' | sort").out
	if after != before {
		t.Errorf("changed from:\n%s\nto:\n%s", before, after)
	}
}

func TestAgentCannotModifyNetworkPolicy(t *testing.T) {
	h := boot(t)
	before := h.root(t, "nft list ruleset | sed 's/packets [0-9]* bytes [0-9]*//'; ip rule; ip route; ip addr | grep inet").out
	refusedAll(t, h.forEach(t, try("flush the rules", "nft flush ruleset")+
		try("flush iptables", "iptables -F")+
		try("add a route", "ip route add 1.2.3.0/24 dev lo")+
		try("delete a routing rule", "ip rule del priority 0 || ip rule flush")+
		try("add an address", "ip addr add 1.2.3.4/32 dev lo")+
		try("add a link", "ip link add d0 type dummy")+
		try("turn forwarding on", "echo 1 >/proc/sys/net/ipv4/ip_forward")+
		try("make a network namespace", "unshare -n true")+
		try("make a user namespace", "unshare -U true || unshare -Ur true")+
		try("enter the host's network", "nsenter -t 1 -n true")+
		try("mount", "mount -t tmpfs x /tmp")+
		try("leave its cgroup", "for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do echo $$ >$f && exit 0; done; false")+
		try("change the policy", operator.Binary+" policy apply /dev/null")+
		"echo tried all"))
	if after := h.root(t, "nft list ruleset | sed 's/packets [0-9]* bytes [0-9]*//'; ip rule; ip route; ip addr | grep inet").out; after != before {
		t.Errorf("changed from:\n%s\nto:\n%s", before, after)
	}
	if out := h.bawn(t, "policy", "show"); out != usual {
		t.Errorf("the policy is:\n%s", out)
	}
}

func TestAgentCannotModifyProxyCertificates(t *testing.T) {
	h := boot(t)
	const list = "find /var/lib/bawn/public /var/lib/bawn/admin /var/lib/bawn/proxy -type f \\( -name '*.crt' -o -name '*.key' -o -name '*.pem' \\) -exec sha256sum {} + | sort"
	before := h.root(t, list).out
	if before == "" {
		t.Fatal("no certificate was found from outside")
	}
	refusedAll(t, h.forEach(t, try("write the public certificate", "echo x >>/var/lib/bawn/public/ca.crt")+
		try("replace it", "mv /var/lib/bawn/public/ca.crt /tmp/x")+
		try("write the bundle that its variables name", `echo x >>"$SSL_CERT_FILE"`)+
		try("replace that", `mv "$SSL_CERT_FILE" /tmp/x`)+
		try("write the system's bundle", "echo x >>/etc/ssl/certs/ca-certificates.crt")+
		try("read a key", "find / -xdev -name '*.key' -path '*bawn*' 2>/dev/null | xargs cat | grep PRIVATE")+
		try("read the root's key", "cat /var/lib/bawn/admin/*.key /var/lib/bawn/admin/*/*.key")+
		`test -s "$SSL_CERT_FILE" && grep -q CERTIFICATE "$SSL_CERT_FILE" && echo tried all`))
	if after := h.root(t, list).out; after != before {
		t.Errorf("changed from:\n%s\nto:\n%s", before, after)
	}
}

func TestAgentCannotUseTheAdminAPI(t *testing.T) {
	h := boot(t)
	agents := h.bawn(t, "agent", "list")
	const connect = `/usr/bin/python3 -c 'import socket,sys; s=socket.socket(socket.AF_UNIX, int(sys.argv[2])); s.connect(sys.argv[1]); s.sendall(b"GET /v1/status HTTP/1.1\r\nHost: bawn\r\n\r\n"); sys.exit(0 if s.recv(100) else 1)' `
	refusedAll(t, h.forEach(t, try("ask admin", connect+"/run/bawn/admin.sock 1")+
		try("ask netd", connect+"/run/bawn/netd.sock 5")+
		try("see the sockets", "ls /run/bawn/ | grep sock")+
		try("use the CLI", operator.Binary+" status")+
		try("make an agent", operator.Binary+" agent create evil --user evil")+
		try("remove an agent", operator.Binary+" agent remove dev")+
		try("start a session", operator.Binary+" run --agent dev -- true")+
		try("ask over TCP", "for p in 80 443 3000 7443 8080 8443 9090; do (echo >/dev/tcp/127.0.0.1/$p) && exit 0; done; false")+
		"echo tried all"))
	if after := h.bawn(t, "agent", "list"); after != agents {
		t.Errorf("the agents are:\n%s, were:\n%s", after, agents)
	}
	// An account of the host that is no operator is not served either.
	if err := h.w.Host.AddUser(t.Context(), "visitor"); err != nil {
		t.Fatal(err)
	}
	if out, err := h.w.Host.CommandAs(t.Context(), "visitor", operator.Binary, "status").CombinedOutput(); err == nil {
		t.Errorf("an account that is no operator was served: %s", out)
	}
}

// TestAgentCannotModifyTheRecord is the noun that the sentence takes for
// granted.
func TestAgentCannotModifyTheRecord(t *testing.T) {
	h := boot(t)
	h.curl(t, "dev", "https://"+h.w.Names.Evil+"/")
	before := h.decisions(t, all)
	refusedAll(t, h.forEach(t, try("see the journal", "ls /var/lib/bawn/proxy/journal/ | grep .")+
		try("write in the journal's directory", "touch "+journalDir+"/x")+
		try("truncate the journal", "for f in "+journalDir+"/*; do : >$f && exit 0; done; false")+
		"echo tried all"))
	after := h.decisions(t, all)
	if len(before) == 0 || len(after) < len(before) || after[0] != before[0] {
		t.Errorf("%d records before, %d after", len(before), len(after))
	}
}
