// Package mptcpify makes programs use MPTCP instead of TCP.
package mptcpify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh mptcpify.bpf.c

type options struct {
	Targets []string `flag:"targets,t" arg:"NAME" bpf:"targ_names" help:"only threads with one of these names, separated by commas; all by default"`
}

type event struct {
	value.Task
	Ret    int32
	Family uint32 `json:"family" col:"IP,width=2" help:"IP version of the socket: 4 or 6"`
	NetNS  uint32 `json:"netns" col:"NETNS,width=10" help:"network namespace of the thread: inode number of /proc/PID/ns/net"`
	_      uint32
}

type row struct {
	event
	FD    value.Integer `json:"fd" col:"FD,width=4,right" help:"file descriptor of the MPTCP socket; absent if the call failed"`
	Error value.Error   `json:"error" col:"ERROR,width=15" help:"name of the errno of a failed call; ENOPROTOOPT and EPROTONOSUPPORT if the network namespace does not permit MPTCP (net.mptcp.enabled)"`
}

func (r *row) Decode([]byte) error {
	r.FD, r.Error = value.Integer{N: int64(r.Ret), Given: r.Ret >= 0}, value.Error(r.Ret)
	return nil
}

// Tool is the definition of mptcpify.
var Tool = tool.Define(tool.Spec{
	Name:     "mptcpify",
	Category: "network",
	Summary:  "Make programs use MPTCP (Multipath TCP): their new TCP sockets become MPTCP sockets",
	Description: `Changes the system while it runs: each TCP socket that the selected threads create becomes an MPTCP socket, as if they had called socket(2) with IPPROTO_MPTCP. Programs need not be changed or restarted. Without --targets or a task filter this applies to all threads of the machine. A message states that first.

A socket is changed if its family is AF_INET or AF_INET6, its type SOCK_STREAM and its protocol 0 or IPPROTO_TCP, in calls of all ABIs. Each changed call has a row when it returns. Sockets of io_uring (IORING_OP_SOCKET) and of the kernel itself are not changed: they do not pass the hook, update_socket_protocol.

An MPTCP socket connects to a peer without MPTCP as TCP does. When the tool ends, also if it is killed, new sockets are TCP sockets again; sockets that exist keep their protocol until they are closed.

In a network namespace that does not permit MPTCP (sysctl net.mptcp.enabled), a changed call fails. After the first failure the tool leaves the sockets of that namespace TCP sockets, and counts them (left_tcp). It does not start if its own namespace does not permit MPTCP.

The hook needs Linux 6.6 with CONFIG_MPTCP, and BPF trampolines.`,
	Peers: []string{
		"Each changed socket has a row; BCC's mptcpify shows nothing.",
		"The task filter (--pid, --cgroup, --container and so on) limits which threads are changed, in addition to -t. BCC has only -t.",
		"A name of -t is compared as a whole, up to the 15 bytes that the kernel stores.",
	},
	Examples: []string{
		"mptcpify -t curl,iperf3   # MPTCP for new sockets of curl and iperf3, until Ctrl-C",
		"mptcpify --container web --duration 10m  # for one container, for ten minutes",
		"mptcpify -p 1234 --columns +netns,error  # for one process, with failures",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	whose := "all threads"
	if len(o.Targets) > 0 {
		whose = "threads named " + strings.Join(o.Targets, ", ")
	}
	return &source.Events[row]{
		BufferBytes: 1 << 20,
		Plan: tool.Plan{
			Variables: map[string]any{"targ_nr_names": uint32(len(o.Targets))},
			Resolve: func(p *tool.Plan, _ *tool.Kernel) error {
				p.Note("this changes the system until it ends: new TCP sockets of " + whose + " (as far as the task filter selects them) become MPTCP sockets")
				return checkEnabled("/proc/sys/net/mptcp/enabled")
			},
			Hints: map[string]string{"left_tcp": "sockets were left TCP sockets, because their network namespace does not permit MPTCP (net.mptcp.enabled)"},
		},
		Columns: []string{"time", "pid", "comm", "family", "fd", "error"},
	}, nil
}

// checkEnabled returns an error if the network namespace of corescope does not permit MPTCP. A kernel
// without MPTCP has no such file; there the hook is refused.
func checkEnabled(path string) error {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read net.mptcp.enabled: %w", err)
	case strings.TrimSpace(string(text)) == "0":
		return errors.New("this network namespace does not permit MPTCP: sysctl net.mptcp.enabled=1")
	}
	return nil
}
