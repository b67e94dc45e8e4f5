package faults

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// schedulerWorkloads returns the workloads of tools that observe the scheduler.
func schedulerWorkloads() map[string]workload {
	byTID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--tid", strconv.Itoa(l.pid)}, more...) }
	}
	none := func(more ...string) func(*load) []string { return func(*load) []string { return more } }
	return map[string]workload{
		"cpudist": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, left: inAnyWay, args: byTID(),
		},
		"cpufreq": {
			place: frequencies, job: "spin", n: 1000, storm: "spin", storms: 2000, machine: true, args: none(),
		},
		"cpuunclaimed": {
			place: missing, job: "spin", n: 1000, storm: "spin", storms: 2000, machine: true, column: "samples", args: none(),
		},
		"cpuwalk": {
			place: missing, job: "spin", n: 1000, storm: "spin", storms: 2000, fits: true, samples: 99, column: "count", args: byTID(),
		},
		"llcstat": {
			place: hardwareCounters, job: "spin", n: 1000, storm: "spin", storms: 2000, machine: true, column: "references", args: byTID("-c", "10000"),
		},
		"loads": {
			place: missing, job: "nothing", storm: "nothing", machine: true, args: none("0.1"),
		},
		"numasched": {
			place: missing, job: "sleep", storm: "sleep", storms: 20_000, fits: true, machine: true, args: byTID(),
		},
		"runqlen": {
			place: missing, job: "spin", n: 1000, storm: "spin", storms: 2000, machine: true, args: none(),
		},
		"runqslower": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, fits: true, left: inAnyWay, args: byTID("0"),
		},
	}
}

// hardwareCounters skips the test on a machine that does not count references to the last-level
// cache.
func hardwareCounters(t testing.TB) string {
	t.Helper()
	if !tooltest.HasHardwareCounter(t, unix.PERF_COUNT_HW_CACHE_REFERENCES) {
		t.Skip("this machine has no hardware counter for references to the last-level cache")
	}
	return missing(t)
}

// frequencies skips the test on a machine without cpufreq.
func frequencies(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat("/sys/devices/system/cpu/cpu0/cpufreq"); err != nil {
		t.Skipf("this machine has no cpufreq: %v", err)
	}
	return missing(t)
}
