package tooltest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// HidesProcess1 reports whether the kernel runs no BPF programs in the context of process 1. Some
// guests hide process 1, the agent of their host, in this way. Tools then miss the events of
// process 1: tasks that it wakes, tasks that get the CPU after it, and I/O that completes in an
// interrupt while it runs. The result is measured once.
func HidesProcess1() bool { return hidesProcess1() }

var hidesProcess1 = sync.OnceValue(func() bool {
	if os.Geteuid() != 0 {
		return false // without root, tests load no programs
	}
	if _, err := os.Readlink("/proc/1/exe"); err == nil {
		return false // these kernels also hide the files of process 1
	}
	hidden, err := isHidden(1, 10*time.Second)
	return err == nil && hidden
})

// enoughRuns is the number of runs after which a process without events counts as hidden.
const enoughRuns = 5

// isHidden counts the context switches away from a process with a BPF program, and compares the
// count with that of the kernel. It returns an error if the process does not run often enough
// within limit.
func isHidden(pid int, limit time.Duration) (hidden bool, err error) {
	seen, err := countSwitches(pid)
	if err != nil {
		return false, err
	}
	defer seen.close()
	begin := runsOf(pid)
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		all, own, err := seen.read()
		if err != nil {
			return false, err
		}
		if own > 0 {
			return false, nil
		}
		if all > 0 && runsOf(pid) > begin+enoughRuns {
			return true, nil
		}
	}
	return false, fmt.Errorf("measure process %d: fewer than %d runs in %v", pid, enoughRuns, limit)
}

// runsOf returns the number of times that the threads of a process were scheduled.
func runsOf(pid int) (n int) {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the only error is a malformed pattern
	for _, name := range all {
		text, _ := os.ReadFile(name)
		var cpu, wait, runs int
		fmt.Sscan(string(text), &cpu, &wait, &runs)
		n += runs
	}
	return n
}

// HiddenRuns returns the number of times that process 1 was scheduled, if it is hidden. In each of
// these runs a tool can have missed an event.
func HiddenRuns() int {
	if !HidesProcess1() {
		return 0
	}
	return runsOf(1)
}

// switches counts context switches: element 0 counts all, element 1 those away from one process.
type switches struct {
	counts *ebpf.Map
	hook   int
}

func countSwitches(pid int) (*switches, error) {
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2})
	if err != nil {
		return nil, fmt.Errorf("create map: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL", Instructions: switchCounter(counts.FD(), pid),
	})
	if err != nil {
		counts.Close()
		return nil, fmt.Errorf("load program: %w", err)
	}
	defer program.Close()
	hook, err := openRawTracepoint("sched_switch", program.FD())
	if err != nil {
		counts.Close()
		return nil, err
	}
	return &switches{counts, hook}, nil
}

func switchCounter(counts, pid int) asm.Instructions {
	add := func(element int64, end string) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, -4, element, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, counts),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, end),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		}
	}
	insns := add(0, "exit")
	insns = append(insns,
		asm.FnGetCurrentPidTgid.Call(), // sched_switch runs as the previous task
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(pid), "exit"))
	insns = append(insns, add(1, "exit")...)
	return append(insns, asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"), asm.Return())
}

// openRawTracepoint attaches a program with BPF_RAW_TRACEPOINT_OPEN.
func openRawTracepoint(name string, program int) (int, error) {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	attr := struct {
		name    unsafe.Pointer
		program uint32
		_       uint32
		_       uint64
	}{name: unsafe.Pointer(text), program: uint32(program)}
	const rawTracepointOpen = 17
	fd, _, errno := unix.Syscall(unix.SYS_BPF, rawTracepointOpen, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return -1, fmt.Errorf("attach to %s: %w", name, errno)
	}
	return int(fd), nil
}

func (s *switches) read() (all, own uint64, err error) {
	var counts [2]uint64
	for i := range counts {
		var b [8]byte
		if err := s.counts.Lookup(uint32(i), &b); err != nil {
			return 0, 0, fmt.Errorf("read counts: %w", err)
		}
		counts[i] = binary.NativeEndian.Uint64(b[:])
	}
	return counts[0], counts[1], nil
}

func (s *switches) close() {
	unix.Close(s.hook)
	s.counts.Close()
}
