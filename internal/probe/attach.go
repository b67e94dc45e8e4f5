package probe

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attach attaches a program where its section says.
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
