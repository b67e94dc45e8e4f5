package probe

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// Counts reads the maps "lost" and "counters": per-CPU arrays with one value, a struct of u64
// counters. The names of the members are the names of the counters.
type Counts struct {
	m       *ebpf.Map
	members []btf.Member
	err     error
}

// Counts returns the counters in the map. If the object has no such map, there are none.
func (o *Objects) Counts(name string) *Counts {
	c := &Counts{m: o.Maps[name]}
	if c.m == nil {
		return c
	}
	c.members, c.err = counters(o.spec.Maps[name].Value)
	return c
}

func counters(value btf.Type) ([]btf.Member, error) {
	s, ok := btf.UnderlyingType(value).(*btf.Struct)
	if !ok {
		return nil, fmt.Errorf("read types of counters: value is %v, not a struct", value)
	}
	for _, m := range s.Members {
		if size, err := btf.Sizeof(m.Type); err != nil || size != 8 {
			return nil, fmt.Errorf("read types of counters: %s has %d bytes, not 8", m.Name, size)
		}
	}
	return s.Members, nil
}

// Read returns the counters by name, summed over all CPUs.
func (c *Counts) Read() (map[string]uint64, error) {
	out := make(map[string]uint64, len(c.members))
	if c.m == nil || c.err != nil {
		return out, c.err
	}
	var perCPU [][]byte
	if err := c.m.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	for _, cpu := range perCPU {
		for _, m := range c.members {
			out[m.Name] += binary.NativeEndian.Uint64(cpu[m.Offset.Bytes():])
		}
	}
	return out, nil
}

// ProgramStats has the number of runs and the CPU time of one program.
type ProgramStats struct {
	Program string  `json:"program"`
	Runs    uint64  `json:"runs"`
	NsARun  float64 `json:"ns_a_run" help:"mean time of a run, in ns"`
	CPU     float64 `json:"cpu" help:"share of one CPU, over the time that was measured"`
}

// Stats returns the statistics of each program over a time span. They are 0 unless the kernel
// measures the run time of programs ([ebpf.EnableStats], Linux 5.8).
func (o *Objects) Stats(span time.Duration) ([]ProgramStats, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []ProgramStats
	for _, name := range slices.Sorted(maps.Keys(o.programs)) {
		s, err := o.programs[name].Stats()
		if err != nil {
			return nil, fmt.Errorf("read statistics of %s: %w", name, err)
		}
		stats := ProgramStats{Program: name, Runs: s.RunCount, CPU: float64(s.Runtime) / float64(span)}
		if s.RunCount > 0 {
			stats.NsARun = float64(s.Runtime) / float64(s.RunCount)
		}
		out = append(out, stats)
	}
	return out, nil
}

// SkippedRuns returns the number of runs that the kernel skipped because the program was already
// running on the same CPU. It is 0 before Linux 5.12, which does not report it. Programs with a
// copy (copySuffix) are not counted: the copy has run instead.
func (o *Objects) SkippedRuns() (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var skipped uint64
	for name, prog := range o.programs {
		if strings.HasSuffix(name, copySuffix) || o.programs[name+copySuffix] != nil {
			continue
		}
		s, err := prog.Stats()
		if err != nil {
			return 0, fmt.Errorf("read statistics of %s: %w", name, err)
		}
		skipped += s.RecursionMisses
	}
	return skipped, nil
}

// MissedCalls returns the number of function calls that kprobes missed: returns while more calls
// were in progress than the kernel can track, and calls from within a kprobe. It is 0 before Linux
// 6.7, which does not report them.
func (o *Objects) MissedCalls() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.missedCalls
	for _, l := range o.links {
		n += missedCalls(l)
	}
	return n
}

func missedCalls(l link.Link) uint64 {
	info, err := l.Info()
	if err != nil {
		return 0 // not a BPF link: kprobes before Linux 5.15, or a sampler
	}
	if multi := info.KprobeMulti(); multi != nil {
		return multi.Missed
	}
	if event := info.PerfEvent(); event != nil && event.Kprobe() != nil {
		return event.Kprobe().Missed
	}
	return 0
}
