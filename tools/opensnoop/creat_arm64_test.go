package opensnoop

// There is no creat(2) on arm64.
const sysCreat uintptr = 0
