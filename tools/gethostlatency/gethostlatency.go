// Package gethostlatency shows the look-ups of host names through libc.
package gethostlatency

import (
	"fmt"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh gethostlatency.bpf.c

type options struct {
	Libc   string `flag:"libc,l" arg:"PATH" help:"only look-ups by this libc, or by this program that is linked statically"`
	Failed bool   `flag:"failed,x" bpf:"targ_failed" help:"only look-ups that failed"`
}

type event struct {
	value.Task
	Latency    value.Nanoseconds `json:"delta_ns" col:"LATms,width=10,right" help:"from where the function is entered to where it returns (CLOCK_BOOTTIME)" btf:"delta_ns"`
	Addr       addr
	Ret        int32 `json:"ret" col:"RET,width=4,right" help:"what the function returned, 0 for those that return a pointer"`
	HErrno     int32 `btf:"h_errno"`
	HostLen    uint16
	ServiceLen uint16
	Addrs      uint16   `json:"addrs" col:"ADDRS,width=5,right" help:"number of addresses that were found, of 64 entries of the answer at most"`
	Function   function `json:"function" col:"FUNCTION,width=16" help:"function of libc that was called"`
	Found      bool     `json:"found" col:"FOUND,width=5" help:"there was an answer"`
}

type row struct {
	event
	First   foundAddr   `json:"addr" col:"ADDR,width=25" help:"the first address that was found"`
	Host    value.Bytes `json:"host" col:"HOST,width=30" help:"the name as it was asked for; absent where there was none, as when only a service was asked for"`
	Service value.Bytes `json:"service" col:"SERVICE,width=10" help:"the service that getaddrinfo was asked for, by name or number"`
	Error   string      `json:"error" col:"ERROR,width=16" help:"why there was no answer: EAI_... of getaddrinfo; of the other functions the name of h_errno, or of errno; FAILED where libc does not say"`
}

// Tool is gethostlatency.
var Tool = tool.Define(tool.Spec{
	Name:     "gethostlatency",
	Category: "network",
	Summary:  "Show look-ups of host names and how long they take",
	Description: `Shows each call of getaddrinfo(3), gethostbyname(3), gethostbyname2(3) and their forms that end with _r, as it returns: the name, the first address that was found or the error, and the time that the caller waited.

The functions are probed in every libc (glibc and musl) that a process has mapped: those of containers too, and those whose file was deleted by an upgrade. A libc that is mapped later, as by a new container, is probed some milliseconds after; what its first process looks up before that is not seen. With --pid also the program itself is looked into, which may have its libc linked in.

Programs that look up names by themselves are not seen: those in Go that do not use cgo, those that speak to systemd-resolved over its socket, and 32-bit programs. A call within another one for the very same name is no row, and a call that never returns is none either.`,
	Peers: []string{
		"The libc of each process is probed, where libbpf-tools probe one: that of -l, or of the tool itself.",
		"gethostbyname_r and gethostbyname2_r, which the peers do not see, are rows here.",
		"LATms has two decimals in text; JSON has nanoseconds.",
	},
	Examples: []string{
		"gethostlatency                          # every look-up",
		"gethostlatency -x --columns +error      # those that failed, and why",
		"gethostlatency -p 1234 --columns +addr  # those of one process, with what was found",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	files := binary.Files{Names: []string{"libc.so.6", "libc-2.*.so", "ld-musl-*.so.1", "libc.musl-*.so.1"}}
	if o.Libc != "" {
		files.Paths = []string{o.Libc}
	}
	return &tool.Events[row]{
		Plan:        tool.Plan{Files: map[string]binary.Files{"libc": files}},
		Columns:     []string{"time", "pid", "comm", "delta_ns", "host"},
		BufferBytes: 1 << 20,
	}, nil
}

// Decode reads the names behind the event.
func (r *row) Decode(tail []byte) error {
	if int(r.HostLen)+int(r.ServiceLen) > len(tail) {
		return fmt.Errorf("event has %d bytes of names, not %d and %d", len(tail), r.HostLen, r.ServiceLen)
	}
	r.Host = name(tail[:r.HostLen])
	r.Service = name(tail[r.HostLen:][:r.ServiceLen])
	r.Error = r.reason()
	r.First = foundAddr{value.Addr(r.Addr), r.Addrs == 0}
	return nil
}

// name is a string without its NUL, or nil.
func name(b []byte) value.Bytes {
	if len(b) == 0 {
		return nil
	}
	return b[:len(b)-1]
}
