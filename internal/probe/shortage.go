package probe

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// shortage returns the errno if an attempt failed because file descriptors or memory ran out,
// otherwise nil. Such an error says nothing about the kernel's features, so no fallback may be
// tried.
func shortage(err error) error {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		// ebpf 0.22 does not wrap the error of duplicating a descriptor ("can't clone map").
		if errors.Is(err, errno) || err != nil && strings.HasSuffix(err.Error(), "can't dup fd: "+errno.Error()) {
			return errno
		}
	}
	return nil
}

// spareDescriptors is the number of descriptors that a run opens in addition to those of its
// object: of the Go runtime, the poller, the reader, and files that it opens meanwhile.
const spareDescriptors = 20

// optionalDescriptors is the minimum number of descriptors that a run with user stacks can use for
// unwind tables and for files of other processes. It works with any number, but better with more.
const optionalDescriptors = 12

// checkDescriptors returns an error if the limit of open files is too low for the object, and
// otherwise how many descriptors a run can use in addition to those that it needs. It is called before anything is loaded,
// because the library misinterprets EMFILE as a missing feature of the kernel.
func checkDescriptors(spec *ebpf.CollectionSpec, o Options) (optional int, err error) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, fmt.Errorf("count descriptors: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read RLIMIT_NOFILE: %w", err)
	}
	need, optional := descriptors(spec, o)
	need += len(open)
	if limit.Cur < uint64(need) {
		return 0, fmt.Errorf("load object: %w: it needs %d, and %d are allowed", unix.EMFILE, need, limit.Cur)
	}
	return int(min(limit.Cur-uint64(need), math.MaxInt32)) + optional, nil
}

// returnDescriptors is the number of additional descriptors for a program at returns of user
// functions: it is loaded in up to two more forms, and without uprobe_multi it is attached to each
// return instruction separately.
const returnDescriptors = 8

// descriptors returns the number of descriptors that the object needs: one for each map, and while
// a program is loaded one more for each map that it uses; one for each attached program and one for
// its link; one for each perf buffer; and the optional ones.
func descriptors(spec *ebpf.CollectionSpec, o Options) (n, optional int) {
	n = spareDescriptors + 2*len(spec.Maps)
	for _, m := range spec.Maps {
		if m.Type == ebpf.ArrayOfMaps {
			optional = optionalDescriptors
		}
	}
	n += optional
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
	return n, optional
}
