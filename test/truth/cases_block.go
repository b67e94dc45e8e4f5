package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const fioProgram = "fio randrw 4k O_DIRECT"

func blockCases() []comparison {
	needs := []string{"fio"}
	return []comparison{
		{"biosnoop", fioProgram, "fio's own log, /proc/diskstats", needs, biosnoop},
		{"biolatency", fioProgram, "fio's own log, /proc/diskstats", needs, biolatency},
		{"biotop", fioProgram, "fio's own log", needs, biotop},
		{"biostacks", fioProgram, "fio's own log", needs, biostacks},
		{"biopattern", fioProgram, "/proc/diskstats", needs, biopattern},
		{"bitesize", fioProgram, "fio's own log", needs, bitesize},
		{"biolatpcts", fioProgram, "/proc/diskstats", needs, biolatpcts},
		{"dirtop", fioProgram, "fio's own log", needs, dirtop},
		{"fileslower", fioProgram, "fio's own log", needs, fileslower},
	}
}

// fioResult is the JSON report of fio about its requests.
type fioResult struct {
	Jobs []struct{ Read, Write fioSide }
}

type fioSide struct {
	Requests float64 `json:"total_ios"`
	Bytes    float64 `json:"io_bytes"`
}

func (r *fioResult) requests() float64 { return r.Jobs[0].Read.Requests + r.Jobs[0].Write.Requests }
func (r *fioResult) bytes() float64    { return r.Jobs[0].Read.Bytes + r.Jobs[0].Write.Bytes }

// fio runs a load on a file on a disk. The file is created before the tool starts.
func (m *machine) fio(ctx context.Context, args ...string) (*fioResult, error) {
	text, err := output(ctx, "fio", append([]string{
		"--name=truth", "--filename=" + m.path("fio.data"), "--size=32M", "--rw=randrw", "--bs=4k", "--direct=1",
		"--ioengine=psync", "--number_ios=5000", "--output-format=json", "--thread", "--fallocate=none",
	}, args...)...)
	if err != nil {
		return nil, err
	}
	var r fioResult
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Jobs) != 1 {
		return nil, fmt.Errorf("decode output of fio: %w", err)
	}
	return &r, nil
}

// observeFio runs fio under a tool. It returns the tool's output, fio's report, and the number of
// requests that the disk completed during the run.
func (m *machine) observeFio(ctx context.Context, args ...string) (*observed, *fioResult, float64, error) {
	var st unix.Stat_t
	if err := unix.Stat(m.scratch, &st); err != nil {
		return nil, nil, 0, fmt.Errorf("stat %s: %w", m.scratch, err)
	}
	disk := fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev))
	if _, err := os.Stat(disk); err != nil {
		return nil, nil, 0, fmt.Errorf("%w: %s is not on a disk", errMissing, m.scratch)
	}
	if _, err := m.fio(ctx, "--create_only=1"); err != nil {
		return nil, nil, 0, err
	}
	unix.Sync()
	var r *fioResult
	var before, after float64
	out, err := m.observe(ctx, func() (err error) {
		if before, err = completed(disk); err != nil {
			return err
		}
		if r, err = m.fio(ctx); err != nil {
			return err
		}
		after, err = completed(disk)
		return err
	}, args...)
	return out, r, after - before, err
}

// completed returns the number of reads and writes that a disk has completed, from its stat file in
// sysfs.
func completed(stat string) (float64, error) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, fmt.Errorf("read statistics of the disk: %w", err)
	}
	var f [5]float64
	if _, err := fmt.Sscan(string(text), &f[0], &f[1], &f[2], &f[3], &f[4]); err != nil {
		return 0, fmt.Errorf("read %s: %w", stat, err)
	}
	return f[0] + f[4], nil
}

const hiddenWhy = "requests completed in an interrupt of a process that this guest hides from BPF"

// hidden returns how many requests may complete unobserved: none, except on guests that hide
// process 1 from BPF.
func hidden() float64 {
	if _, err := os.Readlink("/proc/1/exe"); err != nil {
		return 50
	}
	return 0
}

func biosnoop(ctx context.Context, m *machine) ([]figure, error) {
	out, fio, disk, err := m.observeFio(ctx, "biosnoop")
	if err != nil {
		return nil, err
	}
	all := out
	out = out.where("comm", "fio")
	return []figure{
		{"requests of fio", float64(len(out.rows)) + out.lost(), fio.requests(), hidden(), hiddenWhy},
		{"bytes of fio", out.sum("bytes"), fio.bytes(), 4096 * hidden(), hiddenWhy},
		ofDisk(float64(len(all.rows))+out.lost(), disk),
	}, nil
}

// ofDisk is the figure of a tool that counts the requests of the disk.
func ofDisk(ours, disk float64) figure {
	return figure{"requests of the disk", ours, disk, disk/100 + hidden(),
		"requests of other processes between the readings of diskstats and the start and end of the tool"}
}

func biolatency(ctx context.Context, m *machine) ([]figure, error) {
	out, _, disk, err := m.observeFio(ctx, "biolatency")
	if err != nil {
		return nil, err
	}
	return []figure{ofDisk(out.sum("count")+out.lost(), disk)}, nil
}

func biotop(ctx context.Context, m *machine) ([]figure, error) {
	out, fio, _, err := m.observeFio(ctx, "biotop", "3600")
	if err != nil {
		return nil, err
	}
	out = out.where("comm", "fio")
	return []figure{
		{"requests of fio", out.sum("ios") + out.lost(), fio.requests(), hidden(), hiddenWhy},
		{"bytes of fio", out.sum("bytes"), fio.bytes(), 4096 * hidden(), hiddenWhy},
	}, nil
}

func biostacks(ctx context.Context, m *machine) ([]figure, error) {
	out, fio, _, err := m.observeFio(ctx, "biostacks", "--comm", "fio")
	if err != nil {
		return nil, err
	}
	return []figure{{"requests of fio, over all stacks", out.sum("count") + out.lost(), fio.requests(), hidden(), hiddenWhy}}, nil
}

func biopattern(ctx context.Context, m *machine) ([]figure, error) {
	out, _, disk, err := m.observeFio(ctx, "biopattern", "3600")
	if err != nil {
		return nil, err
	}
	ios := out.sum("ios")
	return []figure{
		ofDisk(ios+out.lost(), disk),
		{"random and sequential requests", out.sum("random") + out.sum("sequential"), ios, 1, "the first request of a disk is neither"},
	}, nil
}

func bitesize(ctx context.Context, m *machine) ([]figure, error) {
	out, fio, _, err := m.observeFio(ctx, "bitesize", "--comm", "fio")
	if err != nil {
		return nil, err
	}
	return []figure{{"requests of fio", out.sum("count") + out.lost(), fio.requests(), hidden(), hiddenWhy}}, nil
}

func biolatpcts(ctx context.Context, m *machine) ([]figure, error) {
	out, _, disk, err := m.observeFio(ctx, "biolatpcts", "-i", "3600")
	if err != nil {
		return nil, err
	}
	return []figure{ofDisk(out.sum("count")+out.lost(), disk)}, nil
}

func dirtop(ctx context.Context, m *machine) ([]figure, error) {
	out, fio, _, err := m.observeFio(ctx, "dirtop", "-d", m.scratch, "--comm", "fio", "3600")
	if err != nil {
		return nil, err
	}
	return []figure{
		{"reads and writes of fio", out.sum("reads") + out.sum("writes") + out.lost(), fio.requests(), 0, ""},
		{"bytes of fio", out.sum("read_bytes") + out.sum("write_bytes"), fio.bytes(), 0, ""},
	}, nil
}

func fileslower(ctx context.Context, m *machine) ([]figure, error) {
	out, fio, _, err := m.observeFio(ctx, "fileslower", "--comm", "fio", "0")
	if err != nil {
		return nil, err
	}
	data := &observed{summary: out.summary}
	for _, r := range out.rows {
		if string(r.bytes("file")) == "fio.data" {
			data.rows = append(data.rows, r)
		}
	}
	return []figure{
		{"reads and writes of fio", float64(len(data.rows)) + out.lost(), fio.requests(), 0, ""},
		{"bytes of fio", data.sum("bytes"), fio.bytes(), 0, ""},
	}, nil
}
