package faults

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// irqWorkloads returns the workloads of the tools for interrupts and softirqs.
func irqWorkloads() map[string]workload {
	byTID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--tid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		// No job causes a known number of interrupts.
		"hardirqs": {
			place: missing, job: "nothing", storm: "nothing", column: "count", args: byTID("--filter", "hardirq == ''"),
		},
		"softirqs": {
			place: missing, job: "datagram", n: 1000, storm: "datagram", storms: 20_000, strays: 20, column: "count",
			args: byTID("--filter", "softirq == 'net_rx'"),
		},
		// Each datagram has two rows: raised and run.
		"softirqslower": {
			place: missing, job: "two stages", n: 500, storm: "two stages", storms: 100_000, strays: 20,
			args: byTID("--min", "0"),
		},
		"futexctn": {
			place: missing, job: "futex", n: 200, storm: "futex", storms: 2000, fits: true, strays: 10, args: byTID("--summary"),
		},
		// Most kernels do not have its tracepoints.
		"criticalstat": {
			place: preemptTracepoints, job: "nothing", storm: "nothing", args: byTID("--min", "1h"),
		},
		// No job causes a known number of waits for locks of the kernel.
		"klockstat": {
			place: missing, job: "nothing", storm: "nothing", column: "count", args: byTID("--caller", "no function"),
		},
		"wqlat": {
			place: missing, job: "fsync", n: 500, storm: "fsync", storms: 20_000,
			strays: 20,
			args:   byTID(),
		},
	}
}

// datagrams causes n softirqs net_rx.
func datagrams(n int, _ string) (int, error) { return n, tooltest.Datagrams(n) }

// fsyncs queues n works.
func fsyncs(n int, _ string) (int, error) {
	fd, err := unix.MemfdCreate("file", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return n, tooltest.AIOFsync(fd, n)
}

// futexes waits n times for a futex, each time for 100 us.
func futexes(n int, _ string) (int, error) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(page)
	limit := unix.NsecToTimespec(100_000)
	for i := 0; i < n; i++ {
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&page[0])), 0, 0, uintptr(unsafe.Pointer(&limit)), 0, 0)
		if errno != unix.ETIMEDOUT && errno != unix.EINTR {
			return i, fmt.Errorf("futex: %w", errno)
		}
	}
	return n, nil
}

// preemptTracepoints skips the test on kernels that criticalstat does not support.
func preemptTracepoints(t testing.TB) string {
	t.Helper()
	if !tooltest.HasTracepoint(t, "irq_disable") {
		t.Skip("this kernel has no tracepoint irq_disable")
	}
	return missing(t)
}
