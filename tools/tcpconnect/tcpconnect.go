// Package tcpconnect traces outgoing TCP connections.
package tcpconnect

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpconnect.bpf.c -type result

type options struct {
	Ports flags.Ports `flag:"port,P" arg:"PORT" bpf:"targ_not_rports" help:"only to these remote ports"`
	tcp.Family
	Count      bool               `flag:"count,c" help:"at the end, print the number of connects per local address, remote address and remote port"`
	Timestamp  bool               `flag:"timestamp,t" help:"show seconds since the start"`
	UID        bool               `flag:"print-uid,U" help:"show the user ID"`
	SourcePort bool               `flag:"source-port,s" help:"show the local port; with --count also group by it"`
	LPort      bool               `flag:"lport,L" help:"same as --source-port"`
	DNS        bool               `flag:"dns,d" help:"show the name that the address was looked up by, from DNS answers that tasks receive"`
	Min        flags.Milliseconds `flag:"min,m" pos:"min_ms" arg:"MS" bpf:"targ_min_ns" help:"only connects that take at least this time: milliseconds, or with a unit as 500us"`
	Latency    bool               `flag:"latency,l" help:"show the latency in milliseconds; the tool tcpconnlat"`
	tcp.Wide
}

type event struct {
	value.Task
	Duration value.Span `json:"duration_ns" col:"MS,width=9" help:"time from the SYN, or the port selection before it, to the result (CLOCK_BOOTTIME); with TCP_FASTOPEN_CONNECT from the SYN, which is sent with the first data; absent if no SYN was sent; text shows ms" btf:"duration_ns"`
	value.Ends
	Error  value.Error `json:"error" col:"ERROR,width=13" help:"name of the errno of a failed connect: ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, …"`
	Result result      `json:"result" col:"RESULT,width=9" help:"connected; failed; closed: the task closed the socket before an answer; waiting: no answer yet, at the first retransmission of the SYN or at the end of the run"`
	_      uint8
	// MessageLen is the length of a DNS answer, or 0 if the event is a connect.
	MessageLen uint16
}

type row struct {
	event
	tcp.Version
	source.Elapsed
	Name    value.Name `json:"name" col:"QUERY,width=24,extra,need=want_name" help:"name that the remote address was looked up by: from the last DNS answer with this address before the row, to this process or otherwise to any; absent if there was none since the start of the tool"`
	NameAge value.Span `json:"name_age_ns" col:"AGE_MS,width=9,right,extra,need=want_name" help:"time from that answer to this row (CLOCK_BOOTTIME); text shows ms"`

	names *names
}

// Decode computes the derived columns. DNS answers are stored, and are not rows.
func (r *row) Decode(tail []byte) error {
	if r.MessageLen > 0 {
		r.names.learn(r.PID, r.Time, tail[:min(len(tail), int(r.MessageLen))])
		return source.ErrMore
	}
	var at value.Time
	r.Name, at = r.names.find(r.PID, r.RAddr.IP())
	r.NameAge = value.Span{}
	if r.Name != "" {
		r.NameAge.Nanoseconds = value.Nanoseconds(max(r.Time, at+1) - at)
	}
	r.Family = r.RAddr.Family()
	return nil
}

// Tool is the definition of tcpconnect.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpconnect",
	Also:     []tool.Alias{{Name: "tcpconnlat", Args: []string{"--latency"}}},
	Category: "network",
	Summary:  "Trace outgoing TCP connections (connect) with result and latency",
	Description: `Shows each TCP connect, in all network namespaces, with its task, when it succeeds or fails. pid, uid, comm and cgroup are those of the task that called connect, read in the context of that task. Additional subflows of an MPTCP connection are connected by a kernel worker.

A connect without an answer is shown as waiting when its SYN is retransmitted for the first time, after about a second, and again when it completes. At the end of the run, connects that are still waiting are shown.

Connects are traced from SYN_SENT on at sock:inet_sock_set_state, by two copies of a program, because the kernel skips a program that is already running on the same CPU. Connects that fail before a SYN is sent, such as without a route, are traced at the return of the system call, by a program that runs at the end of every system call and returns immediately for other calls; those made by io_uring are missed.

With --latency, which is the tool tcpconnlat, text shows the time from the SYN to the result as LAT(ms), usually the time of one round trip. A minimum (min_ms, -m) selects slow connects. A connect that is slow because its SYN was lost then has two rows: waiting and, when it completes, connected or failed.

With --dns, DNS answers are read when tasks receive them with the system calls read, recvfrom and recvmsg from UDP port 53. Any resolver is supported: libc, the resolver of Go, or a daemon that resolves names for others. Answers are missed if they come from a cache, over TCP, TLS or HTTPS, or with recvmmsg or io_uring. Those that cannot be read, or are in more than 8 buffers, are counted as lost (unobserved). The name is probably the one that the task meant, but this is not certain: several names can share an address, and DNS servers can answer anything.

With --count, only the counts are printed, at the end. --columns selects the columns to group by.`,
	Peers: []string{
		"RESULT and ERROR are additional: libbpf-tools and BCC show connects when they begin, without their result, and none that fails before a SYN is sent.",
		"--source-port and --lport (BCC) add the same column, titled LPORT; libbpf-tools calls it SPORT.",
		"-4 and -6 select by the protocol on the wire; BCC treats an IPv6 socket that carries IPv4 as IPv6.",
		"-C, --cgroupmap, -M and --mntnsmap are those of the peers: they select by the keys of a pinned map. --cgroup and --container need no map.",
		"tcpconnlat shows the latency of failed and waiting connects too, with RESULT and ERROR after LAT(ms); with a minimum it shows none that fails before a SYN is sent. libbpf-tools and BCC measure to the arrival of the answer, and show a refused connect like a successful one.",
		"-d: BCC uses the last answer to any process, and reads it in the kernel's UDP receive function, which requires kprobes.",
	},
	Overhead: "A loopback connection has 10 state changes, for both ends together. A state change took 350 ns in both copies of the program (2,000 connections, otherwise busy CPUs). The program at the end of system calls took 65 to 78 ns per call, of which about 20 are the measurement (--stats); --dns increased it from 64 to 77 ns, with reads from a file as half of the calls.",
	Examples: []string{
		"tcpconnect                                # all connects with their result",
		"tcpconnect --latency 10                   # connects that take 10 ms or more: tcpconnlat 10",
		"tcpconnect -P 5432 --container web        # connects of a container to a database",
		"tcpconnect -c --columns comm,raddr,error  # counts by task name, remote address and error",
		`tcpconnect -d --filter 'name endsWith ".example.org"'  # by looked-up name`,
		`tcpconnect --filter 'error != "" or result == "waiting"'  # failed and unanswered connects`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "uid": "u", "cgroupmap": "C", "mntnsmap": "M"},
}, options{}, build)

// bufferBytes is enough for about 60,000 connects at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Columns:     o.columns(),
		Extra:       o.extra(),
		Headers:     map[string]string{"laddr": "SADDR", "raddr": "DADDR", "rport": "DPORT"},
		BufferBytes: bufferBytes,
		Row:         row{names: newNames()},
		After:       []tool.Iterator{{Program: "open_attempts", Map: "attempts"}},
	}
	if o.Latency {
		e.Headers["duration_ns"] = "LAT(ms)"
	}
	if o.Count {
		e.Count = o.ends()
		e.Headers = map[string]string{"count": "CONNECTS"}
		e.Keep = func(r *row) bool { return r.Result != waiting }
	}
	e.Widths = o.Widths("laddr", "raddr")
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
	if o.Latency {
		cols = append(cols, "duration_ns")
	}
	return append(append(cols, "result", "error"), o.extra()...)
}
