// Package gethostlatency traces host name lookups through libc.
package gethostlatency

import (
	"fmt"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh gethostlatency.bpf.c -type function

type options struct {
	Libc   string `flag:"libc,l" arg:"PATH" help:"only lookups by this libc, or by this statically linked program; with --pid an absolute path is first looked up below the root of the process"`
	Failed bool   `flag:"failed,x" bpf:"targ_failed" help:"only failed lookups"`
}

type event struct {
	value.Task
	Latency    value.Nanoseconds `json:"delta_ns" col:"LATms,width=10,right" help:"time from entry to return of the function (CLOCK_BOOTTIME)" btf:"delta_ns"`
	Addr       addr
	Ret        int32 `json:"ret" col:"RET,width=4,right" help:"return value of the function, 0 for functions that return a pointer"`
	HErrno     int32 `btf:"h_errno"`
	HostLen    uint16
	ServiceLen uint16
	Addrs      uint16   `json:"addrs" col:"ADDRS,width=5,right" help:"number of addresses found in the first 64 entries of the answer"`
	Function   function `json:"function" col:"FUNCTION,width=16" help:"libc function that was called"`
	Found      bool     `json:"found" col:"FOUND,width=5" help:"whether the lookup succeeded"`
}

type row struct {
	event
	First   foundAddr   `json:"addr" col:"ADDR,width=25" help:"first address found"`
	Host    value.Bytes `json:"host" col:"HOST,width=30" help:"requested name; absent if there is none, such as for a lookup of a service only"`
	Service value.Bytes `json:"service" col:"SERVICE,width=10" help:"service name or number given to getaddrinfo"`
	Error   string      `json:"error" col:"ERROR,width=16" help:"reason of a failure: EAI_... of getaddrinfo; of the other functions the name of h_errno or errno; FAILED if libc gives no reason"`
}

// Tool is the definition of gethostlatency.
var Tool = tool.Define(tool.Spec{
	Name:     "gethostlatency",
	Category: "network",
	Summary:  "DNS lookup latency: trace getaddrinfo and gethostbyname calls",
	Description: `Shows each call of getaddrinfo(3), gethostbyname(3), gethostbyname2(3) and their _r variants when it returns: the host name, the first address found or the error, and the latency seen by the caller.

The functions are traced in every libc (glibc and musl) that a process has mapped, including those in containers and those whose file was deleted by an upgrade. A musl that is installed in /lib or /usr/lib/*-linux-musl is traced from the start, even if no process has mapped it. If another libc is mapped later, such as in a new container, the tool attaches to it within milliseconds; lookups before that are missed. With --pid the executable is traced too, because it may have libc statically linked.

` + tool.ReturnsManual + ` All functions of glibc 2.36 and musl 1.2.3 are observed without --uretprobes. Calls that did not return are counted as no_return in the summary: those left by the cancellation of a thread, and those still running at the end. Returns of calls whose entry was not observed, such as lookups in progress when the tool started, are counted as unseen_calls, but not where a uretprobe is used, or where a function ends with return instructions of another one.

Programs that resolve names without libc are not traced: Go programs without cgo, programs that use the socket of systemd-resolved directly, and 32-bit programs. A call within another call for the same name is not shown, nor is a call that never returns.`,
	Peers: []string{
		"The libc of every process is traced; libbpf-tools traces one: that given with -l, or that of the tool itself.",
		"gethostbyname_r and gethostbyname2_r are traced; the peers do not trace them.",
		"LATms has two decimals in text; JSON has nanoseconds.",
	},
	Examples: []string{
		"gethostlatency                          # all lookups",
		"gethostlatency -x --columns +error      # failed lookups, with the reason",
		"gethostlatency -p 1234 --columns +addr  # lookups of one process, with the address found",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	files := binary.Files{Names: binary.Libc(), Installed: binary.InstalledMusl()}
	if o.Libc != "" {
		files.Paths = []string{o.Libc}
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Files: map[string]binary.Files{"libc": files}},
		Columns:     []string{"time", "pid", "comm", "delta_ns", "host"},
		BufferBytes: 1 << 20,
	}, nil
}

// Decode reads the names, which follow the event.
func (r *row) Decode(tail []byte) error {
	if int(r.HostLen)+int(r.ServiceLen) > len(tail) {
		return fmt.Errorf("tail has %d bytes, want %d and %d of names", len(tail), r.HostLen, r.ServiceLen)
	}
	r.Host = name(tail[:r.HostLen])
	r.Service = name(tail[r.HostLen:][:r.ServiceLen])
	r.Error = r.reason()
	r.First = foundAddr{value.Addr(r.Addr), r.Addrs == 0}
	return nil
}

// name returns b without its NUL byte, or nil if b is empty.
func name(b []byte) value.Bytes {
	if len(b) == 0 {
		return nil
	}
	return b[:len(b)-1]
}
