// Package shmsnoop traces System V shared memory.
package shmsnoop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh shmsnoop.bpf.c -type shm_call

type options struct {
	Timestamp bool   `flag:"timestamp,T" help:"show seconds since the start"`
	Name      string `flag:"name,n" arg:"TEXT" help:"only tasks whose name contains this text"`
}

type event struct {
	value.Task
	Address uint64
	Size    uint64
	Ret     result `json:"ret" col:"RET,width=16,right" help:"return value: the ID for shmget, the address for shmat, otherwise 0 or a value that depends on the command; -errno of a failed call; text shows it in hexadecimal"`
	Call    uint32
	Key     int32
	ID      int32
	Flags   int32
	Command int32
	_       uint32
}

// result is a return value. Text shows errors in decimal, others in hexadecimal.
type result int64

func (v *result) AppendText(b []byte) []byte {
	if *v < 0 {
		return v.AppendJSON(b)
	}
	return strconv.AppendInt(b, int64(*v), 16)
}
func (v *result) AppendJSON(b []byte) []byte { return strconv.AppendInt(b, int64(*v), 10) }
func (v *result) Any() any                   { return int(*v) }
func (v *result) Schema() value.Schema       { return value.Schema{Type: "integer"} }

type row struct {
	event
	source.Elapsed
	Sys     value.Name    `json:"syscall" col:"SYS,width=6" help:"SHMGET, SHMAT, SHMDT or SHMCTL, also if it was called through ipc(2)"`
	Error   value.Error   `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed call"`
	ShmKey  value.Name    `json:"shm_key" col:"KEY,width=10" help:"shmget: key of the segment in hexadecimal; 0x0 is IPC_PRIVATE"`
	Bytes   value.Count   `json:"size_bytes" col:"SIZE,width=10,right" help:"shmget: requested size"`
	ShmID   value.Integer `json:"shm_id" col:"SHMID,width=10,right" help:"ID of the segment: argument of shmat and shmctl, which can be negative, or result of shmget"`
	ShmAddr value.Name    `json:"address" col:"ADDRESS,width=14" help:"address that was attached by shmat or, if it failed, requested; argument of shmdt; buffer of shmctl; absent if it is NULL"`
	Names   value.Name    `json:"flags" col:"FLAGS,width=24" help:"flags of shmget and shmat by name, 0 without any; permissions of shmget as an octal number; with SHM_HUGETLB the size of pages, such as SHM_HUGE_2MB, if the call selects one"`
	Cmd     value.Name    `json:"command" col:"COMMAND,width=10" help:"command of shmctl by name"`
	Args    value.Name    `json:"arguments" col:"ARGs,width=40" help:"arguments of the call with their names"`
}

// flag is a named bit, or a named number.
type flag struct {
	bit  int32
	name string
}

var (
	getFlags = []flag{{0o1000, "IPC_CREAT"}, {0o2000, "IPC_EXCL"}, {hugeTLB, "SHM_HUGETLB"}, {0o10000, "SHM_NORESERVE"}}
	atFlags  = []flag{{0o10000, "SHM_RDONLY"}, {0o20000, "SHM_RND"}, {0o40000, "SHM_REMAP"}, {0o100000, "SHM_EXEC"}}
	commands = []flag{
		{0, "IPC_RMID"}, {1, "IPC_SET"}, {2, "IPC_STAT"}, {3, "IPC_INFO"}, {11, "SHM_LOCK"}, {12, "SHM_UNLOCK"},
		{13, "SHM_STAT"}, {14, "SHM_INFO"}, {15, "SHM_STAT_ANY"},
	}
)

const hugeTLB = 0o4000

// ipc64 is set in commands that use the current layout of structs; C libraries add it.
const ipc64 = 0x100

// getFlagNames returns the flags of shmget. The highest six bits are the logarithm of a page size.
func getFlagNames(bits int32) value.Name {
	const shift = 26 // SHM_HUGE_SHIFT
	log := uint32(bits) >> shift
	if bits&hugeTLB == 0 || log == 0 {
		return flagNames(bits, getFlags)
	}
	n, unit := log, 0
	for ; n >= 10 && unit < 3; n -= 10 {
		unit++
	}
	size := flag{int32(log << shift), fmt.Sprintf("SHM_HUGE_%d%s", uint64(1)<<n, [...]string{"B", "KB", "MB", "GB"}[unit])}
	at := slices.IndexFunc(getFlags, func(f flag) bool { return f.bit == hugeTLB }) + 1
	return flagNames(bits, slices.Insert(slices.Clone(getFlags), at, size))
}

// flagNames returns the names of bits, then the rest as an octal number.
func flagNames(bits int32, known []flag) value.Name {
	var words []string
	for _, f := range known {
		if bits&f.bit == f.bit {
			words, bits = append(words, f.name), bits&^f.bit
		}
	}
	if bits != 0 || len(words) == 0 {
		words = append(words, fmt.Sprintf("%#o", uint32(bits)))
	}
	return value.Name(strings.Join(words, "|"))
}

func commandName(n int32) value.Name {
	for _, c := range commands {
		if c.bit == n&^ipc64 {
			return value.Name(c.name)
		}
	}
	return value.Name(strconv.Itoa(int(n)))
}

func hex(n uint64) value.Name { return value.Name(fmt.Sprintf("%#x", n)) }

// address returns an address, or nothing for NULL.
func address(n uint64) value.Name {
	if n == 0 {
		return ""
	}
	return hex(n)
}

// Decode names the call and its arguments.
func (r *row) Decode([]byte) error {
	r.Error = value.Error(min(r.Ret, 0))
	r.ShmKey, r.ShmAddr, r.Names, r.Cmd, r.Bytes, r.ShmID = "", "", "", "", value.Count{}, value.Integer{}
	var args string
	switch bpfShmCall(r.Call) {
	case bpfShmCallSHM_GET:
		r.Sys, r.ShmKey, r.Names = "SHMGET", hex(uint64(uint32(r.Key))), getFlagNames(r.Flags)
		r.Bytes = value.Count{N: r.Size, Given: true}
		if r.Ret >= 0 {
			r.ShmID = value.IntOf(int32(r.Ret))
		}
		args = fmt.Sprintf("key: %s, size: %d, shmflg: %#x (%s)", r.ShmKey, r.Size, uint32(r.Flags), r.Names)
	case bpfShmCallSHM_AT:
		r.Sys, r.ShmAddr, r.Names = "SHMAT", address(r.Address), flagNames(r.Flags, atFlags)
		r.ShmID = value.IntOf(r.ID)
		args = fmt.Sprintf("shmid: %#x, shmaddr: %s, shmflg: %#x (%s)", uint32(r.ID), hex(r.Address), uint32(r.Flags), r.Names)
		if r.Ret >= 0 {
			r.ShmAddr = hex(uint64(r.Ret))
		}
	case bpfShmCallSHM_DT:
		r.Sys, r.ShmAddr = "SHMDT", address(r.Address)
		args = fmt.Sprintf("shmaddr: %s", hex(r.Address))
	case bpfShmCallSHM_CTL:
		r.Sys, r.ShmAddr, r.Cmd = "SHMCTL", address(r.Address), commandName(r.Command)
		r.ShmID = value.IntOf(r.ID)
		args = fmt.Sprintf("shmid: %#x, cmd: %d (%s), buf: %s", uint32(r.ID), r.Command&^ipc64, r.Cmd, hex(r.Address))
	}
	r.Args = value.Name(args)
	return nil
}

// Tool is the definition of shmsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "shmsnoop",
	Category: "memory",
	Summary:  "Trace System V shared memory calls: shmget, shmat, shmdt and shmctl",
	Description: `Shows each call of shmget(2), shmat(2), shmdt(2) and shmctl(2) when it returns, of 64-bit and 32-bit tasks, with its arguments. Calls through ipc(2), which 32-bit programs use, are included.

Calls are traced by a single program at raw_syscalls:sys_exit. When a system call returns, the registers still contain its arguments, so no state is kept between entry and exit. The program runs at the end of every system call and returns immediately if it is another call.

Memory that is attached in a task is detached without a call when the task exits or executes a program.`,
	Peers: []string{
		"RET is hexadecimal, as in BCC, except for errors, which are negative decimal numbers with their name in ERROR. BCC shows them as unsigned numbers.",
		"Calls of 32-bit tasks, also through ipc(2), are shown; BCC misses them.",
		"The command of shmctl is shown by name and without the bit 0x100 that C libraries add.",
	},
	Examples: []string{
		"shmsnoop                  # all calls",
		"shmsnoop -p 1234 -T       # one process, with seconds since the start",
		"shmsnoop -n postgres      # tasks whose name contains a text",
		`shmsnoop --filter 'syscall == "SHMGET" and error != ""'  # failed shmget calls`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "duration": "d"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Columns:     []string{"pid", "comm", "syscall", "ret", "error", "arguments"},
		BufferBytes: 8 << 20,
	}
	if o.Timestamp {
		e.Columns = append([]string{"elapsed_ns"}, e.Columns...)
	}
	if o.Name != "" {
		e.Keep = func(r *row) bool { return strings.Contains(r.Comm.String(), o.Name) }
	}
	return e, nil
}
