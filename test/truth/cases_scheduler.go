package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

const xzProgram = "xz"

func schedulerCases() []comparison {
	needs := []string{"xz"}
	return []comparison{
		{"profile", xzProgram, "/proc/PID/schedstat", needs, profile},
		{"offcputime", "curl --limit-rate", "wall time minus /proc/PID/schedstat", []string{"curl"}, offcputime},
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
	h, err := hold(ctx, nil, "curl", "--silent", "--limit-rate", "400k", "--output", "/dev/null", url)
	if err != nil {
		return nil, err
	}
	defer h.close()
	out, err := m.observe(ctx, h.finish, "offcputime", "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	want := h.wall - h.cpu
	return []figure{{"off-CPU time in ms", out.sum("total_ns") / 1e6, float64(want) / 1e6, float64(want) / 50 / 1e6,
		"2 %: only one of the two includes the wait for the release and the exit"}}, nil
}

// runqlat compares run queue latency with the scheduler's own counter (schedstat).
func runqlat(ctx context.Context, m *machine) ([]figure, error) {
	h, err := m.holdXZ(ctx)
	if err != nil {
		return nil, err
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
	}, "runqlat", "-P", "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	want := float64(after-before) / 1e6
	return []figure{{"run queue latency in ms", out.sum("sum") / 1e3, want, want / 20, "5 %: the scheduler uses a different clock"}}, nil
}
