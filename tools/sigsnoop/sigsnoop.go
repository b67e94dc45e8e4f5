// Package sigsnoop traces signals.
package sigsnoop

import (
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh sigsnoop.bpf.c -type result

type options struct {
	Kill   bool     `flag:"kill,k" help:"show calls that send signals, such as kill(2), also failed ones, instead of signals"`
	Failed bool     `flag:"failed,x" bpf:"targ_failed" help:"only signals that were not delivered normally (RESULT), with -k only failed calls"`
	Signal []string `flag:"signal,s" arg:"SIGNAL" help:"only these signals, by number or name: 9, KILL, sigkill, RTMIN+1 or SIGRTMAX; with -k also 0, which only checks the target"`
	Target uint32   `flag:"tpid,T" arg:"PID" min:"1" bpf:"targ_tpid" help:"only signals for this process or thread, with -k also calls that fail or send no signal, if their arguments name it"`
	Names  bool     `flag:"name,n" help:"show names of signals instead of numbers"`
	Time   bool     `flag:"timestamp,t" help:"no effect, for compatibility with BCC: the time is always shown"`
}

// target mirrors struct signalled.
type signalled struct {
	PID, TID, Count, Sig uint32
	Comm                 value.Comm
}

type event struct {
	value.Task
	Target signalled
	Code   int32
	Ret    int32
	Arg    int32
	NR     uint32
	ABI    uint32
	Result uint8
	Group  uint8
	Kernel bool `json:"from_kernel" col:"KERNEL,width=6" help:"whether the kernel sent the signal by itself: for a fault, a timer, the exit of a child and so on"`
	_      uint8
}

type row struct {
	event
	Sig        int32         `json:"sig" col:"SIG,width=3,right" help:"number of the signal; 0 for a call that only checks the target; with -k as in the call, also if it is no signal"`
	Signal     value.Signal  `json:"signal" col:"SIG,width=10" help:"name of the signal; absent for number 0"`
	TargetPID  value.Count   `json:"target_pid" col:"TPID,width=7" help:"process that gets the signal, in the initial PID namespace; with -k the first one, absent if the call generated no signal"`
	TargetTID  value.Count   `json:"target_tid" col:"TTID,width=7" help:"thread for which the signal was generated; for a signal to a process, usually its thread-group leader; absent with target_pid"`
	TargetComm value.Name    `json:"target_comm" col:"TCOMM,width=16" help:"name of that thread; absent with target_pid"`
	ToProcess  value.Flag    `json:"to_process" col:"PROC,width=4" help:"whether the signal is for the process, instead of a thread; absent with -k"`
	Code       value.Integer `json:"si_code" col:"CODE,width=4,right" help:"si_code of the signal as in sigaction(2): 0 (SI_USER) for kill, -6 (SI_TKILL) for tgkill, 128 (SI_KERNEL) for the kernel; absent with -k"`
	Result     string        `json:"result" col:"RESULT,width=15" help:"delivered, ignored, already_pending, overflow_fail (the queue of signals was full) or lose_info (delivered, but without si_code and sender because the queue was full); absent with -k"`
	Syscall    string        `json:"syscall" col:"SYSCALL,width=17" help:"with -k: the system call"`
	Arg        value.Integer `json:"target" col:"TPID,width=7" help:"with -k: the target as in the call, in the PID namespace of the caller: a PID, for tkill a TID, for kill also 0 or a negative number for several processes, for pidfd_send_signal the file descriptor"`
	Targets    value.Count   `json:"targets" col:"TARGETS,width=7,right" help:"with -k: number of signals that the call sent, to several processes if the target is a process group; without those that did not fit in the queue of a process (EAGAIN)"`
	Ret        value.Integer `json:"ret" col:"RESULT,width=6,right" help:"with -k: return value of the call: 0, or -errno"`
	Error      value.Error   `json:"error" col:"ERROR,width=8" help:"with -k: name of the errno of a failed call"`

	calls *value.Syscalls
}

// Decode fills in the columns of a signal or of a call.
func (r *row) Decode(_ []byte) error {
	e := &r.event
	isCall := bpfResult(e.Result) == bpfResultNO_RESULT
	hasTarget := e.Target.TID != 0
	r.Sig, r.Signal = int32(e.Target.Sig), value.Signal(e.Target.Sig)
	r.TargetPID = value.Count{N: uint64(e.Target.PID), Given: hasTarget}
	r.TargetTID = value.Count{N: uint64(e.Target.TID), Given: hasTarget}
	r.TargetComm = value.NameOf(e.Target.Comm[:])
	r.ToProcess = value.Flag{Set: e.Group != 0, Given: !isCall}
	r.Code = value.Integer{N: int64(e.Code), Given: !isCall}
	r.Result = resultName(bpfResult(e.Result))
	r.Arg = value.Integer{N: int64(e.Arg), Given: isCall}
	r.Targets = value.Count{N: uint64(e.Target.Count), Given: isCall}
	r.Ret = value.Integer{N: int64(e.Ret), Given: isCall}
	r.Syscall, r.Error = "", value.Error(e.Ret)
	if isCall {
		r.Syscall = r.calls.Name(value.ABI(e.ABI), e.NR)
	}
	return nil
}

func resultName(r bpfResult) string {
	switch r {
	case bpfResultDELIVERED:
		return "delivered"
	case bpfResultIGNORED:
		return "ignored"
	case bpfResultALREADY_PENDING:
		return "already_pending"
	case bpfResultOVERFLOW_FAIL:
		return "overflow_fail"
	case bpfResultLOSE_INFO:
		return "lose_info"
	}
	return ""
}

// Tool is the definition of sigsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "sigsnoop",
	Also:     []tool.Alias{{Name: "killsnoop", Args: []string{"--kill"}}},
	Category: "process",
	Summary:  "Trace signals and kill() system calls: sender, target and result",
	Description: `Shows each signal that is generated: who sent it, which process gets it, and whether it was delivered. The signals of the kernel are included: for faults (SIGSEGV), the exit of a child (SIGCHLD), writes to a closed pipe (SIGPIPE), the terminal (SIGINT), timers and the OOM killer (SIGKILL). Signals are traced at signal:signal_generate. If a process ends, the kernel kills its other threads without signals, so these are not shown.

The task columns describe the sender. For a signal of the kernel that is the current task: for a fault the target itself, for SIGCHLD the child, for a key of a terminal usually a kernel thread. Timers and asynchronous I/O (SIGALRM, SIGIO, SIGURG, POSIX timers) send signals from interrupts, whose current task has nothing to do with the signal: pid is then 0, uid is 4294967295, comm is empty, and the row is omitted if the task filter is used.

With -k, or as killsnoop, the tool shows the calls that send signals, when they return: kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo and pidfd_send_signal of 64-bit and 32-bit tasks, also failed ones. TPID is then the target as in the call; target_pid and TCOMM are those of the process that got the signal, the first one of a process group. They are taken from the signals that the call generates, so they are absent if it failed or only checked the target (signal 0). They are present with EAGAIN, if the queue of that process was full.

-T selects calls by the processes that they mean, in any PID namespace: the process itself, its process group (kill with 0 or a negative number; of a group that gets no signal, the first 64 members are compared), all processes (-1), or the process of a pidfd.`,
	Peers: []string{
		"-s takes names too, and the real-time signals; -T (BCC killsnoop) also selects signals. BCC compares it with the argument of the call, so it misses process groups, pidfds and other PID namespaces.",
		"RESULT of a signal is the result of its generation; libbpf-tools shows si_errno, which is 0. -x shows signals whose result is not delivered.",
		"TPID is the process; libbpf-tools shows the thread for which the signal was generated (target_tid).",
		"The sender of a signal from an interrupt is unknown; libbpf-tools shows the interrupted task.",
		"killsnoop of the peers traces kill, tkill and tgkill, of 64-bit tasks; TPID of tgkill is here the process.",
	},
	Overhead: "With -k, the program at the end of system calls took 84 ns per call, of which about 20 are the measurement (1.7 million calls on a busy machine, --stats). Without -k, only signals cost time.",
	Examples: []string{
		"sigsnoop                          # all signals",
		"sigsnoop -n -s KILL,TERM          # who ends processes",
		"sigsnoop --filter 'from_kernel'   # signals of the kernel",
		"sigsnoop -k -x                    # failed kill calls",
		"sigsnoop -k -s 9 -T 1234          # who tries to kill a process",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	var signals uint64
	var zero bool
	for _, s := range o.Signal {
		switch n, err := value.ParseSignal(s); {
		case err != nil:
			return nil, fmt.Errorf("--signal: %w", err)
		case n == 0 && !o.Kill:
			return nil, errors.New("--signal 0: it is no signal, only an argument of calls: use it with --kill")
		case n == 0:
			zero = true
		default:
			signals |= 1 << (n - 1)
		}
	}
	sig := "sig"
	if o.Names {
		sig = "signal"
	}
	e := &source.Events[row]{
		Plan:        tool.Plan{Variables: map[string]any{"targ_signals": signals, "targ_signal_0": zero}, Without: []string{"kill"}, RowNoun: "signal"},
		Columns:     []string{"time", "pid", "comm", sig, "target_pid", "target_comm", "result"},
		BufferBytes: 4 << 20,
		Row:         row{calls: value.NewSyscalls()},
	}
	if o.Kill {
		e.Without, e.RowNoun = []string{"signal"}, "call"
		e.Columns = []string{"time", "pid", "comm", sig, "target", "target_comm", "ret"}
	}
	return e, nil
}
