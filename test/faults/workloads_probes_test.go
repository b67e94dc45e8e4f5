package faults

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// probesWorkloads returns the workloads of tools for functions and probes.
func probesWorkloads() map[string]workload {
	return map[string]workload{
		"ksnoop": {
			place: tracedFunctions, job: "mkdir", n: 500, storm: "mkdir", storms: 20_000,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid), "do_mkdirat(dfd)"} },
		},
		"tplist": {
			place: manyProbes, job: "nothing", storm: "nothing", args: func(l *load) []string { return []string{"-l", l.place} },
			listed: func(*load, testing.TB) int { return listedProbes },
		},
	}
}

// tracedFunctions skips the test on a kernel whose functions cannot be traced.
func tracedFunctions(t testing.TB) string {
	t.Helper()
	tooltest.KernelFunctions(t)
	return missing(t)
}

// listedProbes is the number of USDT probes of the library that is listed.
const listedProbes = 900

// manyProbes creates a library with many USDT probes and returns its path.
func manyProbes(t testing.TB) string {
	t.Helper()
	var probes []native.Probe
	for i := range listedProbes {
		probes = append(probes, native.Probe{Function: "probe", Provider: "corescope", Name: fmt.Sprint("probe", i)})
	}
	return native.Write(t, filepath.Join(t.TempDir(), "libmany.so"), []string{"probe"}, probes...).Path
}
