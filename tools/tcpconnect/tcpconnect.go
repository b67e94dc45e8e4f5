// Package tcpconnect shows the TCP connections that tasks make, or fail to make.
package tcpconnect

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpconnect.bpf.c

type options struct {
	Ports flags.Ports `flag:"port,P" arg:"PORT" bpf:"targ_not_rports" help:"only to these remote ports"`
	tool.Family
	Count      bool `flag:"count,c" help:"at the end, count the connects that are alike: those from one address to another and its port"`
	Timestamp  bool `flag:"timestamp,t" help:"show the seconds since the start"`
	UID        bool `flag:"print-uid,U" help:"show the user id"`
	SourcePort bool `flag:"source-port,s" help:"show the local port, and count by it too"`
	LPort      bool `flag:"lport,L" help:"same as --source-port"`
	DNS        bool `flag:"dns,d" help:"show the name that the address was looked up by, from the answers of DNS that tasks get"`
	Wide       bool `flag:"wide,w" help:"make room for IPv6 addresses"`
}

type event struct {
	value.Task
	Duration value.Span `json:"duration_ns" col:"MS,width=9" help:"time from the SYN, or the choice of a port before it, to the result (CLOCK_BOOTTIME); absent where no SYN was sent; text shows ms" btf:"duration_ns"`
	value.Ends
	Error  value.Error `json:"error" col:"ERROR,width=13" help:"name of the errno of a connect that failed: ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, …"`
	Result result      `json:"result" col:"RESULT,width=9" help:"connected; failed; closed: the task closed the socket before there was an answer; waiting: no answer yet, when the SYN is sent again for the first time, or at the tool's end"`
	_      uint8
	// MessageLen is set where this is no connect, but an answer of DNS.
	MessageLen uint16
}

type row struct {
	event
	Family  uint8         `json:"family" col:"IP,width=2" help:"version of the Internet Protocol on the wire: 4 or 6"`
	Elapsed value.Elapsed `json:"elapsed_ns" col:"TIME(s),width=9,extra" help:"time since the tool was started (CLOCK_BOOTTIME)"`
	Name    value.Name    `json:"name" col:"QUERY,width=24,extra,need=want_name" help:"name that the remote address was looked up by: that of the last answer of DNS with it before this row, to this process or else to any; absent where there was none since the tool was started"`
	NameAge value.Span    `json:"name_age_ns" col:"AGE_MS,width=9,right,extra,need=want_name" help:"time from that answer to this row; text shows ms"`

	start value.Time
	names *names
}

// Decode fills what follows from the event.
func (r *row) Decode(tail []byte) error {
	if r.MessageLen > 0 {
		r.names.learn(r.PID, r.Time, tail[:min(len(tail), int(r.MessageLen))])
		return tool.ErrMore
	}
	var at value.Time
	r.Name, at = r.names.find(r.PID, r.RAddr.IP())
	r.NameAge = value.Span{}
	if r.Name != "" {
		r.NameAge.Nanoseconds = value.Nanoseconds(max(r.Time, at+1) - at)
	}
	r.Family = r.RAddr.Family()
	r.Elapsed = value.Elapsed(r.Time - r.start)
	return nil
}

// Tool is tcpconnect.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpconnect",
	Category: "network",
	Summary:  "Show the TCP connections that tasks make, or fail to make",
	Description: `Shows each connect of TCP, in all network namespaces, with its task, as it succeeds or fails. The pid, uid, comm and cgroup are those of the task that called connect, read in that task.

A connect that is not answered is shown as waiting when its SYN is sent again, which is after a second, and once more when it is over. At the end of the tool those that are still waiting are shown.

Connects are followed at sock:inet_sock_set_state from SYN_SENT on, by two copies of a program, as the kernel leaves one out that is running on the CPU already. Those that fail before a SYN is sent, as without a route, are seen where the system call returns, by a program that runs at the end of every system call and ends at once for the others; if io_uring makes them, they are not seen.

With --dns, answers of DNS are read where tasks get them: by the system calls read, recvfrom and recvmsg, from port 53 of UDP. So it does not matter who asks: libc, a resolver of Go's, or a daemon that looks up names for others. Not seen are answers from a cache, over TCP, TLS or HTTPS, and those that come by recvmmsg or io_uring. A name is likely to be what the task meant, no more: several names may have one address, and whoever answers decides what he says.

With --count nothing is shown before the end. --columns chooses by what is counted.`,
	Peers: []string{
		"RESULT and ERROR are added: libbpf-tools and BCC show connects as they begin, without their result, and none that fails before a SYN is sent.",
		"--source-port and --lport (BCC) add the same column, of which the title is LPORT; libbpf-tools' is SPORT.",
		"-4 and -6 go by what is on the wire; for BCC an IPv6 socket that speaks IPv4 is IPv6.",
		"-C, --cgroupmap, -M and --mntnsmap (ids in a pinned map) are --cgroup and --container.",
		"-d: BCC goes by the last answer that any process got, and waits for it in the kernel's receiving of UDP, which takes kprobes.",
	},
	Overhead: `A connection on the loopback has 10 changes of state, for both ends. Of 2,000 connections, with the CPUs of the machine busy otherwise, a change took 350 ns in both copies of the program. The program at the end of system calls took 65 to 78 ns each time, of which some 20 are the measuring (--stats); --dns made that 77 ns instead of 64, with half of the calls reads from a file.`,
	Examples: []string{
		"tcpconnect                                # connects and how they end",
		"tcpconnect -P 5432 --container web        # those of a container to a database",
		"tcpconnect -c --columns comm,raddr,error  # who connects where, and fails, how often",
		"tcpconnect -d --filter 'name endsWith \".example.org\"'  # by the name that was looked up",
		"tcpconnect --filter 'error != \"\" or result == \"waiting\"'  # what is wrong",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "uid": "u"},
}, options{}, build)

// bufferBytes holds some 60,000 connects at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	start, err := system.BootNow()
	if err != nil {
		return nil, err
	}
	e := &tool.Events[row]{
		Columns:     o.columns(),
		Extra:       o.extra(),
		Headers:     map[string]string{"laddr": "SADDR", "raddr": "DADDR", "rport": "DPORT"},
		BufferBytes: bufferBytes,
		Row:         row{start: value.Time(start), names: newNames()},
		After:       []tool.Iterator{{Program: "open_attempts", Map: "attempts"}},
	}
	if o.Count {
		e.Count = o.ends()
		e.Keep = func(r *row) bool { return r.Result != waiting }
	}
	if o.Wide {
		e.Widths = map[string]int{"laddr": 39, "raddr": 39}
	}
	return e, nil
}

func (o *options) ends() []string {
	if o.SourcePort || o.LPort {
		return []string{"laddr", "lport", "raddr", "rport"}
	}
	return []string{"laddr", "raddr", "rport"}
}

func (o *options) extra() []string {
	if o.DNS {
		return []string{"name", "name_age_ns"}
	}
	return nil
}

func (o *options) columns() []string {
	var cols []string
	if o.Timestamp {
		cols = append(cols, "elapsed_ns")
	}
	if o.UID {
		cols = append(cols, "uid")
	}
	cols = append(append(cols, "pid", "comm", "family"), o.ends()...)
	return append(append(cols, "result", "error"), o.extra()...)
}
