package probe

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// shortage returns the errno of an error that tells nothing of the kernel, which may
// well have what was asked for: this process was refused a descriptor or memory. To go
// on with another way, or without, would hide that.
func shortage(err error) error {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, errno) {
			return errno
		}
	}
	return nil
}

// spareDescriptors is room for what a run opens beside its object.
const spareDescriptors = 16

// checkDescriptors sees that there is room for the object before anything is tried: the
// library takes whatever fails for want of a descriptor for something that the kernel
// does not have.
func checkDescriptors(spec *ebpf.CollectionSpec, o Options) error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("count descriptors: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of descriptors: %w", err)
	}
	if need := len(open) + descriptors(spec, o); limit.Cur < uint64(need) {
		return fmt.Errorf("load object: %w: it needs %d, and %d are allowed", unix.EMFILE, need, limit.Cur)
	}
	return nil
}

// returnDescriptors is the number of further descriptors for a program at returns of user functions: it
// is loaded in up to two more forms, and without uprobe_multi attached to each return instruction.
const returnDescriptors = 8

// descriptors returns the number of descriptors that the object needs: while a program is loaded, one
// for each map and one more for each map that the program uses; one for each program that is attached,
// and its link; and one for each perf buffer.
func descriptors(spec *ebpf.CollectionSpec, o Options) int {
	n := spareDescriptors + 2*len(spec.Maps)
	for _, h := range Hooks(spec) {
		if slices.Contains(o.Without, h.Name) {
			continue
		}
		most := 0
		for _, v := range h.Variants {
			need := 2 * len(v.Programs)
			for _, name := range v.Programs {
				if needsForm(spec.Programs[name]) {
					need += returnDescriptors
				}
			}
			most = max(most, need)
		}
		n += most
	}
	if spec.Maps["events"] != nil && o.PerfBuffer {
		n += ebpf.MustPossibleCPU()
	}
	return n
}
