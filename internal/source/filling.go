package source

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
)

// filling empties a map of counts before it is full, so that a run can have more keys than the map has entries.
// The variable NAME_added of the programs is the number of entries that they have added.
type filling struct {
	name string
	// drain moves what was counted until the last cut from the map to the memory of this process. kept returns
	// the number of counts there.
	drain func(*tool.Session) error
	kept  func() int
	begun uint64 // entries that had been added when the current epoch began
}

const (
	// fillCheck is the time between two checks. When a map is not emptied yet, half of it is left for the keys
	// until the next check: 327,000 per second or more.
	fillCheck = 200 * time.Millisecond
	// mostKept is the number of counts in memory at which the map is not emptied any more before the next report.
	// When it is full, events are lost.
	mostKept = 1 << 20
)

// newFilling returns nil if the map cannot be emptied between reports, because the end of an interval also
// divides times, or is the time of readings.
func newFilling(spec *ebpf.CollectionSpec, name string, readings []tool.Iterator) *filling {
	if spec.Variables[name+"_added"] == nil || spec.Variables["interval_end_ns"] != nil || len(readings) > 0 {
		return nil
	}
	return &filling{name: name}
}

// entries returns the size of the map: 2^16 entries per CPU, because each CPU has its own, and at least 2^17. The
// kernel needs 0.7 ms for the 2 MB of that, and 6 ms for the 16 MB of 2^20, the size of maps that are not emptied.
func (f *filling) entries(spec *ebpf.MapSpec, cpus int) uint32 {
	if f == nil {
		return spec.MaxEntries
	}
	const perCPU = 1 << 16
	return uint32(min(uint64(spec.MaxEntries), perCPU<<bits.Len(uint(max(2, cpus)-1))))
}

// sizeCounts sets the size of a map of counts, unless the plan has one. Programs count each key by epoch and CPU.
// keys is the maximum number of entries for each of these, 0 if it is unknown.
func sizeCounts(spec *ebpf.CollectionSpec, plan *tool.Plan, name string, f *filling, keys uint64) error {
	m := spec.Maps[name]
	if m == nil || plan.MapEntries[name] != 0 {
		return nil
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	entries := uint64(f.entries(m, cpus))
	if keys > 0 {
		entries = min(entries, 2*uint64(cpus)*keys)
	}
	if plan.MapEntries == nil {
		plan.MapEntries = map[string]uint32{}
	}
	plan.MapEntries[name] = uint32(entries)
	return nil
}

// begin is called before an epoch begins.
func (f *filling) begin(s *tool.Session) (err error) {
	if f != nil {
		f.begun, err = f.added(s)
	}
	return err
}

func (f *filling) added(s *tool.Session) (n uint64, err error) {
	if err := s.Objects.Variables[f.name+"_added"].Get(&n); err != nil {
		return 0, fmt.Errorf("read number of entries: %w", err)
	}
	return n, nil
}

// isDue reports whether the map of that size is to be emptied: at least half of it is in use, and memory for its
// counts is left. added is the number of entries that have been added.
func (f *filling) isDue(added uint64, entries uint32) bool {
	return added-f.begun >= uint64(entries/2) && f.kept() < mostKept
}
