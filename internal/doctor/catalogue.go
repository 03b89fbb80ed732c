// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import "bawn/internal/ids"

// The names. They are for good: alerts are built on them.
const (
	SelfTest Name = "self_test"

	Links       Name = "links"
	TCP         Name = "tcp"
	UDP         Name = "udp"
	ICMP        Name = "icmp"
	Protocols   Name = "other_protocols"
	SourcePorts Name = "source_ports"
	DNS         Name = "dns"
	Metadata    Name = "metadata"
	Loopback    Name = "loopback"
	Services    Name = "services"
	Abstract    Name = "abstract"
	OwnSockets  Name = "own_sockets"
	OwnFiles    Name = "own_files"
	Calls       Name = "kernel"
	Rights      Name = "other_rights"
	Others      Name = "other_processes"
	Counted     Name = "counted"

	ByProxy      Name = "canary_proxy"
	Transparent  Name = "canary_transparent"
	ByResolver   Name = "canary_dns"
	OneCode      Name = "one_code"
	OnRecord     Name = "on_record"
	Certificates Name = "certificates"

	RulesStand   Name = "firewall_stands"
	RulesPlanned Name = "firewall_rules"
	Foreign      Name = "firewall_foreign"
	Forward      Name = "firewall_forward"

	CAKey         Name = "ca_key"
	AuditKey      Name = "audit_key"
	Databases     Name = "databases"
	Configuration Name = "configuration"
	Sockets       Name = "sockets"
	StateDirs     Name = "state"
	Journals      Name = "journals"
	Public        Name = "public"
	Homes         Name = "homes"
	Binary        Name = "binary"

	Dumps      Name = "dumps"
	Privileges Name = "privileges"
	Units      Name = "units"

	UIDRange Name = "uid_range"
	Logins   Name = "logins"

	Nftables   Name = "nftables"
	Cgroups    Name = "cgroups"
	Limits     Name = "limits"
	Seccomp    Name = "seccomp"
	Namespaces Name = "namespaces"
	UserNS     Name = "advice_userns"
	IOUring    Name = "advice_io_uring"
	Dmesg      Name = "advice_dmesg"
	BPF        Name = "advice_bpf"

	ClockJump  Name = "clock_jump"
	ClockBuild Name = "clock_build"
	CADates    Name = "ca_dates"

	Blocks     Name = "disk_space"
	Inodes     Name = "disk_inodes"
	IndexLag   Name = "index_lag"
	Checkpoint Name = "checkpoint"

	Lease     Name = "lease"
	Resolvers Name = "resolvers"
	Parent    Name = "parent"
)

// The remedies, where more than one check has the same.
const (
	fixTable = "look at nft list ruleset, find what changes the tables of Bawn, stop it, and start Bawn again"
	fixView  = "something shows the host's /run or /var in the agent's view: agents see /usr, /opt, /nix and /gnu of the host; move it elsewhere"
	fixProxy = "the proxy does not refuse as it must: look at bawn status and at the proxy's log; start Bawn again"
	fixCalls = "the agent's list of system calls does not hold: a kernel with CONFIG_SECCOMP_FILTER is needed, and Bawn's binary must be its own, unchanged"
)

// All is the catalogue, in the order of the report.
var All = []Check{
	{SelfTest, Place, "the self-test", Fail, true, "", "whether the probe ran in the agent's place to its end", "look at the logs of netd and admin; bawn doctor runs it again"},
	{Links, Place, "no link to anywhere", Fail, true, ids.PlacementNetns, "that the namespace has a loopback interface and nothing else", "something put a link into the agent's network namespace: keep programs that move links between namespaces away from it, and start Bawn again"},
	{TCP, Place, "direct TCP", Fail, true, "", "TCP, v4 and v6, to addresses of documentation on usual ports: Bawn's listener answers, or nobody", fixTable},
	{UDP, Place, "direct UDP", Fail, true, "", "the same by UDP, QUIC's and STUN's greetings among it", fixTable},
	{ICMP, Place, "ICMP", Fail, true, "", "echo requests by raw and by ping sockets, v4 and v6", fixTable},
	{Protocols, Place, "other protocols", Fail, true, "", "sockets for SCTP, DCCP, MPTCP, UDP-Lite, raw IP, packets, vsock, Bluetooth, the kernel's cryptography and the rest: none can be made", fixCalls},
	{SourcePorts, Place, "chosen source ports", Fail, true, "", "connections from the proxy's own port, from 53 and from ports of previews: the source opens nothing", fixTable},
	{DNS, Place, "other resolvers", Fail, true, "", "questions to resolvers of documentation addresses, to local stubs and to those of resolv.conf, by UDP, TCP and on 853: nobody but Bawn answers", fixTable},
	{Metadata, Place, "cloud metadata", Fail, true, "", "the metadata addresses of clouds, directly; by the proxy, see canary_proxy", fixTable},
	{Loopback, Place, "the host's loopback", Fail, true, "", "usual ports of the host, listeners opened for the purpose (loopback v4 and v6, an address of the host, another agent's proxy), by TCP and UDP", fixTable},
	{Services, Place, "local services", Fail, true, "", "sockets of D-Bus, systemd, systemd-resolved, varlink, container engines and their like", fixView},
	{Abstract, Place, "abstract sockets", Fail, true, "", "abstract sockets of the host; in placement uid a kernel before Linux 6.12 cannot close them, which is told as a warning", "Linux 6.12 or newer with Landlock keeps agents from the host's abstract sockets; or use the netns placement, where there are none"},
	{OwnSockets, Place, "Bawn's own sockets", Fail, true, "", "admin.sock and netd.sock", fixView},
	{OwnFiles, Place, "Bawn's own files", Fail, true, "", "reading, writing or replacing journals, database, configuration, keys and policy", fixView},
	{Calls, Place, "the kernel's back doors", Fail, true, "", "io_uring, BPF, new namespaces, mounts, tracing, keyrings, performance counters, modules, handles, becoming root, writing to the system; and that the account has no capability, cannot gain any and is filtered", fixCalls},
	{Rights, Place, "other accounts' rights", Fail, true, "", "no_new_privs in effect, file systems of the agent's own without set-id bits, sudo and su without effect, no cron, at, systemd-run or lingering", "look at what mounts the agent's view changed: Bawn gives agents no new privileges and nosuid on all that they can write"},
	{Others, Place, "other processes", Fail, true, "", "that /proc shows the session's processes alone, and that none of them but its own can be looked into", "the agent's view does not have a /proc of its own: a kernel with PID namespaces is needed; start Bawn again"},
	{Counted, Place, "the firewall counted the tries", Fail, true, "", "that the firewall's counters moved with the tries: silence alone proves nothing", "the rules are not where the agent's packets pass: start Bawn again, and look for another program that changes the firewall"},

	{ByProxy, Gate, "a name that is not allowed, by the proxy", Fail, true, "", "the canary by CONNECT and in absolute form, addresses in the place of a name, and metadata addresses", fixProxy},
	{Transparent, Gate, "a name that is not allowed, without the proxy", Fail, true, ids.PlacementNetns, "the canary in a TLS greeting, in a Host field, and neither, to a public address", fixProxy},
	{ByResolver, Gate, "a name that is not allowed, by DNS", Fail, true, ids.PlacementNetns, "the canary by UDP and TCP at Bawn's resolver: REFUSED", fixProxy},
	{OneCode, Gate, "one denial, one code", Fail, true, "", "that the canary is refused with one and the same code on every path", fixProxy},
	{OnRecord, Gate, "the tries are on record", Fail, true, "", "that the refusals of this run are in the journal, those of metadata addresses as sensitive", "look at the proxy's log: what cannot be written to the journal is refused; df and mount say whether its file system is full or read-only"},
	{Certificates, Gate, "Bawn's certificates", Fail, true, "", "that the agent can read the certificate and the bundle", "the agent cannot read Bawn's public certificates: look at the permissions of the directory public in Bawn's state directory, which everybody must be able to read"},

	{RulesStand, Firewall, "the host's table stands", Fail, false, "", "what netd, which watches it, says", fixTable},
	{RulesPlanned, Firewall, "the rules are as planned", Fail, true, "", "each rule of the live tables, in the kernel's own bytes, each chain and each element of a set against the plan: of the host, and of every agent's namespace; what differs is named", fixTable},
	{Foreign, Firewall, "nobody else redirects or drops", Warn, false, "", "tables of others that see packets of agents or of the proxy: chains that change destinations on output, or drop by policy on output or input", ""},
	{Forward, Firewall, "nobody else drops what is forwarded", Warn, false, "", "chains of others with the policy drop for forwarded packets, which will matter to agents with a link", ""},

	{CAKey, Files, "the CA's key", Fail, false, "", "of bawn-admin, mode 0600, in a directory of bawn-admin's with mode 0700", ""},
	{AuditKey, Files, "the record's signing key", Fail, false, "", "the same", ""},
	{Databases, Files, "databases", Fail, false, "", "the same", ""},
	{Configuration, Files, "configuration", Fail, false, "", "/etc/bawn and config.yaml are root's and nobody else writes them; keys and passwords that they name are for root alone to read", ""},
	{Sockets, Files, "sockets", Fail, false, "", "admin.sock of bawn-proxy and group bawn, netd.sock of bawn-proxy and group bawn-admin, both 0660", ""},
	{StateDirs, Files, "state directories", Fail, false, "", "owner and mode of every directory that Bawn makes", ""},
	{Journals, Files, "journals", Fail, false, "", "files of the journal: written by their plane alone, read by admin, closed to others", ""},
	{Public, Files, "public files", Fail, false, "", "the certificates: everybody reads them, bawn-admin alone writes them", ""},
	{Homes, Files, "agents' directories", Fail, false, "", "home and work are the agent's, and what holds them is root's; that an agent has opened them to others is a warning", ""},
	{Binary, Files, "Bawn's binary", Fail, false, "", "the program and each directory above it: nobody but root writes them", ""},

	{Dumps, Processes, "no core dumps", Fail, false, "", "that neither admin nor the proxy, which hold keys, can be dumped or traced by its own account", "start Bawn again: both refuse to be dumped when they start"},
	{Privileges, Processes, "no privileges", Fail, false, "", "admin and the proxy: their account, no capability, no new privileges", "start Bawn again by bawn up or by its units, which take these away"},
	{Units, Processes, "systemd units", Fail, false, "", "the units on disk, with what overrides them, keep their hardening", ""},

	{UIDRange, Accounts, "the uids are Bawn's", Fail, false, "", "no account, subordinate range or process but Bawn's uses the uids of agents", ""},
	{Logins, Accounts, "agents cannot log in", Fail, false, "", "agents' accounts: no shell, no password, in no other group, named in no sudoers file, no crontab, no at job, no lingering", ""},

	{Nftables, Kernel, "nftables", Fail, false, "", "that the kernel answers for its tables", "a kernel with CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET is needed: modprobe nf_tables"},
	{Cgroups, Kernel, "cgroups", Fail, false, "", "version 2, with cgroup.kill and cgroup.freeze", "a kernel from 5.14 on with the unified hierarchy is needed (systemd.unified_cgroup_hierarchy=1)"},
	{Limits, Kernel, "limits of sessions", Warn, false, "", "the controllers for memory, processes and CPU", "let the controllers through to Bawn's group: look at cgroup.subtree_control above it"},
	{Seccomp, Kernel, "seccomp filters", Fail, false, "", "the actions that agents' filters use", "a kernel with CONFIG_SECCOMP_FILTER is needed"},
	{Namespaces, Kernel, "namespaces", Fail, false, "", "network, mount, PID, IPC, UTS and user namespaces, and room for more", "a kernel with all namespaces is needed; look at sysctl user.max_net_namespaces and its like"},
	{UserNS, Kernel, "advice: unprivileged user namespaces", Warn, false, "", "whether every account of the host may make them; agents cannot, by their filter", "sysctl -w kernel.unprivileged_userns_clone=0 (Debian), or user.max_user_namespaces as low as the host's own programs allow"},
	{IOUring, Kernel, "advice: io_uring", Warn, false, "", "whether every account of the host may use it; agents cannot, by their filter", "sysctl -w kernel.io_uring_disabled=2"},
	{Dmesg, Kernel, "advice: the kernel's log", Warn, false, "", "whether every account may read it", "sysctl -w kernel.dmesg_restrict=1"},
	{BPF, Kernel, "advice: unprivileged BPF", Warn, false, "", "whether every account may load programs", "sysctl -w kernel.unprivileged_bpf_disabled=1"},

	{ClockJump, Clock, "the clock runs evenly", Warn, false, "", "the wall clock against one that cannot be set, since the last run", "look at the time service (timedatectl, chronyc tracking): records of the time in between may be out of order by as much"},
	{ClockBuild, Clock, "the clock is right", Fail, false, "", "that it is not before the day on which the program was built", "set the clock: timedatectl set-ntp true"},
	{CADates, Clock, "the CA's dates", Fail, false, "", "that the root certificate is valid now and for the next thirty days", "stop Bawn, move ca.crt and ca.key in the state directory of admin away, and start it: a new root is made; running agents have to be started anew"},

	{Blocks, Space, "space on disk", Fail, false, "", "blocks that are left where journal and databases are", "make room, or move Bawn's state directory to a larger file system: without room every request is refused"},
	{Inodes, Space, "inodes on disk", Fail, false, "", "the same of inodes", "remove files, or use a file system with more inodes: without one no journal file can be begun"},
	{IndexLag, Space, "the index follows the journal", Warn, false, "", "how far the queryable index is behind", "look at admin's log; the index catches up by itself once it can"},
	{Checkpoint, Space, "checkpoints are signed", Fail, false, "", "that every journal is what was written, and that nothing waits for its checkpoint for long", "bawn audit verify says what and where; without checkpoints removed records cannot be proved"},

	{Lease, Parts, "a plane enforces the policy", Fail, false, "", "that a proxy holds a lease on the revision in force", "look at bawn status and at the proxy's log; start Bawn again"},
	{Resolvers, Parts, "the resolvers answer", Fail, false, "", "a question for a name that cannot exist, asked by the proxy of each of its resolvers", "look at resolvers in the configuration, and whether this host may reach them"},
	{Parent, Parts, "the parent proxy answers", Fail, false, "", "what the proxy found when it tried it last", ""},
}
