package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// attach attaches a program to the attach point in its section name.
func (o *Objects) attach(spec *ebpf.ProgramSpec, prog *ebpf.Program) (link.Link, error) {
	l, err := o.attachTo(spec, prog)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", spec.SectionName, err)
	}
	return l, nil
}

func (o *Objects) attachTo(spec *ebpf.ProgramSpec, prog *ebpf.Program) (link.Link, error) {
	switch spec.Type {
	case ebpf.RawTracepoint:
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: spec.AttachTo, Program: prog})
	case ebpf.Tracing:
		return link.AttachTracing(link.TracingOptions{Program: prog})
	case ebpf.TracePoint:
		group, name, _ := strings.Cut(spec.AttachTo, "/")
		return link.Tracepoint(group, name, prog, nil)
	case ebpf.Kprobe:
		return o.attachKernel(spec.AttachTo, prog, strings.HasPrefix(spec.SectionName, "kretprobe/"), &link.KprobeOptions{})
	}
	return nil, fmt.Errorf("program type %s: %w", spec.Type, ebpf.ErrNotSupported)
}

// attachAt attaches a program to a target, with the ID of the target as the cookie.
func (o *Objects) attachAt(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, t targetWithID) (link.Link, error) {
	switch {
	case spec.Type == ebpf.TracePoint:
		group, name, _ := strings.Cut(t.Name, "/")
		return link.Tracepoint(group, name, prog, &link.TracepointOptions{Cookie: t.id})
	case spec.Type != ebpf.Kprobe:
		return o.attachTo(spec, prog)
	case isUser(spec):
		return attachUser(spec, prog, f, t)
	case isReturn(spec):
		return o.attachKernel(t.Name, prog, true, &link.KprobeOptions{Cookie: t.id})
	}
	return o.attachKernel(t.Name, prog, false, &link.KprobeOptions{Cookie: t.id, Offset: t.Offset})
}

// errNoKprobes is returned if the kernel has no kprobes (CONFIG_KPROBE_EVENTS).
var errNoKprobes = fmt.Errorf("kprobes: %w", ebpf.ErrNotSupported)

// attachKernel attaches a program to the entry or return of a kernel function. Without perf's type for
// kprobes (4.17) the library tries tracefs, and fails for other reasons, such as that it is not mounted.
func (o *Objects) attachKernel(function string, prog *ebpf.Program, isReturn bool, options *link.KprobeOptions) (link.Link, error) {
	if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); errors.Is(err, fs.ErrNotExist) {
		return nil, errNoKprobes
	}
	if isReturn {
		return o.attachReturn(function, prog, options)
	}
	return link.Kprobe(function, prog, options)
}

// maxActive is the number of calls of a function in progress whose returns the kernel can report. It
// allocates about 80 bytes for each.
const maxActive = 1024

// attachReturn attaches a program to the return of a kernel function. By default the kernel reports the
// returns of few calls in progress: two for each CPU and at least ten, before 6.2 (3b7ddab8a19a) without
// preemption only one for each CPU. A larger number can be set only in tracefs.
func (o *Objects) attachReturn(function string, prog *ebpf.Program, options *link.KprobeOptions) (link.Link, error) {
	larger := *options
	larger.RetprobeMaxActive = maxActive
	l, tracefsErr := link.Kretprobe(function, prog, &larger)
	if tracefsErr == nil {
		return l, nil
	}
	l, err := link.Kretprobe(function, prog, options)
	if err == nil {
		o.noteMissedReturns(fmt.Errorf("a larger number cannot be set in tracefs: %w", tracefsErr))
	}
	return l, err
}

// noteMissedReturns gives a notice once if the kernel does not count the returns that it misses (6.7).
func (o *Objects) noteMissedReturns(err error) {
	if isBefore(6, 7) {
		o.missedReturns.Do(func() {
			o.notify(fmt.Errorf("while more tasks than CPUs are in a kernel function, returns can be missed without being counted: %w", err))
		})
	}
}

// isBefore reports whether the version of the kernel is lower.
func isBefore(major, minor uint32) bool {
	version, err := features.LinuxVersionCode()
	return err == nil && version < major<<16|minor<<8
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
