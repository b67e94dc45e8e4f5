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
		{"offcputime", "curl --limit-rate", "wall time less /proc/PID/schedstat", []string{"curl"}, offcputime},
		{"runqlat", "xz beside two more", "/proc/PID/schedstat", needs, runqlat},
	}
}

// data writes a file that takes xz some seconds.
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

// profile compares samples with CPU time.
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
	return []figure{{"samples, against CPU time × frequency", out.sum("count") + out.lost(), want, want / 20, "5 %, as samples are taken by a timer"}}, nil
}

// offcputime compares the time off the CPU with what the program's wall time leaves.
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
	return []figure{{"ms off the CPU", out.sum("total_ns") / 1e6, float64(want) / 1e6, float64(want) / 50 / 1e6,
		"2 %: the wait for the release and the end are in one of the two only"}}, nil
}

// runqlat compares waits with the scheduler's own account.
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
	return []figure{{"ms of waits for a CPU", out.sum("sum") / 1e3, want, want / 20, "5 %: the scheduler's clock is another one"}}, nil
}
