// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// arm64 has the common calls alone.
var allowedHere = []uint32{}

var refusedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_LOOKUP_DCOOKIE}

var checkedHere = map[uint32]check{}
