package prove

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

func schedulerProofs() []proof {
	const sleeps = "sleep for 1 ms"
	return []proof{
		{tool: "offcputime", job: "sleeps", n: 50, does: sleeps, async: true, args: "--tid {tid}", by: "pid tid comm"},
		{tool: "wakeuptime", job: "wakes", n: 50, does: sleeps, async: true, args: "--tid {tid}", by: "pid comm"},
		{tool: "cpudist", job: "on cpu", n: 50, does: sleeps, async: true, args: "--tid {tid}", by: "total"},
		{tool: "runqlat", job: "waits", n: 50, does: sleeps, async: true, args: "--tid {tid}", by: "total"},
		{tool: "profile", job: "spin", does: "use a CPU for 300 ms", args: "-F 997 --tid {tid}", by: "pid comm"},
		{tool: "syscount", job: "calls", n: many, does: "getppid, and getpgid of no process", args: "--tid {tid} --latency", by: "syscall abi", own: "syscall"},
		{tool: "pidpersec", job: "children", n: many / 2, does: "start a program", args: "--pid {pid}", by: "total", whole: "--columns all", hook: "create", counters: "processes threads"},
	}
}

func schedulerJobs() map[string]job {
	return map[string]job{
		"sleeps":   {run: sleeping(offCPU), second: switches("count", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")},
		"wakes":    {run: sleeping(woken), second: switches("count", "voluntary_ctxt_switches")},
		"on cpu":   {run: sleeping(onCPU)},
		"waits":    {run: sleeping(queued)},
		"spin":     {run: spins, second: cpuStat("count")},
		"calls":    {run: calls},
		"children": {prepare: prepareProgram, run: children},
	}
}

// usage is what the scheduler of the kernel counts for a thread.
type usage struct {
	cpu, delay, runs int64 // ns on a CPU, ns waiting for one, and how often it got one
	when             int64
	usual, longest   int64 // median and maximum of the waits for a CPU around the sleeps, in ns
	usualCPU         int64 // median of the time on a CPU between the sleeps, in ns
}

func usageNow() (u usage, err error) {
	text, err := os.ReadFile("/proc/thread-self/schedstat")
	if err != nil {
		return u, fmt.Errorf("read the counters of the scheduler: %w", err)
	}
	u.when = now()
	_, err = fmt.Sscan(string(text), &u.cpu, &u.delay, &u.runs)
	return u, err
}

const nap = 1_000_000 // ns

// sleeping returns a job that sleeps. sum notes what the tool must show: slept is the time around the sleeps,
// and used what the kernel counted.
func sleeping(sum func(w *worker, slept int64, used usage)) func(*worker) error {
	return func(w *worker) error {
		before, err := usageNow()
		if err != nil {
			return err
		}
		slept := int64(0)
		delays, runs, last := make([]int64, w.n), make([]int64, w.n), before
		for i := range delays {
			left := unix.Timespec{Nsec: nap}
			slept += during(func() {
				for unix.Nanosleep(&left, &left) == unix.EINTR {
				}
			}).ns()
			u, err := usageNow()
			if err != nil {
				return err
			}
			delays[i], runs[i], last = u.delay-last.delay, u.cpu-last.cpu, u
		}
		after, err := usageNow()
		if err != nil {
			return err
		}
		slices.Sort(delays)
		slices.Sort(runs)
		used := usage{
			after.cpu - before.cpu, after.delay - before.delay, after.runs - before.runs, after.when - before.when,
			delays[len(delays)/2], delays[len(delays)-1], runs[len(runs)/2],
		}
		if used.runs < int64(w.n) {
			return fmt.Errorf("the kernel counted %d runs of a thread that slept %d times", used.runs, w.n)
		}
		sum(w, slept, used)
		return nil
	}
}

// around is how often the thread gets a CPU from the end of the workload until it sleeps, at most: each time some
// microseconds of work are left.
const around = 10

// times is how often the thread gets a CPU while the tool observes it. It is preempted before the workload too, so
// the runs since the process was prepared count.
func (w *worker) times(used usage) row {
	if now, err := usageNow(); err == nil {
		return between(int64(w.n), now.runs-w.runs+around)
	}
	return between(int64(w.n), used.runs+around)
}

func offCPU(w *worker, _ int64, used usage) {
	w.sum(row{
		"pid": w.common["pid"], "tid": w.common["tid"], "comm": w.common["comm"], "count": w.times(used),
		"total_ns": between(int64(w.n)*nap, now()-w.prepared),
	})
}

func woken(w *worker, _ int64, used usage) {
	offCPU(w, 0, used)
	delete(w.log.Rows[0], "tid")
}

func onCPU(w *worker, _ int64, used usage) {
	// The scheduler does not always read the clock when it switches to a task that was just woken, so it counts a
	// part of the wait, at most a tick, as time on the CPU. A median is not affected by some of these.
	const least = 4
	w.sum(row{
		"count": w.times(used), "buckets": consistent,
		"sum": between(float64(w.n)*float64(used.usualCPU)/least/1000, float64(now()-w.prepared)/1000-float64(w.n)*nap/1000),
	})
}

func queued(w *worker, _ int64, used usage) {
	// The scheduler counts the time with another clock, and up to other moments. A single long wait that the
	// tool could not observe must not matter for the sum: see the median. Around a sleep the thread can wait
	// several times. The maximum is compared too, because it shows a wrong unit also if the sum is mostly that
	// of a few long waits.
	const least, waits = 10, 20
	whole := float64(now()-w.prepared) / 1000
	w.sum(row{
		"count": w.times(used), "buckets": consistent,
		"sum": between(float64(w.n)*float64(used.usual)/least/1000, whole-float64(w.n)*nap/1000),
		"max": between(float64(used.longest)/waits/1000, whole),
	})
}

const (
	spinning  = 300_000_000 // ns
	frequency = 997
)

// spins uses a CPU. The kernel counts the time, and the tool samples.
func spins(w *worker) error {
	before, err := usageNow()
	if err != nil {
		return err
	}
	after := before
	for after.cpu-before.cpu < spinning {
		for range 1000 {
			now()
		}
		if after, err = usageNow(); err != nil {
			return err
		}
	}
	// Virtual CPUs that do not run get no samples, so that only the maximum is sharp.
	expected := (after.cpu - before.cpu) * frequency / 1e9
	w.sum(row{"pid": w.common["pid"], "comm": w.common["comm"], "count": between(expected/3, expected*11/10+around)})
	return nil
}

func calls(w *worker) error {
	var ok, failed durations
	for range w.n {
		ok.add(during(func() { unix.Getppid() }))
		failed.add(during(func() { _, _ = unix.Getpgid(-1) }))
	}
	w.sum(row{"syscall": "getppid", "abi": "native", "count": w.n, "errors": 0, "total_ns": ok.total()})
	w.sum(row{"syscall": "getpgid", "abi": "native", "count": w.n, "errors": w.n, "total_ns": failed.total()})
	return nil
}

func children(w *worker) error {
	for range w.n {
		pid, err := syscall.ForkExec(w.path(programName(w)), []string{"child"}, &syscall.ProcAttr{})
		if err != nil {
			return err
		}
		if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
			return err
		}
	}
	w.sum(row{"processes": w.n})
	return nil
}
