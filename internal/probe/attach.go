package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attach attaches a program to the attach point in its section name.
func attach(spec *ebpf.ProgramSpec, prog *ebpf.Program) (link.Link, error) {
	l, err := attachTo(spec, prog)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", spec.SectionName, err)
	}
	return l, nil
}

func attachTo(spec *ebpf.ProgramSpec, prog *ebpf.Program) (link.Link, error) {
	switch spec.Type {
	case ebpf.RawTracepoint:
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: spec.AttachTo, Program: prog})
	case ebpf.Tracing:
		return link.AttachTracing(link.TracingOptions{Program: prog})
	case ebpf.TracePoint:
		group, name, _ := strings.Cut(spec.AttachTo, "/")
		return link.Tracepoint(group, name, prog, nil)
	case ebpf.Kprobe:
		return attachKernel(spec.AttachTo, prog, strings.HasPrefix(spec.SectionName, "kretprobe/"), nil)
	}
	return nil, fmt.Errorf("program type %s: %w", spec.Type, ebpf.ErrNotSupported)
}

// attachAt attaches a program to a target, with the ID of the target as the cookie.
func attachAt(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, t targetWithID) (link.Link, error) {
	switch {
	case spec.Type == ebpf.TracePoint:
		group, name, _ := strings.Cut(t.Name, "/")
		return link.Tracepoint(group, name, prog, &link.TracepointOptions{Cookie: t.id})
	case spec.Type != ebpf.Kprobe:
		return attachTo(spec, prog)
	case isUser(spec):
		return attachUser(spec, prog, f, t)
	case isReturn(spec):
		return attachKernel(t.Name, prog, true, &link.KprobeOptions{Cookie: t.id})
	}
	return attachKernel(t.Name, prog, false, &link.KprobeOptions{Cookie: t.id, Offset: t.Offset})
}

// errNoKprobes is returned if the kernel has no kprobes (CONFIG_KPROBE_EVENTS).
var errNoKprobes = fmt.Errorf("kprobes: %w", ebpf.ErrNotSupported)

// attachKernel attaches a program to the entry or return of a kernel function. Without perf's type for
// kprobes (4.17) the library tries tracefs, and fails for other reasons, such as that it is not mounted.
func attachKernel(function string, prog *ebpf.Program, isReturn bool, o *link.KprobeOptions) (link.Link, error) {
	if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); errors.Is(err, fs.ErrNotExist) {
		return nil, errNoKprobes
	}
	if isReturn {
		return link.Kretprobe(function, prog, o)
	}
	return link.Kprobe(function, prog, o)
}

func attachUser(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, t targetWithID) (link.Link, error) {
	ex, err := link.OpenExecutable(t.File.Name())
	if err != nil {
		return nil, err
	}
	o := &link.UprobeOptions{Address: t.Offset, RefCtrOffset: t.Semaphore, Cookie: t.id}
	if isReturn(spec) && f == afterReturn {
		return ex.Uretprobe("", prog, o)
	}
	return ex.Uprobe("", prog, o)
}
