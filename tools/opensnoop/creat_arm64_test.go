package opensnoop

// arm64 has no creat(2).
const sysCreat uintptr = 0
