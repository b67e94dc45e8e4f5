// Package ttysnoop traces what is written to terminals.
package ttysnoop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh ttysnoop.bpf.c

type options struct {
	Device  string `pos:"device" help:"terminal: a path such as /dev/pts/2 or /dev/tty1, or the number of a pseudo terminal; all if absent, except for the one of this tool"`
	NoClear bool   `flag:"noclear,C" help:"no effect, for compatibility with BCC: the screen is never cleared"`
	Size    uint32 `flag:"datasize,s" arg:"BYTES" min:"1" max:"4096" bpf:"targ_size" help:"bytes of a row at most"`
	Parts   uint32 `flag:"datacount,c" arg:"N" min:"1" max:"64" bpf:"targ_parts" help:"rows of a write at most, of which each buffer of writev(2) takes one more"`
}

const nameLen = 64

type event struct {
	value.Task
	Bytes  uint64 `json:"bytes" col:"BYTES,width=6,right" help:"bytes that the call wrote"`
	Offset uint64 `json:"offset" col:"OFFSET,width=6,right" help:"position of data in what the call wrote: 0 for its first row"`
	Major  uint32
	Minor  uint32
	Len    uint32
	NR     uint32
	ABI    uint32
	_      uint32
	Name   [nameLen]byte
}

type row struct {
	event
	TTY     value.Name  `json:"tty" col:"TTY,width=7" help:"name of the terminal below /dev: pts/2, tty1, ttyS0"`
	Device  device      `json:"device" col:"DEVICE,width=7" help:"device number of the terminal, major:minor"`
	Syscall string      `json:"syscall" col:"SYSCALL,width=8" help:"name of the system call"`
	Missing uint64      `json:"missing_bytes" col:"MISSING,width=7,right" help:"bytes of the call that no row shows: beyond --datasize and --datacount, or not in readable user memory, as with sendfile(2); in the last row of the call, otherwise 0"`
	Data    value.Bytes `json:"data" col:"DATA,width=40" help:"bytes that were written; absent in a row that has only missing_bytes"`

	names *value.Syscalls
}

type device = value.Device

// Decode names the terminal and the call.
func (r *row) Decode(tail []byte) error {
	if int(r.Len) > len(tail) {
		return fmt.Errorf("tail has %d bytes, want %d", len(tail), r.Len)
	}
	name, _, _ := bytes.Cut(r.Name[:], []byte{0})
	r.TTY = value.Name(name)
	if n, ok := strings.CutPrefix(string(name), "pts"); ok {
		r.TTY = value.Name("pts/" + n)
	}
	r.Device = device(r.Major<<20 | r.Minor)
	r.Syscall = r.names.Name(value.ABI(r.ABI), r.NR)
	r.Data, r.Missing = nil, 0
	if r.Len > 0 {
		r.Data = value.Bytes(tail[:r.Len])
	} else {
		r.Missing = r.Bytes - r.Offset
	}
	return nil
}

// Tool is the definition of ttysnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "ttysnoop",
	Category: "security",
	Summary:  "Watch terminals: what processes write to a tty or pts, live, with the writer",
	Description: `Shows what processes write to a terminal when the system call returns, with the process and the bytes: write(2), writev(2) and their variants, of 64-bit and 32-bit tasks. This is what the user of the terminal sees, including what the terminal echoes for a shell that echoes input itself, and including secrets: use it only where you may.

Without a device, all terminals are shown, except for the terminal of this tool: its own output would be shown again, if another program such as less(1) writes it. The tool never shows its own writes. What is written to the other end of a pseudo terminal, such as keys that are typed, is not shown; neither is the echo that the kernel makes.

Text and CSV show bytes that are not printable as escapes, so that nothing that another process writes can control your terminal. JSON has the exact bytes in data, and in data_base64 if they are not UTF-8.

A write of more bytes than a row can show has several rows, with increasing offset. If rows do not show all bytes, the last one has the number of the others in missing_bytes and no data. That is so for sendfile(2) and splice(2), whose data is not in memory of the task. Requests of io_uring are no system calls and are not traced.`,
	Peers: []string{
		"Each write is a row with its process, with escapes; BCC writes the bytes to the terminal. To write them unchanged to a file: ttysnoop --output json 2 | jq -j .data.",
		"-s is up to 4096 bytes, by default 4096 (BCC: 256). What is not shown is counted in missing_bytes.",
		"Neither fentry nor kprobes are needed. BCC traces the function tty_write, which io_uring calls too.",
		"Writes to a terminal through /dev/tty and /dev/console are shown; BCC compares the inode.",
	},
	Examples: []string{
		"ttysnoop 2                        # what appears on /dev/pts/2",
		"ttysnoop                          # all other terminals",
		"ttysnoop /dev/ttyS0 --columns time,comm,data  # a serial console",
		"ttysnoop --comm sudo              # what sudo asks",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Size: 4096, Parts: 16}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	vars := map[string]any{"targ_self": uint32(os.Getpid())}
	if o.Device != "" {
		dev, err := o.device()
		if err != nil {
			return nil, err
		}
		vars["targ_dev"] = uint32(dev)
	} else {
		vars["targ_not_dev"] = ownTerminal()
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Variables: vars, RowNoun: "write"},
		Columns:     []string{"time", "tty", "pid", "comm", "bytes", "data"},
		BufferBytes: 8 << 20,
		Row:         row{names: value.NewSyscalls()},
	}, nil
}

func (o *options) device() (device, error) {
	path := o.Device
	if _, err := strconv.ParseUint(path, 10, 32); err == nil {
		path = filepath.Join("/dev/pts", path)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("device %s: %w: give the path of a terminal, such as /dev/pts/2, or its number below /dev/pts", path, err)
	}
	major, minor := unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, fmt.Errorf("device %s: it is no character device", path)
	}
	if major == 5 && minor == 0 {
		return 0, fmt.Errorf("device %s: it is a different terminal for each process: give the name that tty(1) prints there", path)
	}
	drivers, err := os.ReadFile("/proc/tty/drivers")
	if err == nil && !isTerminal(string(drivers), major, minor) {
		return 0, fmt.Errorf("device %s: it is no terminal, or the other end of one (/proc/tty/drivers): give the path of a terminal, such as /dev/pts/2", path)
	}
	return device(major<<20 | minor), nil
}

// isTerminal reports whether programs write to a terminal through the device. The drivers have lines
// such as "pty_slave /dev/pts 136 0-1048575 pty:slave". What is written to a master (also /dev/ptmx)
// is the input of a terminal.
func isTerminal(drivers string, major, minor uint32) bool {
	for line := range strings.Lines(drivers) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != strconv.FormatUint(uint64(major), 10) {
			continue
		}
		first, last, ok := strings.Cut(f[3], "-")
		if !ok {
			last = first
		}
		from, _ := strconv.ParseUint(first, 10, 32)
		to, _ := strconv.ParseUint(last, 10, 32)
		if uint64(minor) >= from && uint64(minor) <= to {
			return f[len(f)-1] != "pty:master" && f[1] != "/dev/ptmx"
		}
	}
	return false
}

// ownTerminal returns the device number of the controlling terminal, or 0: field 7 of stat.
func ownTerminal() uint32 {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 5 {
		return 0
	}
	nr, err := strconv.ParseInt(fields[4], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(nr)>>8&0xfff<<20 | uint32(nr)&0xff | uint32(nr)>>12&0xfff00
}
