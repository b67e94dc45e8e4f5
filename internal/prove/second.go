package prove

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Second sources: counters that the kernel maintains for other purposes, read before and after the workload by
// another thread. They know nothing of the workload's log.

// after adds what a counter says after the workload to the log.
type after func()

// taskFile reads a file of the thread that performs the workload.
func (w *worker) taskFile(name string) string {
	text, _ := os.ReadFile(filepath.Join("/proc/self/task", w.facts["tid"], name))
	return string(text)
}

// fieldsOf returns the numbers of a text with lines NAME: VALUE.
func fieldsOf(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
			out[strings.TrimSpace(name)] = n
		}
	}
	return out
}

// accounted returns a second source: the I/O accounting of the thread (taskstats), by column of the tool. A runtime
// of the workload can itself transfer less than slack bytes.
func accounted(slack int64, columns map[string]string) func(*worker) after {
	const source = "the kernel's I/O accounting of the thread (taskstats, /proc/PID/task/TID/io: %s)"
	return func(w *worker) after {
		before := fieldsOf(w.taskFile("io"))
		return func() {
			now := fieldsOf(w.taskFile("io"))
			for column, counter := range columns {
				if n, ok := now[counter]; ok {
					moved := n - before[counter]
					w.total(column, between(moved-slack, moved), fmt.Sprintf(source, counter))
				}
			}
		}
	}
}

// namespaceCounters returns the counters of /proc/net/snmp and /proc/net/netstat in the network namespace of the
// workload, by PROTOCOL.COUNTER.
func (w *worker) namespaceCounters() map[string]int64 {
	out := map[string]int64{}
	names := map[string][]string{}
	for line := range strings.Lines(w.taskFile("net/snmp") + w.taskFile("net/netstat")) {
		protocol, rest, _ := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if names[protocol] == nil {
			names[protocol] = f
			continue
		}
		for i, name := range names[protocol] {
			if n, err := strconv.ParseInt(f[min(i, len(f)-1)], 10, 64); err == nil {
				out[protocol+"."+name] = n
			}
		}
	}
	return out
}

// snmp returns a second source: the sum of some counters of the network namespace, in which only the workload
// communicates. It is times the sum of the column, or number of rows.
func snmp(column string, times int64, counters ...string) func(*worker) after {
	return func(w *worker) after {
		before := w.namespaceCounters()
		return func() {
			now := w.namespaceCounters()
			sum := int64(0)
			for _, c := range counters {
				if _, ok := now[c]; !ok {
					return
				}
				sum += now[c] - before[c]
			}
			if sum%times == 0 {
				w.total(column, sum/times, "/proc/net/snmp ("+strings.Join(counters, " + ")+")")
			}
		}
	}
}

// switches returns a second source: the context switches of the thread (taskstats, /proc/PID/task/TID/status).
func switches(column string, kinds ...string) func(*worker) after {
	count := func(w *worker) (n int64) {
		fields := fieldsOf(w.taskFile("status"))
		for _, k := range kinds {
			n += fields[k]
		}
		return n
	}
	return func(w *worker) after {
		before := count(w)
		return func() {
			// The wait before the workload and that after it can be counted by one of both only.
			n := count(w) - before
			w.total(column, between(n-around, n+around), "the thread's context switches (/proc/PID/task/TID/status: "+strings.Join(kinds, " + ")+")")
		}
	}
}

// cpuStat returns a second source for numbers of samples: the CPU time of the workload's own cgroup. Virtual CPUs
// that do not run get no samples, so that only the maximum is sharp.
func cpuStat(column string) func(*worker) after {
	usage := func(dir string) int64 {
		text, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "usage_usec" {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				return n
			}
		}
		return 0
	}
	return func(w *worker) after {
		dir := cgroupOf()
		isOwn := filepath.Base(dir) == filepath.Base(w.dir)
		before := usage(dir)
		return func() {
			if used := usage(dir) - before; isOwn && used > 0 {
				w.total(column, between(used*frequency/1e6/3, used*frequency/1e6*11/10+around), "cpu.stat of the workload's cgroup (usage_usec)")
			}
		}
	}
}

// diskStats returns a second source: the requests that the disk has completed. Others use it too, so it is an
// upper limit.
func diskStats(column string) func(*worker) after {
	reads := func(disk string) int64 {
		text, _ := os.ReadFile(filepath.Join("/sys/block", disk, "stat"))
		f := strings.Fields(string(text))
		if len(f) == 0 {
			return 0
		}
		n, _ := strconv.ParseInt(f[0], 10, 64)
		return n
	}
	return func(w *worker) after {
		disk := diskOf(w.dir)
		before := reads(disk)
		return func() {
			enabled, _ := os.ReadFile(filepath.Join("/sys/block", disk, "queue/iostats"))
			if strings.TrimSpace(string(enabled)) == "1" {
				w.total(column, atMost(reads(disk)-before), "the reads of the disk (diskstats)")
			}
		}
	}
}

// both returns the sum of two second sources.
func both(a, b func(*worker) after) func(*worker) after {
	return func(w *worker) after {
		first, second := a(w), b(w)
		return func() { first(); second() }
	}
}
