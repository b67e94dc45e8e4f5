package klockstat

import (
	"errors"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/system"
)

// lockCode returns the addresses of the code of locks, begin and end of each range.
func lockCode() ([]uint64, error) {
	code, err := system.KernelCode("/", isLockCode)
	if err == nil && len(code) == 0 {
		err = errors.New("/proc/kallsyms hides them")
	}
	if err != nil {
		return nil, err
	}
	for _, section := range [][2]string{{"__lock_text_start", "__lock_text_end"}, {"__sched_text_start", "__sched_text_end"}} {
		start, err := system.KernelSymbol("/", section[0])
		if err != nil {
			return nil, err
		}
		end, err := system.KernelSymbol("/", section[1])
		if err != nil {
			return nil, err
		}
		code = slices.DeleteFunc(code, func(r system.Range) bool { return r.Start >= start && r.End <= end })
		code = append(code, system.Range{Start: start, End: end})
	}
	var flat []uint64
	for _, r := range code {
		flat = append(flat, r.Start, r.End)
	}
	return flat, nil
}

// isLockCode reports whether a function belongs to the implementation of locks (kernel/locking). Most
// of it is in sections of its own, but not what releases locks, and what can be inlined.
func isLockCode(name string) bool {
	names := []string{
		"up", "up_read", "up_write", "downgrade_write", "native_queued_spin_lock_slowpath", "__pv_queued_spin_lock_slowpath",
		"queued_read_lock_slowpath", "queued_write_lock_slowpath",
	}
	prefixes := []string{
		"rwsem_", "__rwsem_", "down_read", "down_write", "mutex_", "__mutex_", "ww_mutex_", "__ww_mutex_", "osq_",
		"percpu_rwsem_", "__percpu_rwsem_", "percpu_up_", "percpu_down_", "__percpu_down_",
		"rt_mutex_", "__rt_mutex_", "rtlock_", "rt_spin_", "rt_read_", "rt_write_", "rwbase_",
	}
	return slices.Contains(names, name) ||
		slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
