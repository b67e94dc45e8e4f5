// Package cpufreq samples the frequencies of CPUs.
package cpufreq

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh cpufreq.bpf.c

type options struct {
	source.Interval
	source.Sampled
	Comms bool `flag:"comms" bpf:"by_comm" key:"comm" help:"one histogram per name of the thread that runs"`
	CPUs  bool `flag:"cpus" bpf:"by_cpu" key:"cpu" help:"one histogram per CPU"`
}

// key mirrors struct hist_key.
type key struct {
	Comm value.Comm
	CPU  uint32
}

type label struct {
	Comm value.Comm `json:"comm" col:"COMM,width=16,bare" help:"name of the thread that ran"`
	CPU  uint32     `json:"cpu" help:"CPU"`
}

// Tool is the definition of cpufreq.
var Tool = tool.Define(tool.Spec{
	Name:     "cpufreq",
	Category: "scheduler",
	Summary:  "CPU frequency (MHz) as a histogram, of all CPUs or by name of the running thread",
	Description: `Samples the frequency of each CPU at regular intervals, in MHz, and shows how often it had which value.

The frequency is the one that the kernel has last selected: from the tracepoint power:cpu_frequency, and before the first change from scaling_cur_freq of cpufreq in sysfs. A processor that selects its frequency itself (such as with intel_pstate and HWP) can run at another one, and the tracepoint is hit rarely there.

Idle CPUs are included, except with --comms or a task filter. Samples are triggered by the CPU clock of perf events (PERF_COUNT_SW_CPU_CLOCK), 99 times a second on each CPU. Samples of a CPU whose frequency is unknown are counted in the summary (unknown).

The kernel needs CONFIG_CPU_FREQ and a driver for the processor. Most virtual machines have none; then the tool ends with exit code 4.`,
	Peers: []string{
		"-d is --duration. -c is --cgroup, and applies to the thread that runs.",
		"libbpf-tools prints the histogram of all CPUs and one per name. Here they are two runs, without and with --comms.",
		"Buckets are at most a sixteenth of their value wide; in libbpf-tools they are 200 MHz wide.",
	},
	Examples: []string{
		"cpufreq -d 10s           # ten seconds, all CPUs",
		"cpufreq --comms 5        # by name of the thread, every five seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"cgroup": "c", "duration": "d"},
}, options{Sampled: source.DefaultSampled()}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	plan := o.Plan()
	plan.Variables = map[string]any{}
	plan.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
		khz, err := frequencies("/sys/devices/system/cpu")
		if err != nil {
			return err
		}
		p.Variables["cpu_khz"] = khz
		return source.CheckFrequency(o.Frequency)
	}
	return &source.Hists[key, label]{
		Plan: plan, Interval: o.Interval,
		Unit: histogram.Values, Slots: "MHz",
		Label: func(k key) label { return label(k) },
		Keys:  source.Keys(o),
	}, nil
}

// frequencies returns the current frequency of each CPU in kHz, 0 if it is unknown.
func frequencies(cpus string) (khz []uint32, err error) {
	all, err := filepath.Glob(filepath.Join(cpus, "cpu[0-9]*/cpufreq/scaling_cur_freq"))
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	for _, name := range all {
		cpu, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(name))), "cpu"))
		if err != nil {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue // an offline CPU
		}
		for len(khz) <= cpu {
			khz = append(khz, 0)
		}
		n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32) // "<unknown>" is 0
		khz[cpu] = uint32(n)
	}
	if khz == nil {
		return nil, fmt.Errorf("read CPU frequencies: %w: it has no cpufreq (CONFIG_CPU_FREQ and a driver for the processor)", tool.ErrUnsupported)
	}
	return khz, nil
}
