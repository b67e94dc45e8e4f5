package throttletop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/value"
)

// limit is the CPU time that a cgroup can use per period; quota is 0 without a limit. The types are
// not uint64, because the fields are not counters.
type limit struct{ quota, period value.Nanoseconds }

const microsecond = 1000

// read returns the counters of a cgroup, and whether it has or had a limit, or was stopped by that
// of an ancestor. A cgroup that is removed meanwhile has none.
func read(dir string, v2 bool) (c counts, ok bool) {
	if c.limit, ok = readLimit(dir, v2); !ok {
		return c, false // the root, or a cgroup without the controller
	}
	stat, err := readStat(dir, "cpu.stat")
	if err != nil {
		return c, false
	}
	c.Periods, c.Throttled = stat["nr_periods"], stat["nr_throttled"]
	c.Bursts, c.has.Bursts = stat.get("nr_bursts")
	c.UsageNs, c.has.Usage = stat.get("usage_usec")
	c.UsageNs *= microsecond
	local, _ := readStat(dir, "cpu.stat.local")
	if v2 {
		c.ThrottledNs, c.BurstNs = stat["throttled_usec"]*microsecond, stat["burst_usec"]*microsecond
		c.AnyNs, c.has.Any = local.get("throttled_usec")
		c.AnyNs *= microsecond
	} else {
		c.ThrottledNs, c.BurstNs = stat["throttled_time"], stat["burst_time"]
		c.AnyNs, c.has.Any = local.get("throttled_time")
	}
	return c, c.limit.quota > 0 || c.Periods+c.ThrottledNs+c.AnyNs > 0
}

// readLimit returns the limit of a cgroup, and whether it can have one.
func readLimit(dir string, v2 bool) (limit, bool) {
	quota, period, ok := "", "", false
	if v2 {
		text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		if err != nil {
			return limit{}, false
		}
		quota, period, ok = strings.Cut(strings.TrimSpace(string(text)), " ")
		ok = ok && quota != "max"
	} else {
		first, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
		second, err2 := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
		if err != nil || err2 != nil {
			return limit{}, false
		}
		quota, period = strings.TrimSpace(string(first)), strings.TrimSpace(string(second))
		ok = !strings.HasPrefix(quota, "-") // -1: no limit
	}
	if !ok {
		return limit{}, true
	}
	var l limit
	for _, f := range []struct {
		text string
		to   *value.Nanoseconds
	}{{quota, &l.quota}, {period, &l.period}} {
		us, err := strconv.ParseUint(f.text, 10, 64)
		if err != nil {
			return limit{}, true
		}
		*f.to = value.Nanoseconds(us * microsecond)
	}
	return l, true
}

// stat has the lines of cpu.stat, "NAME NUMBER".
type stat map[string]uint64

func (s stat) get(name string) (uint64, bool) {
	n, ok := s[name]
	return n, ok
}

func readStat(dir, file string) (stat, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, fmt.Errorf("read counters of cgroup: %w", err)
	}
	s := stat{}
	for line := range strings.Lines(string(text)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(number, 10, 64); err == nil {
			s[name] = n
		}
	}
	return s, nil
}
