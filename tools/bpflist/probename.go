package bpflist

import (
	"bytes"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fdQuery is the part of union bpf_attr for BPF_TASK_FD_QUERY.
type fdQuery struct {
	PID, FD, Flags, BufLen uint32
	Buf                    uint64
	ProgID, Type           uint32
	Offset, Addr           uint64
}

// probeName returns what a perf event of a process is attached to, or "" if the kernel does not tell.
func probeName(pid, fd uint32) string {
	const query = 20 // BPF_TASK_FD_QUERY
	text := new([512]byte)
	// The kernel gets the address as a number, so the array must not move.
	var pin runtime.Pinner
	pin.Pin(text)
	defer pin.Unpin()
	q := fdQuery{PID: pid, FD: fd, BufLen: uint32(len(text)), Buf: uint64(uintptr(unsafe.Pointer(text)))}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, query, uintptr(unsafe.Pointer(&q)), unsafe.Sizeof(q)); errno != 0 {
		return ""
	}
	name, _, _ := bytes.Cut(text[:], []byte{0})
	return q.describe(string(name))
}

// describe returns the probe in the syntax of bpftrace. name is its function, file or tracepoint.
func (q *fdQuery) describe(name string) string {
	const tracepoint, kprobe, kretprobe, uprobe, uretprobe = 1, 2, 3, 4, 5 // enum bpf_task_fd_type
	kind := map[uint32]string{kprobe: "kprobe:", kretprobe: "kretprobe:", uprobe: "uprobe:", uretprobe: "uretprobe:"}[q.Type]
	switch q.Type {
	case tracepoint:
		return "tracepoint:" + name
	case kprobe, kretprobe:
		if name == "" {
			name = fmt.Sprintf("0x%x", q.Addr)
		}
		if q.Offset != 0 {
			name += fmt.Sprintf("+0x%x", q.Offset)
		}
		return kind + name
	case uprobe, uretprobe:
		return fmt.Sprintf("%s%s:0x%x", kind, name, q.Offset)
	}
	return ""
}
