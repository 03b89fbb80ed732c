#!/bin/sh
# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Asks PostgreSQL with psql, in TLS and without: psql.sh HOST TOKEN. psql knows
# no proxy; where one is set, socat stands between, on a socket of its own.
set -eu
export PGPASSWORD=sesame # services.PostgresPassword
ask() {
	psql -tA "$1 user=ada dbname=postgres" -c "select case when ssl then 'tls' else 'plain' end || ' $token ' || 6*7 from pg_stat_ssl where pid = pg_backend_pid()"
}
host=$1 token=$2
if [ -z "${HTTPS_PROXY:-}" ]; then
	ask "host=$host sslmode=disable"
	ask "host=$host sslmode=verify-full sslrootcert=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}"
	exit
fi
own=$(mktemp -d)
proxy=${HTTPS_PROXY#http://}
socat "UNIX-LISTEN:$own/.s.PGSQL.5432,fork" "PROXY:${proxy%:*}:$host:5432,proxyport=${proxy#*:}" &
trap "kill $!" EXIT
while [ ! -S "$own/.s.PGSQL.5432" ]; do sleep 0.05; done
ask "host=$own"
