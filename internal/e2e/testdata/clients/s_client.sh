#!/bin/sh
# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Speaks TLS with openssl: s_client.sh HOST:PORT LINES sends lines, which the
# server answers with their reverse; s_client.sh HOST:PORT "" PROTOCOL begins as
# a protocol does that turns to TLS, and says whether that was verified.
set -eu
to=$1 lines=$2 starttls=${3:-}
set -- -verify_return_error -verify_hostname "${to%:*}" -connect "$to" -servername "${to%:*}"
if [ -n "${HTTPS_PROXY:-}" ]; then
	set -- "$@" -proxy "${HTTPS_PROXY#http://}"
fi
if [ -n "$starttls" ]; then
	openssl s_client "$@" -starttls "$starttls" -brief </dev/null 2>&1
else
	printf '%b' "$lines" | openssl s_client "$@" -quiet
fi
