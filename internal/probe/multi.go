package probe

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/code"
)

// targetWithID is a target with its ID: the result of target_id() for it.
type targetWithID struct {
	Target
	id uint64
	// offsets are the attach points in File. If it is nil, the attach point is Offset.
	offsets []uint64
}

func (t *targetWithID) attachOffsets() []uint64 {
	if t.offsets == nil {
		return []uint64{t.Offset}
	}
	return t.offsets
}

// attachMulti attaches a program to the targets with one link. If that fails, it bisects the
// targets: it attaches the others with several links, and returns those that failed.
func (o *Objects) attachMulti(
	spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, targets []targetWithID,
) (links []link.Link, failed []targetError) {
	if o.isStopped() {
		return nil, failAll(targets, ErrStopped)
	}
	l, err := linkMulti(spec, prog, f, targets)
	switch {
	case err == nil:
		return []link.Link{l}, nil
	case len(targets) == 1, errors.Is(err, ebpf.ErrNotSupported), isDenied(err):
		return nil, failAll(targets, fmt.Errorf("attach %s: %w", spec.SectionName, err))
	}
	half := len(targets) / 2
	for _, part := range [][]targetWithID{targets[:half], targets[half:]} {
		partLinks, partFailed := o.attachMulti(spec, prog, f, part)
		links, failed = append(links, partLinks...), append(failed, partFailed...)
	}
	return links, failed
}

func linkMulti(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, targets []targetWithID) (link.Link, error) {
	if spec.AttachType == ebpf.AttachTraceKprobeMulti {
		return linkKprobes(spec, prog, targets)
	}
	return linkUprobes(spec, prog, f, targets)
}

// linkKprobes attaches to kernel functions by address, because several functions can have the same
// name, or by name if the kernel hides addresses (kptr_restrict).
func linkKprobes(spec *ebpf.ProgramSpec, prog *ebpf.Program, targets []targetWithID) (link.Link, error) {
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
func linkUprobes(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, targets []targetWithID) (link.Link, error) {
	ex, err := link.OpenExecutable(targets[0].File.Name())
	if err != nil {
		return nil, err
	}
	var o link.UprobeMultiOptions
	hasSemaphores := false
	for _, t := range targets {
		for _, offset := range t.attachOffsets() {
			o.Addresses = append(o.Addresses, offset)
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

// byFile groups user functions by file, because a link has a single file.
func byFile(targets []targetWithID) [][]targetWithID {
	index := map[*binary.File]int{}
	var parts [][]targetWithID
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

// byDoubt separates the entries that the kernel may refuse from the others of a file, and sorts them by
// the reason. A link with a single refused entry fails, and the kernel first attaches, and then detaches,
// all before it: bisecting thousands takes seconds.
func byDoubt(parts [][]targetWithID) [][]targetWithID {
	var out [][]targetWithID
	for _, part := range parts {
		doubt := map[uint64]string{}
		for _, t := range part {
			if t.File == nil || t.offsets != nil || runtime.GOARCH != "amd64" || len(part) == 1 {
				continue
			}
			if text, err := t.File.ReadCode(t.Offset); err == nil {
				doubt[t.id] = code.Doubt(text)
			}
		}
		var usual, others []targetWithID
		for _, t := range part {
			if doubt[t.id] == "" {
				usual = append(usual, t)
			} else {
				others = append(others, t)
			}
		}
		slices.SortStableFunc(others, func(a, b targetWithID) int { return strings.Compare(doubt[a.id], doubt[b.id]) })
		for _, p := range [][]targetWithID{usual, others} {
			if len(p) > 0 {
				out = append(out, p)
			}
		}
	}
	return out
}
