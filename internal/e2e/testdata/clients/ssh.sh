#!/bin/sh
# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Logs in with ssh and copies a file with scp: ssh.sh HOST TOKEN. Where a proxy
# is set it goes by the way that ssh has for it. Key and known hosts lie beside.
set -eu
here=$(dirname "$0")
own=$(mktemp -d)
cp "$here/ssh.key" "$own/key" # ssh wants it to be its user's own
chmod 600 "$own/key"
set -- "$1" "$2" -i "$own/key" -F none -o UserKnownHostsFile="$here/ssh.known" -o BatchMode=yes
if [ -n "${HTTPS_PROXY:-}" ]; then
	set -- "$@" -o "ProxyCommand=nc.openbsd -X connect -x ${HTTPS_PROXY#http://} %h %p"
fi
host=$1 token=$2
shift 2
ssh "$@" "ada@$host" id -un
head -c 3000000 /dev/zero >"$own/up"
scp -q "$@" "$own/up" "ada@$host:/run/ada/$token"
scp -q "$@" "ada@$host:/run/ada/$token" "$own/down"
cmp "$own/up" "$own/down"
ssh "$@" "ada@$host" "rm /run/ada/$token"
echo "copied $token"
