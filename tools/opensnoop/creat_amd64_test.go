package opensnoop

import "golang.org/x/sys/unix"

const sysCreat uintptr = unix.SYS_CREAT
