// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// allowedHere are the calls that only amd64 has: older forms of those that both
// architectures have.
var allowedHere = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_ARCH_PRCTL, unix.SYS_GETPGRP, unix.SYS_PAUSE, unix.SYS_ALARM, unix.SYS_TIME,
	unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_GETDENTS, unix.SYS_USTAT,
	unix.SYS_RENAME, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_LINK, unix.SYS_UNLINK, unix.SYS_SYMLINK, unix.SYS_CHOWN, unix.SYS_LCHOWN,
	unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_PIPE, unix.SYS_DUP2, unix.SYS_SIGNALFD, unix.SYS_EVENTFD, unix.SYS_INOTIFY_INIT,
	unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT,
	unix.SYS_URETPROBE, 336, // what the kernel's own probes of a program return by (336: uprobe)
}

var refusedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_USELIB, unix.SYS_LOOKUP_DCOOKIE,
}

var checkedHere = map[uint32]check{
	unix.SYS_OPEN:  openMode(1, 2),
	unix.SYS_CREAT: refuseBits(1, setIDBits),
	unix.SYS_CHMOD: refuseBits(1, setIDBits),
	unix.SYS_MKNOD: refuseBits(1, setIDBits),
}
