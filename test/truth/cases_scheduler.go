package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const xzProgram = "xz"

func schedulerCases() []comparison {
	needs := []string{"xz"}
	return []comparison{
		{"profile", xzProgram, "/proc/PID/schedstat", needs, profile},
		{"offcputime", "curl of a slow server", "wall time minus /proc/PID/schedstat", []string{"curl"}, offcputime},
		{"cpudist", xzProgram, "/proc/PID/schedstat", needs, cpudist},
		{"runqslower", "xz, with two others running", "/proc/PID/schedstat", needs, runqslower},
		{"pidpersec", "500 runs of true", "/proc/stat", nil, pidpersec},
		{"softirqs", "curl", "/proc/softirqs", []string{"curl"}, softirqs},
		{"hardirqs", fioProgram, "/proc/interrupts", []string{"fio"}, hardirqs},
		{"loads", "the whole machine", "/proc/loadavg", nil, loads},
		{"runqlat", "xz, with two others running", "/proc/PID/schedstat", needs, runqlat},
	}
}

// data writes a file that xz needs some seconds to compress.
func (m *machine) data() (string, error) {
	path := m.path("data")
	b := make([]byte, 6<<20)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 28)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return "", fmt.Errorf("write data: %w", err)
	}
	return path, nil
}

func (m *machine) holdXZ(ctx context.Context) (*held, error) {
	path, err := m.data()
	if err != nil {
		return nil, err
	}
	return hold(ctx, nil, "xz", "-6", "-T1", "--keep", "--stdout", path)
}

// profile compares the number of samples with the CPU time of the process.
func profile(ctx context.Context, m *machine) ([]figure, error) {
	h, err := m.holdXZ(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	const frequency = 499
	out, err := m.observe(ctx, h.finish, "profile", "-F", strconv.Itoa(frequency), "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	want := h.cpu.Seconds() * frequency
	return []figure{{"samples; the reference is CPU time × frequency", out.sum("count") + out.lost(), want, want / 20, "5 %: samples are taken by a timer"}}, nil
}

// offcputime compares off-CPU time with the wall time of the program minus its CPU time.
func offcputime(ctx context.Context, m *machine) ([]figure, error) {
	url, stop, err := serve()
	if err != nil {
		return nil, err
	}
	defer stop()
	h, err := hold(ctx, nil, "curl", "--silent", "--output", "/dev/null", url+"?slow")
	if err != nil {
		return nil, err
	}
	defer h.close()
	out, err := m.observe(ctx, h.finish, "offcputime", "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	want := h.wall - h.cpu
	bound := float64(want)/50 + out.lost()*float64(2*slowPause)
	return []figure{{"off-CPU time in ms", out.sum("total_ns") / 1e6, float64(want) / 1e6, bound / 1e6,
		"2 %: only one of the two includes the wait for the release and the exit; and a wait of up to 200 ms for each that the tool reports as lost, because this guest hides a process from BPF"}}, nil
}

// observeQueue runs a tool while xz competes with two others. It returns the run queue latency of
// xz as counted by the scheduler, in ms.
func (m *machine) observeQueue(ctx context.Context, args ...string) (*observed, float64, error) {
	h, err := m.holdXZ(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer h.close()
	var before, after time.Duration
	out, err := m.observe(ctx, func() error {
		var others []*exec.Cmd
		for range 2 {
			cmd := exec.CommandContext(ctx, "xz", "-6", "-T1", "--keep", "--stdout", m.path("data"))
			if err := cmd.Start(); err != nil {
				return fmt.Errorf("start xz: %w", err)
			}
			others = append(others, cmd)
		}
		var err error
		if _, before, err = schedstat(h.pid); err != nil {
			return err
		}
		if err := h.finish(); err != nil {
			return err
		}
		after = h.wait
		for _, cmd := range others {
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("run xz: %w", err)
			}
		}
		return nil
	}, append(args, "--pid", strconv.Itoa(h.pid))...)
	return out, float64(after-before) / 1e6, err
}

const schedulerClock = "5 %: the scheduler uses a different clock"

// runqlat compares run queue latency with the scheduler's own counter (schedstat).
func runqlat(ctx context.Context, m *machine) ([]figure, error) {
	out, want, err := m.observeQueue(ctx, "runqlat", "-P")
	if err != nil {
		return nil, err
	}
	return []figure{{"run queue latency in ms", out.sum("sum") / 1e3, want, want / 20, schedulerClock}}, nil
}

// runqslower shows waits of at least 1 us.
func runqslower(ctx context.Context, m *machine) ([]figure, error) {
	out, want, err := m.observeQueue(ctx, "runqslower", "1")
	if err != nil {
		return nil, err
	}
	return []figure{{"run queue latency in ms", out.sum("latency_ns") / 1e6, want, want / 20, schedulerClock}}, nil
}

// cpudist compares time on CPUs with the CPU time of the process.
func cpudist(ctx context.Context, m *machine) ([]figure, error) {
	h, err := m.holdXZ(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	out, err := m.observe(ctx, h.finish, "cpudist", "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	want := float64(h.cpu) / 1e6
	return []figure{{"time on CPUs in ms", out.sum("sum") / 1e3, want, want / 20, schedulerClock}}, nil
}

// around returns how much a counter of the kernel increases while load runs.
func around(counter func() (float64, error), load func() error) (increase float64, err error) {
	before, err := counter()
	if err != nil {
		return 0, err
	}
	if err := load(); err != nil {
		return 0, err
	}
	after, err := counter()
	return after - before, err
}

func pidpersec(ctx context.Context, m *machine) ([]figure, error) {
	var want float64
	out, err := m.observe(ctx, func() (err error) {
		want, err = around(created, func() error {
			for range 500 {
				if _, err := output(ctx, "true"); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}, "pidpersec", "3600")
	if err != nil {
		return nil, err
	}
	return []figure{{"new processes and threads", out.sum("processes") + out.sum("threads") + out.lost(), want, want / 20,
		"5 %: those that others create between the readings and the start and end of the tool"}}, nil
}

// created returns the number of tasks that the kernel has created.
func created() (float64, error) { return sumOf("/proc/stat", "processes ") }

// sumOf adds the numbers after the first word of the lines that begin with a prefix.
func sumOf(path, prefix string) (n float64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read counters: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimLeft(line, " "), prefix) {
			continue
		}
		for _, word := range strings.Fields(line)[1:] {
			count, err := strconv.ParseFloat(word, 64)
			if err != nil {
				break
			}
			n += count
		}
	}
	return n, nil
}

const irqWhy = "10 % and 50: those between the readings and the start and end of the tool, and those while a process runs that this guest hides from BPF"

func softirqs(ctx context.Context, m *machine) ([]figure, error) {
	var want float64
	url, stop, err := serve()
	if err != nil {
		return nil, err
	}
	defer stop()
	out, err := m.observe(ctx, func() (err error) {
		want, err = around(func() (float64, error) { return sumOf("/proc/softirqs", "NET_RX:") }, func() error {
			for range 50 {
				if _, err := output(ctx, "curl", "--silent", "--output", "/dev/null", url); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}, "softirqs", "3600")
	if err != nil {
		return nil, err
	}
	return []figure{{"runs of net_rx", out.where("softirq", "net_rx").sum("count") + out.lost(), want, want/10 + 50, irqWhy}}, nil
}

// hardirqs compares the interrupt of the disk that the file is on, found by its count.
func hardirqs(ctx context.Context, m *machine) ([]figure, error) {
	before, err := interrupts()
	if err != nil {
		return nil, err
	}
	out, _, _, err := m.observeFio(ctx, "hardirqs", "3600")
	if err != nil {
		return nil, err
	}
	after, err := interrupts()
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for _, r := range out.rows {
		counts[strconv.Itoa(int(r.num("irq")))] += r.num("count")
	}
	busiest := ""
	for irq, n := range counts {
		if n > counts[busiest] {
			busiest = irq
		}
	}
	if busiest == "" {
		return nil, fmt.Errorf("%w: no interrupt with a number occurred", errMissing)
	}
	want := after[busiest] - before[busiest]
	return []figure{{"interrupts of the disk", counts[busiest], want, want/5 + 50,
		"20 % and 50: those of creating the file, before the tool starts, and those while a process runs that this guest hides from BPF"}}, nil
}

// interrupts returns the counts of /proc/interrupts by number.
func interrupts() (map[string]float64, error) {
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	counts := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if _, err := strconv.Atoi(name); !ok || err != nil {
			continue
		}
		for _, word := range strings.Fields(rest) {
			n, err := strconv.ParseFloat(word, 64)
			if err != nil {
				break
			}
			counts[name] += n
		}
	}
	return counts, nil
}

// loads compares the load averages, which the kernel updates every five seconds.
func loads(ctx context.Context, m *machine) ([]figure, error) {
	out, err := m.observe(ctx, nil, "loads", "1", "1")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, fmt.Errorf("read load averages: %w", err)
	}
	var want [3]float64
	if _, err := fmt.Sscan(string(text), &want[0], &want[1], &want[2]); err != nil {
		return nil, fmt.Errorf("read load averages: %w", err)
	}
	var figures []figure
	for i, key := range []string{"load1", "load5", "load15"} {
		figures = append(figures, figure{key, out.sum(key), want[i], 0.1*want[i] + 0.01, "10 %: the kernel can update it in between"})
	}
	return figures, nil
}
