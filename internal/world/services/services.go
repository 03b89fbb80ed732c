// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package services runs servers that nobody here wrote in the internet of a
// world: OpenSSH, PostgreSQL, an SMTP server, WebSocket servers, OpenSSL's and
// gRPC's own.
//
// Each function starts one at the address of its name and returns once it
// accepts connections; it ends with the world. Programs come from the package
// supply, certificates from the world's root.
package services

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"bawn/internal/world"
	"bawn/internal/world/supply"
)

// python is the system's own: modules of Debian's packages fit no other.
const python = "/usr/bin/python3"

// OpenSSL runs "openssl s_server" in TLS 1.3 at TLS, port 443, where it answers
// each line with the line reversed; on port 8443 it does so with a group that
// no client sends a share of at first, so that each has to greet twice.
func OpenSSL(w *world.World) error {
	dir, err := folder(w, "openssl", "", w.Names.TLS)
	if err != nil {
		return err
	}
	for port, args := range map[string][]string{"443": nil, "8443": {"-groups", "secp384r1"}} {
		argv := []string{"openssl", "s_server", "-quiet", "-rev", "-tls1_3", "-accept", world.TLSAddr + ":" + port, "-cert", dir + "/cert.pem", "-key", dir + "/key.pem"}
		err := w.Upstream.Run(world.Program{Name: "openssl", Argv: append(argv, args...), Listens: world.TLSAddr + ":" + port})
		if err != nil {
			return err
		}
	}
	return nil
}

// GRPC runs a program, the tests' own build of gRPC's interoperability server,
// at GRPC, port 443.
func GRPC(w *world.World, program string) error {
	dir, err := folder(w, "grpc", "", w.Names.GRPC)
	if err != nil {
		return err
	}
	return w.Upstream.Run(world.Program{
		Name: "grpc", Argv: []string{program, world.GRPCAddr + ":443", dir + "/cert.pem", dir + "/key.pem"},
		Listens: world.GRPCAddr + ":443",
	})
}

var (
	//go:embed echo.cjs
	echoJS []byte
	//go:embed echo.py
	echoPython []byte
	//go:embed mail.py
	mailPython []byte
)

// WSVersion is the package of npm that WebSocket runs.
const WSVersion = "ws@8"

// WebSocket runs two echo servers at WebSocket: on port 443 npm's ws, which
// takes permessage-deflate, and on port 8443 Python's websockets. Both answer
// the message "extensions" with what was negotiated, and "close CODE REASON" by
// closing.
func WebSocket(w *world.World) error {
	dir, err := folder(w, "websocket", "", w.Names.WebSocket)
	if err != nil {
		return err
	}
	ws, err := supply.NPM(WSVersion)
	if err != nil {
		return err
	}
	deb, err := supply.Unpack("python3-websockets")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"echo.cjs": echoJS, "echo.py": echoPython} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("writing a server: %w", err)
		}
	}
	err = w.Upstream.Run(world.Program{
		Name: "websocket", Argv: []string{"node", dir + "/echo.cjs", world.WebSocketAddr, "443"},
		Env: []string{"NODE_PATH=" + filepath.Join(ws, "node_modules")}, Listens: world.WebSocketAddr + ":443",
	})
	if err != nil {
		return err
	}
	return w.Upstream.Run(world.Program{
		Name: "websocket", Argv: []string{python, dir + "/echo.py", world.WebSocketAddr, "8443"},
		Env: deb.Env(), Listens: world.WebSocketAddr + ":8443",
	})
}

// Mail runs an SMTP server with STARTTLS at SMTP, ports 25 and 587.
func Mail(w *world.World) (*Mailbox, error) {
	dir, err := folder(w, "mail", "", w.Names.SMTP)
	if err != nil {
		return nil, err
	}
	deb, err := supply.Unpack("python3-aiosmtpd")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "mail.py"), mailPython, 0o644); err != nil {
		return nil, fmt.Errorf("writing a server: %w", err)
	}
	return &Mailbox{dir}, w.Upstream.Run(world.Program{
		Name: "mail", Argv: []string{python, dir + "/mail.py", world.SMTPAddr}, Env: deb.Env(), Listens: world.SMTPAddr + ":587",
	})
}

// A Mailbox holds what an SMTP server was given.
type Mailbox struct{ dir string }

// Messages gives each message as it came; the first line says over what.
func (m *Mailbox) Messages() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(m.dir, "*.eml"))
	if err != nil {
		return nil, fmt.Errorf("reading mail: %w", err)
	}
	var out []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading mail: %w", err)
		}
		out = append(out, string(text))
	}
	return out, nil
}

// An SSHServer is what a client must know of one.
type SSHServer struct {
	User      string
	Key       []byte // the user's private key
	KnownHost string // line for known_hosts
}

// SSH runs OpenSSH's server at SSH, port 22.
func SSH(w *world.World) (*SSHServer, error) {
	deb, err := supply.Unpack("openssh-server")
	if err != nil {
		return nil, err
	}
	dir, err := w.Upstream.Folder("ssh", "")
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"host", "user"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", filepath.Join(dir, key)).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("making keys for ssh: %w: %s", err, out)
		}
	}
	config := fmt.Sprintf(`ListenAddress %s:22
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
Subsystem sftp internal-sftp
`, world.SSHAddr, dir)
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o644); err != nil {
		return nil, fmt.Errorf("configuring ssh: %w", err)
	}
	s := &SSHServer{User: "ada"}
	if s.Key, err = os.ReadFile(filepath.Join(dir, "user")); err != nil {
		return nil, fmt.Errorf("reading keys for ssh: %w", err)
	}
	public, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		return nil, fmt.Errorf("reading keys for ssh: %w", err)
	}
	s.KnownHost = w.Names.SSH + " " + string(public)
	return s, w.Upstream.Run(world.Program{
		Name: "ssh", Argv: []string{deb.Path("/usr/sbin/sshd"), "-D", "-e", "-f", dir + "/config"}, Env: deb.Env(), Listens: world.SSHAddr + ":22",
	})
}

// PostgresPassword is that of the user "ada" of [Postgres].
const PostgresPassword = "sesame"

// Postgres runs PostgreSQL at Postgres, port 5432, with TLS for those who ask.
func Postgres(w *world.World) error {
	name, err := supply.Needed("postgresql")
	if err != nil {
		return err
	}
	deb, err := supply.Unpack(name)
	if err != nil {
		return err
	}
	dir, err := w.Upstream.Folder("postgres", "postgres")
	if err != nil {
		return err
	}
	if err := w.Upstream.Certify(w.Names.Postgres, dir, "postgres"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte(PostgresPassword), 0o644); err != nil {
		return fmt.Errorf("configuring postgres: %w", err)
	}
	bin := deb.Path("/usr/lib/postgresql/" + strings.TrimPrefix(name, "postgresql-") + "/bin")
	data := filepath.Join(dir, "data")
	run := world.Program{Name: "postgres", Account: "postgres", Lent: deb.Root, Env: deb.Env()}
	run.Argv = []string{bin + "/initdb", "--no-sync", "--auth=scram-sha-256", "--username=ada", "--pwfile=" + dir + "/password", "--pgdata=" + data}
	if err := w.Upstream.Run(run); err != nil {
		return err
	}
	hba := "host all all 0.0.0.0/0 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		return fmt.Errorf("configuring postgres: %w", err)
	}
	run.Argv = []string{bin + "/postgres", "-D", data}
	for _, set := range []string{
		"listen_addresses=" + world.PostgresAddr, "unix_socket_directories=" + dir, "ssl=on",
		"ssl_cert_file=" + dir + "/cert.pem", "ssl_key_file=" + dir + "/key.pem", "fsync=off", "jit=off",
	} {
		run.Argv = append(run.Argv, "-c", set)
	}
	run.Listens = world.PostgresAddr + ":5432"
	return w.Upstream.Run(run)
}

// folder makes a directory with a certificate.
func folder(w *world.World, name, account, host string) (string, error) {
	dir, err := w.Upstream.Folder(name, account)
	if err != nil {
		return "", err
	}
	return dir, w.Upstream.Certify(host, dir, account)
}
