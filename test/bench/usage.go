package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// objects are the BPF objects of a process.
type objects struct {
	programs map[ebpf.ProgramID]bool
	links    int
	memory   uint64 // memory of maps and programs in bytes
}

// kernelObjects returns the BPF objects to which the process has file descriptors.
func kernelObjects(pid int) (*objects, error) {
	o := &objects{programs: map[ebpf.ProgramID]bool{}}
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, fd := range fds {
		info, err := fdInfo(filepath.Join(dir, fd.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := o.add(info, seen); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *objects) add(info map[string]string, seen map[string]bool) error {
	if info["link_type"] != "" {
		o.links++
		return nil
	}
	for _, key := range []string{"map_id", "prog_id"} {
		id := info[key]
		if id == "" || seen[key+id] {
			continue
		}
		seen[key+id] = true
		n, err := strconv.ParseUint(info["memlock"], 10, 64)
		if err != nil {
			return fmt.Errorf("read memory of %s %s: %w", key, id, err)
		}
		o.memory += n
		if key == "prog_id" {
			nr, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				return err
			}
			o.programs[ebpf.ProgramID(nr)] = true
		}
	}
	return nil
}

func fdInfo(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, val, _ := strings.Cut(line, ":")
		info[key] = strings.TrimSpace(val)
	}
	return info, nil
}

// usage is the CPU time of a process and its BPF programs since their start.
type usage struct {
	kernel time.Duration // run time of the BPF programs
	cpu    time.Duration // CPU time of the process
}

func (u usage) sub(v usage) usage { return usage{u.kernel - v.kernel, u.cpu - v.cpu} }

func (r *running) usage() (usage, error) {
	o, err := kernelObjects(r.pid())
	if err != nil {
		return usage{}, err
	}
	var u usage
	for id := range o.programs {
		t, err := runTime(id)
		if err != nil {
			return usage{}, err
		}
		u.kernel += t
	}
	u.cpu, err = cpuTime(r.pid())
	return u, err
}

func runTime(id ebpf.ProgramID) (time.Duration, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return 0, fmt.Errorf("open program %d: %w", id, err)
	}
	defer p.Close()
	s, err := p.Stats()
	if err != nil {
		return 0, fmt.Errorf("read program %d: %w", id, err)
	}
	return s.Runtime, nil
}

// cpuTime returns the CPU time of all threads of a process, from its CPU clock
// (clock_getcpuclockid(3)).
func cpuTime(pid int) (time.Duration, error) {
	const cpuClockSched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &t); err != nil {
		return 0, fmt.Errorf("read CPU time of %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory is the memory of a process in bytes: the peak resident memory, its share of ring
// buffer and perf buffer pages, which count as kernel memory, and the size of the perf buffers,
// which is not available from their file descriptors.
type memory struct{ peak, rings, perf uint64 }

func processMemory(pid int) (m memory, err error) {
	status, err := fdInfo(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, err
	}
	if m.peak, err = kilobytes(status["VmHWM"]); err != nil {
		return m, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return m, err
	}
	defer f.Close()
	var isRing, isPerf bool
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, val, _ := strings.Cut(lines.Text(), ":")
		if strings.Contains(key, "-") && strings.Contains(key, " ") { // first line of a mapping
			isRing = strings.Contains(lines.Text(), "anon_inode:")
			isPerf = strings.Contains(lines.Text(), "anon_inode:[perf_event]")
		}
		if isPerf && key == "Size" {
			n, err := kilobytes(strings.TrimSpace(val))
			if err != nil {
				return m, err
			}
			m.perf += n
		}
		if isRing && key == "Rss" {
			n, err := kilobytes(strings.TrimSpace(val))
			if err != nil {
				return m, err
			}
			m.rings += n
		}
	}
	return m, nil
}

func kilobytes(text string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return n << 10, nil
}
