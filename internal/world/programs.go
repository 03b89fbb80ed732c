// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Program is a server that nobody here wrote, to run beside the internet's
// own. It ends with the world.
type Program struct {
	Name    string // of its directory and its log
	Argv    []string
	Env     []string // in addition to PATH
	Account string   // "" is root; see [Accounts]
	Lent    string   // a directory that the account may not reach: it is mounted where it can, and Argv and Env follow
	Listens string   // ADDRESS:PORT to wait for; "" waits for its end instead
}

// Accounts are those of the internet's machine besides root, with their numbers.
var Accounts = map[string]int{"sshd": 64000, "ada": 64001, "postgres": 64002, "squid": 64003}

// Folder makes and names a directory for a server's files. It belongs to the
// account, and the server sees it under the same name.
func (u *Upstream) Folder(name, account string) (string, error) {
	dir := filepath.Join(u.w.dir, "servers", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making a directory for %s: %w", name, err)
	}
	return dir, os.Chown(dir, Accounts[account], Accounts[account])
}

// Run starts a program, or runs it to its end; see [Program.Listens].
func (u *Upstream) Run(p Program) error { return u.w.internet.call("Run", p, &None{}) }

// Certify writes a certificate of the world's root for name, and its key, to
// dir/cert.pem and dir/key.pem. Only the account may read the key.
func (u *Upstream) Certify(name, dir, account string) error {
	leaf, err := u.w.root.leaf(name)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		return fmt.Errorf("writing a key for %s: %w", name, err)
	}
	for _, f := range []struct {
		name, kind string
		der        []byte
		mode       os.FileMode
	}{{"cert.pem", "CERTIFICATE", leaf.Certificate[0], 0o644}, {"key.pem", "PRIVATE KEY", key, 0o600}} {
		path := filepath.Join(dir, f.name)
		text := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := errors.Join(os.WriteFile(path, text, f.mode), os.Chown(path, Accounts[account], Accounts[account])); err != nil {
			return fmt.Errorf("writing a certificate for %s: %w", name, err)
		}
	}
	return nil
}

// Run starts a program.
func (i *Internet) Run(p Program, _ *None) error {
	dir := filepath.Join(i.dir, "servers", p.Name)
	if err := p.mountLent(); err != nil {
		return err
	}
	log, err := os.OpenFile(dir+".log", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append([]string{"PATH=" + Path, "HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8"}, p.Env...)
	if n := uint32(Accounts[p.Account]); n != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: n, Gid: n}}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := await(p, ended); err != nil {
		said, _ := os.ReadFile(dir + ".log") // best effort: it is for whoever reads the failure
		return fmt.Errorf("starting %s: %w: %s", p.Name, err, bytes.TrimSpace(said[max(0, len(said)-4096):]))
	}
	return nil
}

// mountLent makes what the program is lent reachable.
func (p *Program) mountLent() error {
	if p.Lent == "" {
		return nil
	}
	at := filepath.Join("/run/lent", filepath.Base(p.Lent))
	if _, err := os.Stat(at); err != nil {
		if err := errors.Join(os.MkdirAll(at, 0o755), bindMount(p.Lent, at)); err != nil {
			return fmt.Errorf("lending %s: %w", p.Lent, err)
		}
	}
	for _, list := range [][]string{p.Argv, p.Env} {
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], p.Lent, at)
		}
	}
	return nil
}

// await waits until a program is there, or for its end.
func await(p Program, ended <-chan error) error {
	if p.Listens == "" {
		return <-ended
	}
	for range 1500 {
		select {
		case err := <-ended:
			return fmt.Errorf("it ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		c, err := net.DialTimeout("tcp", p.Listens, time.Second)
		if err == nil {
			return c.Close()
		}
	}
	return errors.New("nobody listens on " + p.Listens)
}

// accountFiles are /etc/passwd and /etc/group of the internet's machine.
func accountFiles() (passwd, group string) {
	passwd, group = "root:x:0:0::/root:/bin/sh\n", "root:x:0:\n"
	for name, n := range Accounts {
		id := strconv.Itoa(n)
		passwd += name + ":x:" + id + ":" + id + "::/run/" + name + ":/bin/sh\n"
		group += name + ":x:" + id + ":\n"
	}
	nobody := "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
	return passwd + nobody, group + "nogroup:x:65534:\n"
}
