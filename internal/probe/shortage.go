package probe

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// shortage returns the errno if an attempt failed because file descriptors or memory ran out,
// otherwise nil. Such an error says nothing about the kernel's features, so no fallback may be
// tried.
func shortage(err error) error {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, errno) {
			return errno
		}
	}
	return nil
}

// spareDescriptors is the number of descriptors that a run opens in addition to those of its
// object.
const spareDescriptors = 16

// checkDescriptors returns an error if the limit of open files is too low for the object. It is
// called before anything is loaded, because the library misinterprets EMFILE as a missing feature
// of the kernel.
func checkDescriptors(spec *ebpf.CollectionSpec, o Options) error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("count descriptors: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read RLIMIT_NOFILE: %w", err)
	}
	if need := len(open) + descriptors(spec, o); limit.Cur < uint64(need) {
		return fmt.Errorf("load object: %w: it needs %d, and %d are allowed", unix.EMFILE, need, limit.Cur)
	}
	return nil
}

// returnDescriptors is the number of additional descriptors for a program at returns of user
// functions: it is loaded in up to two more forms, and without uprobe_multi it is attached to each
// return instruction separately.
const returnDescriptors = 8

// descriptors returns the number of descriptors that the object needs: one for each map, and while
// a program is loaded one more for each map that it uses; one for each attached program and one for
// its link; and one for each perf buffer.
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
