// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/services"
)

func TestMain(m *testing.M) {
	world.Main()
	os.Exit(m.Run())
}

// run runs a shell line on the host, where no boundary is.
func run(t *testing.T, w *world.World, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := w.Host.Command(ctx, "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// TestServersAnswer is the control for what is tried through Bawn: each server
// serves a client on a host that has no boundary.
func TestServersAnswer(t *testing.T) {
	roottest.Require(t)
	w := world.New(t)
	n := w.Names
	start := map[string]func() error{
		"OpenSSL":    func() error { return services.OpenSSL(w) },
		"PostgreSQL": func() error { return services.Postgres(w) },
		"WebSocket":  func() error { return services.WebSocket(w) },
	}
	for name, f := range start {
		if err := f(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	ssh, err := services.SSH(w)
	if err != nil {
		t.Fatal(err)
	}
	mail, err := services.Mail(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		path, text string
		mode       os.FileMode
	}{{"/opt/key", string(ssh.Key), 0o600}, {"/opt/known", ssh.KnownHost, 0o644}} {
		if err := os.WriteFile(w.Host.File(f.path), []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	psql := "PGPASSWORD=" + services.PostgresPassword + " psql -tA 'host=" + n.Postgres + " user=ada dbname=postgres "
	const inTLS = "select ssl::text || ' ' || 6*7 from pg_stat_ssl where pid = pg_backend_pid()"
	for name, c := range map[string]struct{ line, want string }{
		"ssh":              {"ssh -i /opt/key -o UserKnownHostsFile=/opt/known -o BatchMode=yes ada@" + n.SSH + " id -un", "ada\n"},
		"PostgreSQL":       {psql + `sslmode=disable' -c "` + inTLS + `"`, "false 42\n"},
		"PostgreSQL, TLS":  {psql + "sslmode=verify-full sslrootcert=" + world.Bundle + `' -c "` + inTLS + `"`, "true 42\n"},
		"mail":             {"swaks --silent 3 --server " + n.SMTP + " --port 25 --from a@example.com --to b@example.com && echo sent", "sent\n"},
		"mail, TLS":        {"swaks --silent 3 --server " + n.SMTP + " --port 587 --tls --from a@example.com --to b@example.com && echo sent", "sent\n"},
		"OpenSSL":          {"printf 'hello\\nCLOSE\\n' | openssl s_client -quiet -verify_return_error -connect " + n.TLS + ":443 2>/dev/null", "olleh\n"},
		"OpenSSL, greeted": {"printf 'hello\\nCLOSE\\n' | openssl s_client -quiet -verify_return_error -msg -connect " + n.TLS + ":8443 2>/dev/null | grep -c 'ClientHello'", "2\n"},
		"WebSocket, Python": {`/usr/bin/python3 -c '
import asyncio, websockets
async def main():
    for port in 443, 8443:
        async with websockets.connect("wss://` + n.WebSocket + `:%d/" % port) as s:
            await s.send("extensions")
            print(await s.recv())
asyncio.run(main())'`, "permessage-deflate\npermessage-deflate\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if out := run(t, w, c.line); !strings.HasSuffix(out, c.want) {
				t.Errorf("printed %q, want %q", out, c.want)
			}
		})
	}
	got, err := mail.Messages()
	if err != nil || len(got) != 2 {
		t.Errorf("%d messages were kept (%v): %q", len(got), err, got)
	}
}
