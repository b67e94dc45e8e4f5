package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/corescope/corescope/internal/binary"
)

// numbered is a target and what target_id() returns for it.
type numbered struct {
	Target
	id uint64
	// at are the attach points in File, if they are not at Offset.
	at []uint64
}

func (t *numbered) points() []uint64 {
	if t.at == nil {
		return []uint64{t.Offset}
	}
	return t.at
}

// attachMulti attaches a program to the targets, by one link where that goes. Where it
// does not, for the sake of some of them, it looks for these by halves and returns them.
func attachMulti(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, targets []numbered) (links []link.Link, refused []refusal) {
	l, err := linkMulti(spec, prog, f, targets)
	switch {
	case err == nil:
		return []link.Link{l}, nil
	case len(targets) == 1, errors.Is(err, ebpf.ErrNotSupported), isDenied(err):
		return nil, refuse(targets, fmt.Errorf("attach %s: %w", spec.SectionName, err))
	}
	half := len(targets) / 2
	for _, part := range [][]numbered{targets[:half], targets[half:]} {
		l, r := attachMulti(spec, prog, f, part)
		links, refused = append(links, l...), append(refused, r...)
	}
	return links, refused
}

func linkMulti(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, targets []numbered) (link.Link, error) {
	if spec.AttachType == ebpf.AttachTraceKprobeMulti {
		return linkKprobes(spec, prog, targets)
	}
	return linkUprobes(spec, prog, f, targets)
}

// linkKprobes goes by addresses, as names need not be the only ones of their kind, unless
// the kernel hides them.
func linkKprobes(spec *ebpf.ProgramSpec, prog *ebpf.Program, targets []numbered) (link.Link, error) {
	var o link.KprobeMultiOptions
	for _, t := range targets {
		o.Cookies = append(o.Cookies, t.id)
		if targets[0].Address == 0 {
			o.Symbols = append(o.Symbols, t.Name)
		} else {
			o.Addresses = append(o.Addresses, uintptr(t.Address))
		}
	}
	if isReturn(spec) {
		return link.KretprobeMulti(prog, o)
	}
	return link.KprobeMulti(prog, o)
}

// linkUprobes attaches to functions of one file.
func linkUprobes(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, targets []numbered) (link.Link, error) {
	ex, err := link.OpenExecutable(targets[0].File.Name())
	if err != nil {
		return nil, err
	}
	var o link.UprobeMultiOptions
	hasSemaphores := false
	for _, t := range targets {
		for _, at := range t.points() {
			o.Addresses = append(o.Addresses, at)
			o.Cookies = append(o.Cookies, t.id)
			o.RefCtrOffsets = append(o.RefCtrOffsets, t.Semaphore)
		}
		hasSemaphores = hasSemaphores || t.Semaphore != 0
	}
	if !hasSemaphores {
		o.RefCtrOffsets = nil
	}
	if isReturn(spec) && f == afterReturn {
		return ex.UretprobeMulti(nil, prog, &o)
	}
	return ex.UprobeMulti(nil, prog, &o)
}

// byFile parts user functions by the file that they are in, as no link has several.
func byFile(targets []numbered) [][]numbered {
	index := map[*binary.File]int{}
	var parts [][]numbered
	for _, t := range targets {
		i, ok := index[t.File]
		if !ok {
			i = len(parts)
			index[t.File] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], t)
	}
	return parts
}
