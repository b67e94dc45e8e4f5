package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// kernel is a Debian kernel and the machine around it.
type kernel struct {
	name             string // in KERNELS
	suite, arch, pkg string
	hybrid           bool // the memory and blkio controllers are mounted as cgroup v1
	// options is a file with the options of a kernel that is built from pkg, which has its source.
	options string
}

// modules are the modules that each machine needs, unless they are built in.
var modules = []string{"virtio_pci", "virtio_blk", "crc32c_generic", "ext4"}

// matrix lists all kernels. 6.12 is from the security suite, because the kernel of the backports
// crashed in most boots under QEMU 7.2. Since 6.12 the memory controller has no cgroup v1.
var matrix = []kernel{
	{name: "5.10", suite: "bullseye", arch: "amd64", pkg: "linux-image-cloud-amd64", hybrid: true},
	{name: "6.1", suite: "bookworm", arch: "amd64", pkg: "linux-image-cloud-amd64"},
	{name: "6.1-rt", suite: "bookworm", arch: "amd64", pkg: "linux-image-rt-amd64", hybrid: true},
	{name: "6.12", suite: "bookworm-security", arch: "amd64", pkg: "linux-image-6.12-cloud-amd64"},
	{name: "7.2", suite: "sid", arch: "amd64", pkg: "linux-image-cloud-amd64"},
	{name: "6.1-arm64", suite: "bookworm", arch: "arm64", pkg: "linux-image-cloud-arm64"},
	{name: "7.2-arm64", suite: "sid", arch: "arm64", pkg: "linux-image-cloud-arm64"},
}

// built lists kernels that are built, with what no kernel of Debian has. They run only if KERNELS names
// them, and are not in the document.
var built = []kernel{
	{name: "inject", suite: "bookworm", arch: "amd64", pkg: "linux-source-6.1", options: "test/kernels/inject.config"},
}

// needs are the requirements of a tool's tests.
type needs struct {
	// args are required arguments of the tool.
	args string
	// modules are kernel modules, each with its parameters.
	modules []string
	// explain are options that add hooks.
	explain []string
	// lacks is a part of the message with which the tool ends in these machines, because they have no
	// hardware for it. Only the tests that need none pass then.
	lacks string
}

// toolNeeds has the tools with requirements.
var toolNeeds = map[string]needs{
	"biolatency": {
		modules: []string{
			// A request of /dev/nullb0 takes 10 ms, by a timer.
			"null_blk queue_mode=2 irqmode=2 completion_nsec=10000000",
			"loop", "mq-deadline", "dm_mod", "dm_delay", "md_mod", "raid0",
			// zram compresses with lzo-rle on older kernels, and with lz4 on newer ones.
			"lzo-rle", "lz4", "zram",
		},
		explain: []string{"--stages --disks --cgroups"},
	},
	"cpufreq":      {lacks: "exit status 4: cpufreq: read CPU frequencies: not supported by this kernel: it has no cpufreq"},
	"drsnoop":      {modules: []string{"loop"}},
	"kvmexit":      {modules: []string{"kvm", "kvm_amd"}},
	"execsnoop":    {explain: []string{"--fails"}},
	"funccount":    {args: "hrtimer_nanosleep"},
	"stackcount":   {args: "hrtimer_nanosleep"},
	"ksnoop":       {args: "vfs_truncate(length,return<0)"},
	"stacksnoop":   {args: "hrtimer_nanosleep"},
	"funclatency":  {args: "hrtimer_nanosleep"},
	"funcinterval": {args: "hrtimer_nanosleep"},
	"funcslower":   {args: "hrtimer_nanosleep"},
	"inject":       {args: "--dry-run bio hrtimer_nanosleep()"},
	"packetsnoop":  {modules: []string{"veth"}},
	"rdmaucma":     {modules: []string{"rdma_ucm", "crc32_generic", "rdma_rxe", "dummy numdummies=0"}},
	"argdist":      {args: "-C do_sys_openat2 -C r:do_sys_openat2 -C t:sched:sched_process_exec"},
	"trace":        {args: "do_sys_openat2 r:do_sys_openat2 t:sched:sched_process_exec"},
	"faults":       {modules: []string{"loop"}},
	"files":        {modules: []string{"loop", "crc32c_generic", "btrfs"}},
	"filetop":      {modules: []string{"loop", "crc32c_generic", "btrfs", "overlay"}},
	"fsdist":       {args: "--type fuse", modules: []string{"fuse"}},
	"fsslower":     {args: "--type fuse", modules: []string{"loop", "fuse", "overlay"}},
	"biosnoop":     {modules: []string{"loop", "crc32c_generic", "btrfs", "xfs"}, explain: []string{"--columns +file"}},
	"biostacks":    {modules: []string{"loop"}},
	"biolatpcts":   {modules: []string{"loop"}},
	"biopattern":   {modules: []string{"loop"}},
	"bitesize":     {modules: []string{"loop"}},
	"readahead":    {modules: []string{"loop"}},
	"mdflush":      {modules: []string{"loop", "md_mod", "raid0"}},
	"biotop":       {modules: []string{"loop"}, explain: []string{"--columns +file"}},
	"cachestat":    {modules: []string{"loop"}},
	"cachetop":     {modules: []string{"loop"}},
	"dcsnoop":      {explain: []string{"-a"}},
	"dirtop":       {args: "-d /"},
	"maps":         {modules: []string{"loop", "crc32c_generic", "btrfs"}},
	"memleak":      {explain: []string{"--pid 1", "--percpu"}},
	"syscount":     {explain: []string{"--latency"}},
	"writeback":    {modules: []string{"loop", "crc32c_generic", "ext4"}},
}

// suites are tests that do not belong to a tool. They run only if TOOLS names them: faults, which needs
// CPUS=4 to take one of several CPUs offline, the measurements of test/bench that run in machines, and
// prove, which compares all tools with known workloads.
var suites = []*tool.Tool{suite("faults"), suite("bench"), suite("prove")}

func suite(name string) *tool.Tool {
	return &tool.Tool{Spec: tool.Spec{
		Name:   name,
		Object: func(...tool.Variants) (*ebpf.CollectionSpec, error) { return &ebpf.CollectionSpec{}, nil },
	}}
}

func isSuite(t *tool.Tool) bool { return slices.Contains(suites, t) }

func isTool(t *tool.Tool) bool { return !isSuite(t) }

// folderOf returns the directory of the tool's tests.
func folderOf(t *tool.Tool) string {
	switch {
	case t.Name == "prove":
		return "internal/prove"
	case isSuite(t):
		return "test/" + t.Name
	}
	return "tools/" + t.Name
}

// chosen returns the kernels and tools that the environment selects, and whether these are all.
func chosen() (kernels []kernel, all []*tool.Tool, whole bool, err error) {
	known := matrix
	if os.Getenv("KERNELS") != "" {
		known = slices.Concat(matrix, built)
	}
	kernels, err = choose(known, os.Getenv("KERNELS"), func(k kernel) string { return k.name })
	if err != nil {
		return nil, nil, false, fmt.Errorf("KERNELS: %w", err)
	}
	candidates := tools.All()
	if os.Getenv("TOOLS") != "" {
		candidates = append(candidates, suites...)
	}
	all, err = choose(candidates, os.Getenv("TOOLS"), func(t *tool.Tool) string { return t.Name })
	if err != nil {
		return nil, nil, false, fmt.Errorf("TOOLS: %w", err)
	}
	whole = len(kernels) == len(matrix) && len(all) == len(tools.All()) && !isShort()
	return kernels, all, whole, nil
}

func isShort() bool { return os.Getenv("SHORT") != "" }

// choose returns the elements whose names are in words, or all if words is empty.
func choose[T any](all []T, words string, name func(T) string) ([]T, error) {
	var out, names []string
	for _, v := range all {
		names = append(names, name(v))
	}
	for word := range strings.FieldsSeq(words) {
		if !slices.Contains(names, word) {
			return nil, fmt.Errorf("unknown name %s: want one of %s", word, strings.Join(names, " "))
		}
		out = append(out, word)
	}
	if len(out) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !slices.Contains(out, name(v)) }), nil
}
