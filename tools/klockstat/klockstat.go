// Package klockstat shows contention for locks of the kernel.
package klockstat

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh klockstat.bpf.c

type options struct {
	Every     flags.Duration `flag:"interval,i" arg:"TIME" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default"`
	Reset     bool           `flag:"reset,R" help:"each report contains only its interval, instead of all waits since the start"`
	Caller    string         `flag:"caller,c" arg:"PREFIX" help:"only callers whose name begins with this text"`
	Lock      string         `flag:"lock,L" arg:"LOCK" help:"only this lock: the name of a variable (needs CONFIG_KALLSYMS_ALL), or an address such as 0xffffffff82a3b4c0"`
	Locks     bool           `flag:"by-lock" bpf:"by_lock" help:"separate rows for the locks of a caller, with their addresses"`
	Thread    bool           `flag:"per-thread,P" bpf:"by_thread" help:"separate rows for threads"`
	Stacks    uint32         `flag:"stacks,s" arg:"N" min:"1" max:"16" help:"show the caller and the N-1 functions above it, and separate rows for different ones"`
	Rows      uint64         `flag:"locks,n" arg:"N" also:"rows" min:"1" help:"show only the first N rows of each report; default 99 in text"`
	Sort      string         `flag:"sort,S" arg:"COLUMN" help:"sort by this column, greatest first (+COLUMN: least first); acq_total, acq_max and acq_count are total_ns, max_ns and count"`
	Storage   uint64         `flag:"stack-storage-size" arg:"N" help:"ignored, for compatibility: there is no map of stacks"`
	Timestamp bool           `flag:"timestamp,T" help:"no effect, for compatibility: each report has its time"`
}

// key mirrors struct table_key.
type key struct {
	Caller, Lock    value.Address
	Callers         uint64
	Flags, PID, TID uint32
	Comm            value.Comm
	_               uint32
}

// counts mirrors struct table_value.
type counts struct {
	Count, TotalNs uint64
	MaxNs          source.Max
	Callers        [15]value.Address
}

type row struct {
	Caller    string        `json:"caller" col:"Caller,width=32" help:"function that acquires the lock, or a lock in it when it releases it: the innermost one outside the code of locks; its address without CAP_SYSLOG, 0x0 if it is unknown"`
	Type      string        `json:"lock_type" col:"Type,width=14" help:"spinlock, rwlock, mutex, rwsem, percpu-rwsem, rt-mutex (also spinlocks with PREEMPT_RT) or semaphore; -read or -write follows"`
	Lock      value.Address `json:"lock" col:"Lock,width=16" help:"address of the lock; absent without --by-lock"`
	PID       uint32        `json:"pid" col:"PID,width=7" help:"process that waited, in the initial PID namespace; absent without --per-thread"`
	TID       uint32        `json:"tid" col:"TID,width=7" help:"thread that waited; absent without --per-thread"`
	Comm      value.Comm    `json:"comm" col:"COMM,width=16" help:"name of the thread; absent without --per-thread"`
	AverageNs value.Micros  `json:"avg_ns" col:"Avg Wait (us),width=13,right" help:"mean of the waits, total_ns / count; text shows microseconds"`
	Count     uint64        `json:"count" col:"Count,width=8,right" help:"waits that ended (contention_end), also those given up"`
	MaxNs     value.Micros  `json:"max_ns" col:"Max Wait (us),width=13,right" help:"longest of the waits; text shows microseconds"`
	TotalNs   value.Micros  `json:"total_ns" col:"Total Wait (us),width=15,right" help:"sum of the waits that ended, each from contention_begin to contention_end, CLOCK_MONOTONIC, in the context of the thread that waits; text shows microseconds"`
	Callers   value.Trace   `json:"callers" help:"functions above the caller, innermost first, at most N-1 with --stacks N: the function that called the caller, the one that called that, and so on; absent without --stacks"`
}

// Tool is the definition of klockstat.
var Tool = tool.Define(tool.Spec{
	Name:     "klockstat",
	Category: "scheduler",
	Summary:  "Kernel lock contention: time that threads wait for mutexes, semaphores and spinlocks, by caller",
	Description: `Measures how long threads wait for locks of the kernel, by the function that acquires the lock: mutexes, read-write semaphores (rwsem), spinlocks, read-write locks, per-CPU semaphores and semaphores.

A wait begins at the tracepoint contention_begin, when a lock is not free, and ends at contention_end, when it is acquired or the wait is given up. A lock that is free at once is not counted. A mutex for which a thread first spins and then sleeps is one wait. The time of sleeping waits includes the run queue latency.

The kernel has these tracepoints from 5.19 on. With PREEMPT_RT, spinlocks sleep and have the type rt-mutex. An interrupt that waits for a spinlock belongs to the task that it interrupts.

Waits that began before the tool started are not counted, nor those that have not ended when it stops. How long locks are held is not measured.`,
	Peers: []string{
		"Hold times are not measured, and a second column for them in -S (hld_total) is ignored: the kernel has no tracepoints for them. Locks that are free at once are not counted either, so that an uncontended lock costs nothing.",
		"Spinlocks, read-write locks and per-CPU semaphores are covered; the peers cover only mutexes and rwsems.",
		"The caller is the function outside the code of locks, also if a lock protects the waiters of another one, as in up_read. -s N shows N functions without their offsets, at most 16.",
		"-p is --pid, -t is --tid and -d is --duration.",
		"-n is --locks, as in BCC.",
	},
	Examples: []string{
		"klockstat -d 10                   # ten seconds, by total time",
		"klockstat -i 5 -R -S acq_max      # every five seconds, the longest waits first",
		"klockstat -c ext4_ -P             # callers in ext4, by thread",
		"klockstat -n 3 -s 5               # the first three, with the functions that called them",
		"klockstat -L cgroup_mutex         # one lock (needs CONFIG_KALLSYMS_ALL)",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	sort, held := o.sort()
	if o.Sort != "" && sort == "" {
		return nil, fmt.Errorf("--sort %s: hold times are not measured; want acq_total, acq_max, acq_count or a column", o.Sort)
	}
	callers := traces{env: env, all: map[string]value.Trace{}}
	t := &source.Table[key, counts, row]{
		Plan:       tool.Plan{Resolve: o.resolve, Keep: []system.Capability{system.CapSyslog}},
		Rounds:     source.Rounds{Every: o.Every},
		Ranking:    source.Ranking{Sort: sort, Rows: o.Rows},
		SortNames:  map[string]string{"acq_total": "total_ns", "acq_max": "max_ns", "acq_count": "count"},
		TextRows:   99,
		Cumulative: !o.Reset,
		Columns:    []string{"caller", "lock_type", "avg_ns", "count", "max_ns", "total_ns"},
		Label: func(k *key, c *counts) row {
			return row{
				Caller: env.KernelName(uint64(k.Caller)), Type: typeOf(k.Flags), Lock: k.Lock, PID: k.PID, TID: k.TID, Comm: k.Comm,
				Callers: callers.trace(c.Callers[:]),
			}
		},
		Fill: func(r *row, c *counts, _ time.Duration) {
			r.Count, r.TotalNs, r.MaxNs = c.Count, value.Micros(c.TotalNs), value.Micros(c.MaxNs)
			r.AverageNs = value.Micros(c.TotalNs / max(1, c.Count))
		},
	}
	if o.Caller != "" {
		t.Keep = func(r *row) bool { return strings.HasPrefix(r.Caller, o.Caller) }
	}
	if held {
		t.Note("hold times are not measured: the waits are sorted by " + sort)
	}
	o.arrange(t)
	return t, nil
}

// sort returns the column of --sort, and whether BCC's second one, for hold times, was given too.
func (o *options) sort() (column string, held bool) {
	var waits []string
	for field := range strings.SplitSeq(o.Sort, ",") {
		if strings.HasPrefix(strings.TrimPrefix(field, "+"), "hld_") {
			held = true
		} else {
			waits = append(waits, field)
		}
	}
	return strings.Join(waits, ","), held
}

// arrange selects columns and their order.
func (o *options) arrange(t *source.Table[key, counts, row]) {
	if t.Sort == "" {
		t.Sort = "total_ns"
	}
	if o.Locks {
		t.Columns = append(t.Columns, "lock")
	} else {
		t.Off = append(t.Off, "lock")
	}
	if o.Thread {
		t.Columns = append([]string{"pid", "tid", "comm"}, t.Columns...)
	} else {
		t.Off = append(t.Off, "pid", "tid", "comm")
	}
	if o.Stacks > 1 {
		t.Columns = append(t.Columns, "callers")
	} else {
		t.Off = append(t.Off, "callers")
	}
}

// resolve looks up the lock and the addresses of the code of locks.
func (o *options) resolve(p *tool.Plan, _ *tool.Kernel) error {
	code, err := lockCode()
	if err != nil {
		p.Note("the caller is unknown, because the addresses of the code of locks cannot be read: " + err.Error())
	}
	p.Variables = map[string]any{"lock_code": code, "lock_code_nr": uint32(len(code) / 2), "targ_callers": max(o.Stacks, 1) - 1}
	if o.Lock == "" {
		return nil
	}
	address, err := strconv.ParseUint(o.Lock, 0, 64)
	if err != nil {
		address, err = system.KernelSymbol("/", o.Lock)
	}
	if errors.Is(err, system.ErrNoSymbol) && !system.HasKernelData("/") {
		err = fmt.Errorf("%w: it has no variables, because the kernel is built without CONFIG_KALLSYMS_ALL or hides its addresses; "+
			"give the address of the lock, as --by-lock shows it", err)
	}
	if err != nil {
		return flags.Usage(fmt.Errorf("--lock: %w", err))
	}
	p.Variables["targ_lock"] = address
	return nil
}

// typeOf returns the type of a lock from the flags of contention_begin (include/trace/events/lock.h).
func typeOf(flags uint32) string {
	const spin, read, write, rt, percpu, mutex = 1, 2, 4, 8, 16, 32
	name := "semaphore"
	switch {
	case flags&mutex != 0:
		name = "mutex"
	case flags&percpu != 0:
		name = "percpu-rwsem"
	case flags&spin != 0 && flags&(read|write) != 0:
		name = "rwlock"
	case flags&spin != 0:
		name = "spinlock"
	case flags&rt != 0:
		name = "rt-mutex"
	case flags&(read|write) != 0:
		name = "rwsem"
	}
	switch {
	case flags&read != 0:
		return name + "-read"
	case flags&write != 0:
		return name + "-write"
	}
	return name
}
