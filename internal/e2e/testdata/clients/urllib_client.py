# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1]) as r:
    print(r.read().decode())
