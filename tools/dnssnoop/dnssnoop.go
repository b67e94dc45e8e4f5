// Package dnssnoop traces DNS queries and answers.
package dnssnoop

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh dnssnoop.bpf.c

type options struct {
	Ports ports `flag:"port,P" arg:"PORT" bpf:"targ_not_rports" help:"ports of the servers: 53 by default"`
	tcp.Family
	Timestamp bool `flag:"timestamp,t" help:"show seconds since the start"`
	Answers   bool `flag:"answers,a" help:"show the addresses and names in the answer"`
	tcp.Wide
}

// ports are those of servers.
type ports struct{ flags.Ports }

// Variable returns the bitmap of sock.bpf.h.
func (p ports) Variable() any {
	if len(p.Ports) == 0 {
		return flags.Ports{53}.Variable()
	}
	return p.Ports.Variable()
}

type event struct {
	value.Task
	Sock uint64
	value.Ends
	MessageLen    uint32
	IsSend, IsTCP bool
	_             [2]uint8
}

type row struct {
	event
	source.Elapsed
	Protocol string     `json:"protocol" col:"PROTO,width=5" help:"udp or tcp"`
	ID       uint16     `json:"id" col:"ID,width=5,right" help:"ID of the message: the same in query and answer"`
	Name     name       `json:"name" col:"NAME,width=30" help:"name of the first question in the presentation format (RFC 4343), without the last dot: a dot or backslash inside a label is \\. or \\\\, and a byte that is not printable ASCII is a backslash and three decimal digits"`
	Type     string     `json:"qtype" col:"TYPE,width=6" help:"type of the question: A, AAAA, PTR, …, or TYPE with a number"`
	RCode    rcode      `json:"rcode" col:"RCODE,width=8" help:"result in the answer: NOERROR, NXDOMAIN, SERVFAIL, REFUSED, …; absent if no answer was observed"`
	Latency  value.Span `json:"latency_ns" col:"LAT(ms),width=8,right" help:"time from the return of the system call that sent the query to the return of the one that received the answer (CLOCK_BOOTTIME); absent if one of them was not observed; text shows ms"`
	Cut      bool       `json:"truncated" col:"TC,width=5" help:"the server has truncated the answer (flag TC); clients then repeat the query over TCP"`
	Answers  list       `json:"answers" col:"ANSWERS,width=20" help:"addresses and names (CNAME, PTR) in the answer, of its first 1,024 bytes; names are as in name"`

	queries queries
	ready   []answered // answers of the last calls that have no row yet
}

// answered is an answer, with the task and the ends of its query, if that is known.
type answered struct {
	query
	latency value.Span
}

// Decode matches queries and answers. A query is a row when it is answered; see Next.
func (r *row) Decode(tail []byte) error {
	q := query{event: r.event, protocol: "udp"}
	if r.IsTCP {
		q.protocol = "tcp"
	}
	for _, b := range messages(tail[:min(len(tail), int(r.MessageLen))], r.IsTCP) {
		var ok bool
		if q.message, ok = parse(b); !ok || q.Response == r.IsSend {
			continue
		}
		if r.IsSend {
			r.queries.add(q)
		} else {
			r.ready = append(r.ready, r.queries.answer(q))
		}
	}
	if !r.showReady() {
		return source.ErrMore
	}
	return nil
}

func (r *row) showReady() bool {
	if len(r.ready) == 0 {
		return false
	}
	a := r.ready[0]
	r.ready = r.ready[1:]
	r.show(&a.query)
	r.RCode, r.Latency, r.Cut, r.Answers.List = rcode{a.RCode, true}, a.latency, a.Truncated, a.answers
	return true
}

// show sets the row to a query without an answer.
func (r *row) show(q *query) {
	r.event, r.Protocol, r.ID, r.Name, r.Type = q.event, q.protocol, q.ID, q.name, q.qtype
	r.RCode, r.Latency, r.Cut, r.Answers.List = rcode{}, value.Span{}, false, nil
}

// Next shows further answers of a call, and queries that have no answer after unansweredAfter, were
// sent again, or are open at the end.
func (r *row) Next(end bool) bool {
	if r.showReady() {
		return true
	}
	now, err := system.BootNow()
	q, ok := r.queries.next(value.Time(now), end || err != nil)
	if ok {
		r.show(&q)
	}
	return ok
}

// Tool is the definition of dnssnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "dnssnoop",
	Category: "network",
	Summary:  "Trace DNS queries and answers with name, result, latency, server and process",
	Description: `Shows each DNS query that a task sends to a server, with the result and the latency of the answer. Any client is traced: libc, the resolver of Go or of a browser, and daemons that resolve names for others, which have rows of their own for their queries to other servers. gethostlatency shows calls of libc instead, including those answered from files and caches.

A query has a row when its answer is received. A query without an answer has a row without a result after 5 seconds, when it is sent again on the same socket, or at the end of the run; rows are then later than their time. An answer to a query from before the start of the tool has a row without latency. TIME is that of the answer, or of the query if there is no answer. pid, comm and the other columns of the task are those of the task that sent the query, or received the answer if the query was not observed.

Messages are read from the memory of tasks, at the end of the system calls read, readv, recvfrom, recvmsg, recvmmsg, write, writev, sendto, sendmsg and sendmmsg on UDP and TCP sockets, also of 32-bit and x32 tasks. The program runs at the end of every system call and returns immediately for others. The server is the peer of the socket, or the address that the call contains.

The following is not traced: queries over TLS, HTTPS and QUIC, and by io_uring; answers received on a socket that is not connected if the task does not request the address of the sender; over TCP, messages that are transferred in several parts, and those that follow the first 1,024 bytes of one call; messages from the ninth on in one sendmmsg or recvmmsg, which are counted as lost (map_full). A message can be in several buffers (struct iovec). Messages in memory that cannot be read, or in more than 8 buffers, are counted as lost (unobserved).`,
	Peers: []string{
		"There is no such tool in libbpf-tools and BCC; gethostlatency traces functions of libc.",
	},
	Examples: []string{
		"dnssnoop                              # all queries",
		"dnssnoop -a -p 1234                   # one process, with the answers",
		`dnssnoop --filter 'rcode not in ["NOERROR", "NXDOMAIN"]'  # failures, and queries without an answer`,
		`dnssnoop --filter 'latency_ns > 100000000' --container web  # slower than 100 ms, of a container`,
		"dnssnoop -P 53,5353                   # with multicast DNS",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "uid": "u"},
}, options{}, build)

// bufferBytes is enough for about 30,000 messages at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Columns:     []string{"time", "pid", "comm", "raddr", "protocol", "qtype", "rcode", "latency_ns", "name"},
		Headers:     map[string]string{"raddr": "SERVER"},
		BufferBytes: bufferBytes,
		Row:         row{queries: queries{open: map[question]query{}}},
	}
	if o.Timestamp {
		e.Columns[0] = "elapsed_ns"
	}
	if o.Answers {
		e.Columns = append(e.Columns, "answers")
	}
	e.Widths = o.Widths("raddr")
	return e, nil
}

// unansweredAfter is the time after which a query is shown as unanswered: the timeout of resolvers.
const unansweredAfter = value.Time(5 * time.Second)
