package tooltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Samples counts how often timers that expire hz times per second on each CPU interrupt the thread.
// The count ends when the returned function is called, which returns it. A profiler samples with
// the same type of timer, so both counts are about equal, also in a guest that does not get all of
// its CPU time.
func Samples(t testing.TB, tid, hz int) func() int {
	t.Helper()
	Root(t)
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatalf("create map: %v", err)
	}
	t.Cleanup(func() { count.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.PerfEvent, License: "GPL", Instructions: sampleCounter(count.FD(), tid),
	})
	if err != nil {
		t.Fatalf("load program: %v", err)
	}
	defer program.Close()
	timers, err := startTimers(program.FD(), hz)
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		t.Helper()
		closeAll(timers)
		var b [8]byte
		if err := count.Lookup(uint32(0), &b); err != nil {
			t.Fatalf("read count: %v", err)
		}
		return int(binary.NativeEndian.Uint64(b[:]))
	}
}

func sampleCounter(count, tid int) asm.Instructions {
	return asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.JNE.Imm32(asm.R0, int32(tid), "exit"), // the lower half is the TID
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, count),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	}
}

// startTimers starts a timer on each online CPU that runs the program.
func startTimers(program, hz int) (timers []int, err error) {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: uint64(hz),
		Bits:   unix.PerfBitFreq,
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	for cpu := range cpus {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) { // offline
			continue
		}
		if err != nil {
			closeAll(timers)
			return nil, os.NewSyscallError(fmt.Sprintf("perf_event_open on CPU %d", cpu), err)
		}
		timers = append(timers, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program); err != nil {
			closeAll(timers)
			return nil, fmt.Errorf("attach program to timer of CPU %d: %w", cpu, err)
		}
	}
	return timers, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
