package main

import (
	"context"
	"encoding/json"
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

// emulated are the benchmarks that run in virtual machines with few and with many CPUs.
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
	// machineKernel is a kernel of test/kernels.
	machineKernel = "6.12"
	// cpusAttr is the test attribute with the number of CPUs. Attributes with the name of a
	// tool hold the number of instructions of its programs per event.
	cpusAttr = "cpus"
)

// scaleCPUs measures whether the work of BPF programs grows with the number of CPUs. TestCPUs
// takes the figures in virtual machines of test/kernels, whose clock counts instructions and
// is therefore independent of the host.
//
// This detects work that programs do for each CPU, such as loops over CPUs. It does not detect
// contention: one thread emulates all CPUs in turn, so that there is no contention for locks
// or cache lines, and all instructions take the same time.
func scaleCPUs(ctx context.Context) ([]result, error) {
	few, err := onCPUs(ctx, fewCPUs)
	var many map[string]float64
	if err == nil {
		many, err = onCPUs(ctx, manyCPUs)
	}
	return cpuResults(few, many, err), ctx.Err()
}

// cpuResults returns results without values if err is set, with err as the note: a missing
// virtual machine does not invalidate the other figures.
func cpuResults(few, many map[string]float64, err error) []result {
	var all []result
	for _, b := range emulated {
		r := result{Tool: b.tool, Figure: fmt.Sprintf("BPF instructions, %d CPUs ÷ %d, emulated", manyCPUs, fewCPUs), Unit: "×", Limit: 1.1}
		if err != nil {
			r.Note = "not measured: " + err.Error()
		} else {
			r.Ours = many[b.tool] / few[b.tool]
			r.Note = fmt.Sprintf("%.0f and %.0f instructions per %s, on %s", many[b.tool], few[b.tool], b.unit, machineKernel)
		}
		all = append(all, r)
	}
	return all
}

// onCPUs runs TestCPUs in a virtual machine with n CPUs and returns its figures.
func onCPUs(ctx context.Context, n int) (map[string]float64, error) {
	progress("virtual machine with %d CPUs", n)
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, "go", "run", "./test/kernels")
	cmd.Env = append(os.Environ(), "KERNELS="+machineKernel, "TOOLS=bench", "SHORT=", "CLOCK=instructions", fmt.Sprint("CPUS=", n))
	// "go run" does not forward signals: send them to the process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = os.Stderr, io.MultiWriter(os.Stderr, &stderr)
	if err := cmd.Run(); err != nil {
		_, reason, _ := strings.Cut(stderr.String(), "test-kernels: ")
		reason, _, _ = strings.Cut(reason, "\n")
		reason, _, _ = strings.Cut(reason, ": exit status") // omit the long output of apt
		return nil, fmt.Errorf("run virtual machine with %d CPUs: %w: %s", n, err, reason)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(cache, "corescope", "machines", machineKernel, "bench.json"))
	if err != nil {
		return nil, fmt.Errorf("read results of virtual machine: %w", err)
	}
	return figures(b, n)
}

// figures decodes the results that test/kernels has stored for a virtual machine with n CPUs:
// the number of instructions per event by tool.
func figures(b []byte, n int) (map[string]float64, error) {
	var stored struct{ Checks []plan.Check }
	if err := json.Unmarshal(b, &stored); err != nil {
		return nil, fmt.Errorf("decode results of virtual machine: %w", err)
	}
	if len(stored.Checks) != 1 {
		return nil, fmt.Errorf("decode results of virtual machine: %d checks, want 1", len(stored.Checks))
	}
	attrs := stored.Checks[0].Attrs
	if attrs[cpusAttr] != strconv.Itoa(n) {
		return nil, fmt.Errorf("virtual machine has %q CPUs, want %d", attrs[cpusAttr], n)
	}
	all := map[string]float64{}
	for _, b := range emulated {
		val, err := strconv.ParseFloat(attrs[b.tool], 64)
		if err != nil || val <= 0 {
			return nil, fmt.Errorf("invalid result %q for %s", attrs[b.tool], b.tool)
		}
		all[b.tool] = val
	}
	return all, nil
}
