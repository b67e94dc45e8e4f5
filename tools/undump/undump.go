// Package undump shows data that processes receive from Unix sockets.
package undump

import (
	"fmt"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh undump.bpf.c

type options struct {
	Max uint32 `flag:"max-buffer-size" arg:"BYTES" max:"4096" bpf:"targ_max_bytes" help:"show at most this number of bytes of the data of each call"`
}

type event struct {
	value.Task
	Bytes       uint64 `json:"bytes" col:"SIZE,width=6,right" help:"bytes received: result of the call, or size of the message with recvmmsg"`
	SocketInode uint64 `json:"socket_inode" col:"SOCKINODE,width=9,right" help:"inode number of the socket, as in /proc/PID/fd"`
	FD          uint32 `json:"fd" col:"FD,width=4,right" help:"file descriptor of the socket"`
	DataLen     uint32
}

type row struct {
	event
	Truncated bool        `json:"truncated" col:"TRUNCATED,width=9" help:"whether data has fewer bytes than were received"`
	Data      value.Bytes `json:"data" col:"DATA,width=40" help:"the data, or its beginning; text escapes control characters; absent with a maximum of 0, or if the memory could not be read"`
}

// Decode finds the data.
func (r *row) Decode(tail []byte) error {
	if int(r.DataLen) > len(tail) {
		return fmt.Errorf("decode data: tail has %d of %d bytes", len(tail), r.DataLen)
	}
	r.Data, r.Truncated = nil, uint64(r.DataLen) < r.Bytes
	if r.DataLen > 0 {
		r.Data = tail[:r.DataLen]
	}
	return nil
}

// Tool is the definition of undump.
var Tool = tool.Define(tool.Spec{
	Name:     "undump",
	Category: "network",
	Summary:  "Dump data that processes receive from Unix sockets (AF_UNIX), such as D-Bus and X11",
	Description: `Shows each call that receives data from a Unix socket (AF_UNIX), with the size and the beginning of the data. The data can be confidential.

Calls are traced when they return (raw_syscalls:sys_exit): read, readv, recv, recvfrom, recvmsg and recvmmsg, of 64-bit and 32-bit tasks. The data is read from the memory of the task; if a call has several buffers (readv, recvmsg), from the first eight. Each message of recvmmsg has a row of its own; messages from the ninth on are counted as lost (map_full). Data that a call only peeks at (MSG_PEEK) is shown each time. splice, io_uring, 32-bit pointers of x32 tasks, and recvmmsg by the system call socketcall are not traced.`,
	Peers: []string{
		"The data is that of the call. bpftrace's tool shows that of the last socket buffer, of at most 64 bytes.",
		"DATA is escaped as in all tools; JSON has the exact bytes.",
		"Neither kprobes nor fentry are needed.",
	},
	Examples: []string{
		"undump -p 1234              # data that one process receives",
		"undump --max-buffer-size 4096 --output json  # up to 4096 bytes per call",
		"undump --comm Xorg --max-buffer-size 0       # only sizes",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Max: 256}, build)

func build(*options, *tool.Env) (tool.Source, error) {
	return &source.Events[row]{Columns: []string{"time", "comm", "pid", "bytes", "data"}, BufferBytes: 16 << 20}, nil
}
