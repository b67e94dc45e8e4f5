package prove

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Proofs of tools that take a function or tracepoint as argument. hrtimer_nanosleep is the function behind
// nanosleep(2), whose duration the caller knows; it has this name in all kernels. Kernels without kprobes have
// tracepoints of system calls.
func functionProofs() []proof {
	const (
		sleeps = "sleep for 1 ms"
		calls  = "lseek in a descriptor that is not open"
	)
	return []proof{
		{tool: "funclatency", job: "sleep latencies", n: known, does: sleeps, args: "--tid {tid} " + sleepFunction, by: "total"},
		{tool: "funcslower", job: "slow sleeps", n: known, does: sleeps, args: "--tid {tid} -m 0 " + sleepFunction},
		{tool: "ksnoop", job: "sleep results", n: known, does: sleeps, args: "--tid {tid} " + sleepFunction + "(return)"},
		{tool: "trace", job: "seeks", n: many, does: calls, args: "--tid {tid} t:" + seekEvent + "(fd,offset,whence)"},
		{tool: "stacksnoop", job: "seek stacks", n: many, does: calls, args: "--tid {tid} t:" + seekEvent},
		{tool: "funccount", job: "seek counts", n: many, does: calls, args: "--tid {tid} t:" + seekEvent, by: "func"},
		{tool: "stackcount", job: "seek counts", n: many, does: calls, args: "--tid {tid} t:" + seekEvent, by: "func"},
		{tool: "argdist", job: "seek arguments", n: many, does: calls, args: "--tid {tid} -i 60 -C t:" + seekEvent + "(fd,whence)", by: "func args"},
	}
}

const (
	sleepFunction = "hrtimer_nanosleep"
	seekEvent     = "syscalls:sys_enter_lseek"
)

// known is the number of sleeps whose duration is known.
const known = 100

func functionJobs() map[string]job {
	return map[string]job{
		"sleep latencies": {run: knownSleeps(nil, sleepLatencies)},
		"slow sleeps":     {run: knownSleeps(slowSleep, nil)},
		"sleep results":   {run: knownSleeps(sleepResult, nil)},
		"seeks":           {run: seeks(seekRow, nil)},
		"seek stacks":     {run: seeks(func(w *worker, s span, _ row) { w.want(row{"time": s, "func": seekName()}) }, nil)},
		"seek counts":     {run: seeks(nil, func(w *worker, _ map[int]int) { w.sum(row{"func": seekName(), "count": w.n}) })},
		"seek arguments":  {run: seeks(nil, seekCounts)},
	}
}

// seekName returns the name that tools show.
func seekName() string { return strings.Replace(seekEvent, ":", "/", 1) }

// knownSleeps returns a job that sleeps without being interrupted. each is called for every sleep, and sum at the end.
func knownSleeps(each func(w *worker, s span), sum func(w *worker, d durations)) func(*worker) error {
	return func(w *worker) error {
		var all durations
		for all.n < int64(w.n) {
			s := during(func() { _ = unix.Nanosleep(&unix.Timespec{Nsec: nap}, nil) })
			all.add(s)
			if each != nil {
				each(w, s)
			}
		}
		if sum != nil {
			sum(w, all)
		}
		return nil
	}
}

func sleepLatencies(w *worker, d durations) {
	w.sum(row{
		"count": d.n, "bucket_count": d.n, "buckets": consistent, "sum": between(d.n*nap, d.sum), "min": between(nap, d.least), "max": between(nap, d.most),
	})
}

func slowSleep(w *worker, s span) {
	w.want(row{"time": s, "func": sleepFunction, "latency_ns": between(nap, s.ns()), "retval": "0x0"})
}

func sleepResult(w *worker, s span) {
	w.want(row{"time": s, "func": sleepFunction, "at": "return", "args": object(row{"return": 0})})
}

// object is an object that the tool must show, with these members.
func object(members row) row { return row{"object": members} }

// notOpen is a descriptor that is not open.
const notOpen = 1 << 20

// seeks returns a job that calls lseek(2) with known arguments. each is called for every call with its arguments,
// and sum with the number of calls by whence.
func seeks(each func(w *worker, s span, args row), sum func(w *worker, counts map[int]int)) func(*worker) error {
	return func(w *worker) error {
		const fromEnd, fromStart = 2, 0
		counts := map[int]int{}
		for i := range w.n {
			whence := fromStart
			if i%4 == 0 {
				whence = fromEnd
			}
			counts[whence]++
			s := during(func() { _, _ = unix.Seek(notOpen, int64(i), whence) })
			if each != nil {
				each(w, s, row{"fd": notOpen, "offset": i, "whence": whence})
			}
		}
		if sum != nil {
			sum(w, counts)
		}
		return nil
	}
}

func seekRow(w *worker, s span, args row) {
	w.want(row{"time": s, "func": seekName(), "args": object(args)})
}

func seekCounts(w *worker, counts map[int]int) {
	for whence, n := range counts {
		w.sum(row{"func": seekName(), "args": object(row{"fd": notOpen, "whence": whence}), "count": n})
	}
}
