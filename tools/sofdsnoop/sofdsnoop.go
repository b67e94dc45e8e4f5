// Package sofdsnoop traces file descriptors that are passed over Unix sockets.
package sofdsnoop

import (
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh sofdsnoop.bpf.c -type action

type options struct {
	Timestamp bool   `flag:"timestamp,T" help:"show seconds since the start"`
	Name      string `flag:"name,n" arg:"TEXT" help:"only tasks whose name contains this text"`
}

type event struct {
	value.Task
	SocketInode uint64 `json:"socket_inode" col:"SOCKINODE,width=9,right" help:"inode number of the socket, as in /proc/PID/fd"`
	SocketFD    uint32 `json:"socket_fd" col:"SOCKFD,width=6,right" help:"file descriptor of the socket"`
	FD          uint32 `json:"fd" col:"FD,width=5" help:"file descriptor: the sent one, or the new one in the receiving process"`
	ActionNr    uint32 `btf:"action"`
	Known       uint32
	value.File
}

type row struct {
	event
	source.Elapsed
	Action string      `json:"action" col:"ACTION,width=6" help:"SEND or RECV"`
	Socket string      `json:"socket" col:"SOCKET,width=25" help:"descriptor and inode number of the socket: FD:socket:[INODE]"`
	Path   value.Bytes `json:"path" col:"NAME,width=40" help:"path of the file, absolute in its mount namespace; socket:[INODE], pipe:[INODE] and so on for files without a directory; ... before a path that is too long; absent if the descriptor was closed before the call returned"`

	path []byte
}

// Decode computes the derived columns.
func (r *row) Decode(tail []byte) (err error) {
	r.Action = map[bpfAction]string{bpfActionACTION_SEND: "SEND", bpfActionACTION_RECEIVE: "RECV"}[bpfAction(r.ActionNr)]
	r.Socket = fmt.Sprintf("%d:socket:[%d]", r.SocketFD, r.SocketInode)
	r.Path = nil
	if r.Known != 0 {
		r.path, err = r.AppendPath(r.path[:0], tail)
		r.Path = r.path
	}
	return err
}

// Tool is the definition of sofdsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "sofdsnoop",
	Category: "network",
	Summary:  "Trace file descriptors passed over Unix sockets (SCM_RIGHTS)",
	Description: `Shows each file descriptor that a process sends or receives over a Unix socket (AF_UNIX) with a control message of type SCM_RIGHTS, with the socket and the file.

Calls are traced when they return (raw_syscalls:sys_exit): sendmsg, sendmmsg, recvmsg and recvmmsg, of 64-bit, 32-bit and x32 tasks, by a program that returns immediately for other calls. The control messages are read from the memory of the task. Failed calls are not shown. The sender and the receiver have rows of their own, whose file has the same inode and device.

If another thread closes the descriptor before the call returns, the file is unknown. Of a call with more than about 300 messages, control messages and descriptors in all, the rest is not shown, and is counted as one lost event (unobserved); a single message has at most 253 descriptors. Requests of io_uring are not traced.`,
	Peers: []string{
		"sendmmsg and recvmmsg, 32-bit and x32 tasks are traced.",
		"NAME is the whole path; BCC shows only its last name.",
		"Neither kprobes nor fentry are needed.",
	},
	Examples: []string{
		"sofdsnoop                    # all descriptors",
		"sofdsnoop -T -p 1234         # of one process, with the time",
		"sofdsnoop --filter 'path contains \"/dev/shm\"'  # files in shared memory",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "duration": "d"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	cols := []string{"action", "tid", "comm", "socket", "fd", "path"}
	if o.Timestamp {
		cols = append([]string{"elapsed_ns"}, cols...)
	}
	e := &source.Events[row]{Columns: cols, BufferBytes: 8 << 20}
	if o.Name != "" {
		e.Keep = func(r *row) bool { return strings.Contains(r.Comm.String(), o.Name) }
	}
	return e, nil
}
