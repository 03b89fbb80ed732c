#!/bin/sh
# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
#
# answer.sh - answers one HTTP request on stdin, whatever it asks for, with what
# Bawn counts. For socat or inetd, under an account of group bawn; see
# docs/metrics.md.
end=$(printf '\r')
while IFS= read -r line && [ "$line" != "$end" ] && [ -n "$line" ]; do :; done
if text=$(bawn metrics); then
	printf 'HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n\r\n%s\n' "$text"
else
	printf 'HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\n\r\n'
fi
