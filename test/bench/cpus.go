package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/corescope/corescope/test/kernels/plan"
)

// emulated are the benchmarks that are run in machines of few CPUs and of many.
var emulated = []benchmark{
	{tool: "opensnoop", load: "opens", unit: "open", count: 10_000},
	{tool: "execsnoop", load: "execs", unit: "exec", count: 100},
	{tool: "tcplife", load: "conns", unit: "connection", count: 1_000},
	{tool: "runqlat", load: "trips", unit: "round trip", count: 10_000},
	{tool: "biolatency", load: "reads", unit: "read", count: 2_000},
}

const (
	fewCPUs  = 2
	manyCPUs = 8
	// machineKernel is one of test/kernels.
	machineKernel = "6.12"
	// cpusAttr is the attribute of how many CPUs a machine has. Those that have a tool's
	// name are its programs' instructions for an event.
	cpusAttr = "cpus"
)

// scaleCPUs measures whether work in the kernel grows with the CPUs that there are, in
// virtual machines of test/kernels, where TestCPUs takes the figures. Their clock counts
// instructions, so that neither the host nor its noise is measured.
//
// What shows is work that programs do for each CPU: loops over them, values of each that
// are summed. What CPUs do to one another does not show: one thread emulates them in turn,
// so that no two are ever after the same lock or cache line, and each instruction takes as
// long as any other.
func scaleCPUs(ctx context.Context) ([]result, error) {
	few, err := onCPUs(ctx, fewCPUs)
	var many map[string]float64
	if err == nil {
		many, err = onCPUs(ctx, manyCPUs)
	}
	return cpuResults(few, many, err), ctx.Err()
}

// cpuResults have no values where there was an error, but tell it: machines may well be
// missing where all else is measured.
func cpuResults(few, many map[string]float64, err error) []result {
	var all []result
	for _, b := range emulated {
		r := result{Tool: b.tool, Figure: fmt.Sprintf("in the kernel, %d CPUs ÷ %d, emulated", manyCPUs, fewCPUs), Unit: "×", Limit: 1.1}
		if err != nil {
			r.Note = "not measured: " + err.Error()
		} else {
			r.Ours = many[b.tool] / few[b.tool]
			r.Note = fmt.Sprintf("%.0f and %.0f instructions for each %s, on %s", many[b.tool], few[b.tool], b.unit, machineKernel)
		}
		all = append(all, r)
	}
	return all
}

// onCPUs runs a machine of so many CPUs, and returns the figures that it told.
func onCPUs(ctx context.Context, n int) (map[string]float64, error) {
	progress("a machine of %d CPUs", n)
	var said strings.Builder
	cmd := exec.CommandContext(ctx, "go", "run", "./test/kernels")
	cmd.Env = append(os.Environ(), "KERNELS="+machineKernel, "TOOLS=bench", "SHORT=", "CLOCK=instructions", fmt.Sprint("CPUS=", n))
	// All of them end with this run: go passes no signal on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = os.Stderr, io.MultiWriter(os.Stderr, &said)
	if err := cmd.Run(); err != nil {
		_, why, _ := strings.Cut(said.String(), "test-kernels: ")
		why, _, _ = strings.Cut(why, "\n")
		why, _, _ = strings.Cut(why, ": exit status") // what apt says is long
		return nil, fmt.Errorf("run a machine of %d CPUs: %w: %s", n, err, why)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	told, err := os.ReadFile(filepath.Join(cache, "corescope", "machines", machineKernel, "bench.json"))
	if err != nil {
		return nil, fmt.Errorf("read what the machine told: %w", err)
	}
	return figures(told, n)
}

// figures reads what test/kernels has kept of a machine of n CPUs.
func figures(told []byte, n int) (map[string]float64, error) {
	var kept struct{ Checks []plan.Check }
	if err := json.Unmarshal(told, &kept); err != nil {
		return nil, fmt.Errorf("read what the machine told: %w", err)
	}
	if len(kept.Checks) != 1 {
		return nil, errors.New("the machine told nothing")
	}
	attrs := kept.Checks[0].Attrs
	if attrs[cpusAttr] != strconv.Itoa(n) {
		return nil, fmt.Errorf("the machine had %q CPUs, not %d", attrs[cpusAttr], n)
	}
	all := map[string]float64{}
	for _, b := range emulated {
		val, err := strconv.ParseFloat(attrs[b.tool], 64)
		if err != nil || val <= 0 {
			return nil, fmt.Errorf("the machine told %q of %s", attrs[b.tool], b.tool)
		}
		all[b.tool] = val
	}
	return all, nil
}
