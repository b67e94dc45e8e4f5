package prove

import (
	"fmt"
)

// Proofs of tools for functions of the C library.
func cProofs() []proof {
	return []proof{
		{tool: "memleak", job: "allocations", n: 200, does: "malloc, calloc, and malloc with free", args: "--pid {child} --older 0 60", by: "pid function", own: "pid function"},
		{tool: "gethostlatency", job: "lookups", n: 100, does: "getaddrinfo of an address, and of a name that is none", args: "--pid {child} --columns all"},
		{tool: "threadsnoop", job: "threads", n: 100, does: "pthread_create", args: "--pid {child} --columns all"},
	}
}

func cJobs() map[string]job {
	return map[string]job{
		"allocations": cJob(allocationCalls, allocationRows),
		"lookups":     cJob(lookupCalls, lookupRows),
		"threads":     cJob(threadCalls, threadRows),
	}
}

// cJob returns a job of a C program. rows notes what the tool must show of its calls.
func cJob(calls func(i int) []cCall, rows func(w *worker, c *cProcess, s span)) job {
	var c *cProcess
	return job{
		prepare: func(w *worker) (err error) {
			var all []cCall
			for i := range w.n {
				all = append(all, calls(i)...)
			}
			c, err = w.startC(all)
			return err
		},
		run: func(w *worker) error {
			s, err := c.run()
			if err != nil {
				return fmt.Errorf("run the C program: %w", err)
			}
			rows(w, c, s)
			return nil
		},
	}
}

const (
	smallest = 100 // bytes
	elements = 3
	element  = 50 // bytes
)

func allocationCalls(i int) []cCall {
	return []cCall{
		{"malloc", []any{smallest + i}},
		{"calloc", []any{elements, element}},
		{"malloc", []any{element, cResult{1, 0}}},
		{"free", nil},
	}
}

func allocationRows(w *worker, c *cProcess, _ span) {
	w.sum(row{"pid": c.pid, "function": "malloc", "count": w.n, "bytes": w.n*smallest + w.n*(w.n-1)/2})
	w.sum(row{"pid": c.pid, "function": "calloc", "count": w.n, "bytes": w.n * elements * element})
}

const (
	lookedUp    = "127.0.0.9"
	notLookedUp = "name.invalid"
)

// lookupCalls returns calls that ask no server: the second one accepts addresses only.
func lookupCalls(int) []cCall {
	const numeric = 4 // AI_NUMERICHOST
	hints := append(cBytes{numeric}, make([]byte, cEntrySize)...)
	return []cCall{
		{"getaddrinfo", []any{cText(lookedUp), 0, 0, cBytes(make([]byte, 8))}},
		{"getaddrinfo", []any{cText(notLookedUp), 0, hints, cBytes(make([]byte, 8))}},
	}
}

func lookupRows(w *worker, c *cProcess, s span) {
	const shortest = 50 // ns: two programs run, and names are compared
	for range w.n {
		both := func() row {
			return row{"pid": c.pid, "tid": c.pid, "comm": c.comm, "time": s, "function": "getaddrinfo", "delta_ns": between(shortest, s.ns())}
		}
		w.want(both().with(row{"host": lookedUp, "found": true, "ret": 0, "addr": lookedUp, "addrs": atLeast(1)}))
		w.want(both().with(row{"host": notLookedUp, "found": false, "ret": -2, "error": "EAI_NONAME", "addrs": 0}))
	}
}

func threadCalls(int) []cCall {
	return []cCall{
		{"pthread_create", []any{cSlot{1, 0}, 0, cRoutine{}, 0}},
		{"pthread_join", []any{0, 0}},
	}
}

func threadRows(w *worker, c *cProcess, s span) {
	address := fmt.Sprintf("%#x", c.routine)
	for range w.n {
		w.want(row{"pid": c.pid, "tid": c.pid, "comm": c.comm, "time": s, "routine": address})
	}
}
