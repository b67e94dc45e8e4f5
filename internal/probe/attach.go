package probe

import (
	"fmt"
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
		if strings.HasPrefix(spec.SectionName, "kretprobe/") {
			return link.Kretprobe(spec.AttachTo, prog, nil)
		}
		return link.Kprobe(spec.AttachTo, prog, nil)
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
		return link.Kretprobe(t.Name, prog, &link.KprobeOptions{Cookie: t.id})
	}
	return link.Kprobe(t.Name, prog, &link.KprobeOptions{Cookie: t.id, Offset: t.Offset})
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
