// Package ppchcalls counts calls of the hypervisor on PowerPC.
package ppchcalls

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh ppchcalls.bpf.c

type options struct {
	Every        flags.Duration `flag:"interval,i" pos:"interval" arg:"TIME" zero:"none" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default, and for 0"`
	Top          uint64         `flag:"top,T" arg:"N" also:"rows" min:"1" help:"show only the first N rows of each interval; default 10 in text"`
	Sort         string         `flag:"sort,s" arg:"COLUMN" help:"sort by this column, greatest first (+COLUMN: least first); default: count, with --latency total time"`
	Failures     bool           `flag:"failures,x" bpf:"targ_failed" help:"only calls that fail: their result is negative"`
	Errno        string         `flag:"errno,e" arg:"ERROR" help:"only calls that fail with this result: H_PARAMETER or 4; also the name of the errno with this number, such as EINTR"`
	Latency      bool           `flag:"latency,L" bpf:"want_latency" help:"measure the duration of calls"`
	Milliseconds bool           `flag:"milliseconds,m" help:"show times in milliseconds instead of microseconds"`
	Process      bool           `flag:"process,P" bpf:"by_pid" help:"one row per process, instead of per call"`
	Hcall        string         `flag:"hcall" arg:"NAME" help:"only this call: H_ENTER or 0x8"`
	List         bool           `flag:"list,l" help:"list the names of all calls, and exit"`
}

// key mirrors struct table_key.
type key struct {
	Opcode uint64
	PID    uint32
	Comm   value.Comm
	_      uint32
}

// counts mirrors struct table_value.
type counts struct {
	Count, Errors, Timed, TotalNs uint64
	MaxNs, MaxInverseNs           source.Max
}

type row struct {
	Hcall   string     `json:"hcall" col:"PPC HCALL,width=30" help:"name of the call, or its number in brackets; absent with --process"`
	PID     uint32     `json:"pid" col:"PID,width=7" help:"calling process, in the initial PID namespace; 0 for idle CPUs; absent without --process"`
	Comm    value.Name `json:"comm" col:"COMM,width=16" help:"name of the process (its thread-group leader); absent without --process"`
	Count   uint64     `json:"count" col:"COUNT,width=8,right" help:"calls that returned in the interval"`
	Errors  uint64     `json:"errors" col:"ERRORS,width=8,right" help:"calls that failed: their result is negative"`
	Min     duration   `json:"min_ns" col:"MIN (us),width=10,right" help:"shortest time from entry to return of a call, CLOCK_MONOTONIC; absent without --latency"`
	Max     duration   `json:"max_ns" col:"MAX (us),width=10,right" help:"longest time; absent without --latency"`
	Average duration   `json:"avg_ns" col:"AVG (us),width=10,right" help:"mean time; absent without --latency"`
	Total   duration   `json:"total_ns" col:"TIME (us),width=14,right" help:"sum of the times; absent without --latency"`
}

// duration is a time in ns. Text shows microseconds, or milliseconds.
type duration struct {
	value.Micros
	millis bool
}

func (v *duration) AppendText(b []byte) []byte {
	if v.millis {
		scaled := v.Micros / 1000
		return scaled.AppendText(b)
	}
	return v.Micros.AppendText(b)
}

// Tool is the definition of ppchcalls.
var Tool = tool.Define(tool.Spec{
	Name:     "ppchcalls",
	Category: "scheduler",
	Summary:  "Count hypervisor calls (hcalls) of PowerPC, their errors and latency",
	Description: `Counts calls of the hypervisor by Linux in a logical partition of PowerPC (pseries), when they return (powerpc:hcall_exit), by call or process.

No other architecture has these calls. There the tool ends with exit code 4, and so it does wherever this program runs today: it is built for x86-64 and arm64 only. --list works everywhere. The programs do not depend on the architecture; they are tested with generated calls.

The kernel does not trace H_CEDE, with which an idle CPU waits, nor calls that a traced call causes in the kernel's tracing. With --latency the time is measured from hcall_entry to hcall_exit, during which preemption is disabled; a call of an interrupt during another call counts separately, and its time is a part of both. Calls that were entered before the tool was attached have no time; they are counted in the table, and as no_entry in the summary.

The process is the one that is current; in an interrupt that is the interrupted one.`,
	Peers: []string{
		"-e also takes the names of results of the hypervisor, such as H_PARAMETER. The numbers are not those of errno(3): EPERM stands for -1, which is H_HARDWARE, as in BCC.",
		"-d is --duration, -p is --pid and -t is --tid.",
		"-T, --top defaults to 10 rows in text; JSON and CSV have all rows.",
		"A call without a name is shown by its number.",
	},
	Examples: []string{
		"ppchcalls                   # all hypervisor calls, until Ctrl-C",
		"ppchcalls -L -i 1           # the ten calls with the most time, each second",
		"ppchcalls -P -x             # processes whose calls fail",
		"ppchcalls --hcall H_PROD -L # one call",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "duration": "d"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	calls := parse(opcodes, 16)
	plan, err := o.plan(calls)
	if err != nil {
		return nil, err
	}
	t := &source.Table[key, counts, row]{
		Plan: plan, Rounds: source.Rounds{Every: o.Every}, TextRows: 10,
		Ranking: source.Ranking{Sort: "count", Rows: o.Top}, Columns: []string{"hcall", "count"}, Off: []string{"pid", "comm"},
		Label: func(k *key, _ *counts) row {
			if o.Process {
				return row{PID: k.PID, Comm: value.NameOf(k.Comm[:])}
			}
			return row{Hcall: calls.name(k.Opcode)}
		},
		Fill: o.fill,
	}
	if o.Process {
		t.Columns, t.Off = []string{"pid", "comm", "count"}, []string{"hcall"}
	}
	if o.Latency {
		t.Columns, t.Sort = append(t.Columns, "min_ns", "max_ns", "avg_ns"), "total_ns"
	} else {
		t.Off = append(t.Off, "min_ns", "max_ns", "avg_ns", "total_ns")
	}
	if o.Sort != "" {
		t.Sort = o.Sort
	}
	if o.Milliseconds {
		t.Headers = map[string]string{"min_ns": "MIN (ms)", "max_ns": "MAX (ms)", "avg_ns": "AVG (ms)", "total_ns": "TIME (ms)"}
	}
	return t, nil
}

func (o *options) plan(calls names) (tool.Plan, error) {
	p := tool.Plan{Variables: map[string]any{}}
	if !o.Latency {
		p.Without = []string{"entry"}
	}
	if o.List {
		p.Print = func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Join(calls.all(), "\n")+"\n")
			return err
		}
	}
	if o.Hcall != "" {
		opcode, err := calls.number(o.Hcall)
		if err != nil {
			return p, fmt.Errorf("--hcall: %w (--list prints all names)", err)
		}
		p.Variables["targ_by_opcode"], p.Variables["targ_opcode"] = true, opcode
	}
	if o.Errno != "" {
		result, err := parse(results, 10).number(o.Errno)
		if err != nil {
			var errno uint32
			errno, err = value.ParseErrno(o.Errno)
			result = uint64(errno)
		}
		if err != nil || result == 0 {
			return p, fmt.Errorf("--errno: %q is not the name or number of a result", o.Errno)
		}
		p.Variables["targ_error"] = result
	}
	return p, nil
}

func (o *options) fill(r *row, c *counts, _ time.Duration) {
	r.Count, r.Errors = c.Count, c.Errors
	if c.Timed == 0 {
		return
	}
	in := func(ns uint64) duration { return duration{value.Micros(ns), o.Milliseconds} }
	r.Min, r.Max = in(math.MaxUint64-uint64(c.MaxInverseNs)), in(uint64(c.MaxNs))
	r.Average, r.Total = in(c.TotalNs/c.Timed), in(c.TotalNs)
}
