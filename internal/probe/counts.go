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

// Counts are per-CPU counters of a map with one value, a struct of u64: "lost" and
// "counters". Their names are the struct's members.
type Counts struct {
	m       *ebpf.Map
	members []btf.Member
	err     error
}

// Counts returns the counters of the map, or none when the object has no such map.
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
		return nil, fmt.Errorf("value is %v, not a struct", value)
	}
	for _, m := range s.Members {
		if size, err := btf.Sizeof(m.Type); err != nil || size != 8 {
			return nil, fmt.Errorf("counter %s has %d bytes, not 8", m.Name, size)
		}
	}
	return s.Members, nil
}

// Read sums the counters over the CPUs.
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

// ProgramStats is what one program did and cost.
type ProgramStats struct {
	Program string  `json:"program"`
	Runs    uint64  `json:"runs"`
	NsARun  float64 `json:"ns_a_run" help:"mean time of a run, in ns"`
	CPU     float64 `json:"cpu" help:"share of one CPU, over the time that was measured"`
}

// Stats returns the run time of each program over the span; it is 0 unless the kernel
// was told to measure it ([ebpf.EnableStats], 5.8).
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

// Missed counts the runs that the kernel left out because the program was running
// on that CPU already. Kernels before 5.12 do not say, and give 0. Of programs that are
// there twice, the other one has run.
func (o *Objects) Missed() (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var missed uint64
	for name, prog := range o.programs {
		if strings.HasSuffix(name, again) || o.programs[name+again] != nil {
			continue
		}
		s, err := prog.Stats()
		if err != nil {
			return 0, fmt.Errorf("read statistics of %s: %w", name, err)
		}
		missed += s.RecursionMisses
	}
	return missed, nil
}

// Unfired counts the calls of functions that kprobes missed: the return of a call when as
// many others were in progress as the kernel has room for, and calls from within a kprobe.
// Kernels before 6.7 do not report them, and give 0.
func (o *Objects) Unfired() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.unfired
	for _, l := range o.links {
		n += unfired(l)
	}
	return n
}

func unfired(l link.Link) uint64 {
	info, err := l.Info()
	if err != nil {
		return 0 // it is not a link of the kernel's (before 5.15)
	}
	if multi := info.KprobeMulti(); multi != nil {
		return multi.Missed
	}
	if event := info.PerfEvent(); event != nil && event.Kprobe() != nil {
		return event.Kprobe().Missed
	}
	return 0
}
