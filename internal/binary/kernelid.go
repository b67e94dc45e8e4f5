package binary

// KernelID identifies a mapped file as the kernel's programs see it: struct unwind_file_id.
// Device and inode are those of /proc/PID/maps; stat shows others on btrfs and overlayfs.
type KernelID struct {
	Inode uint64
	// Changed is the inode's ctime in ns: another file may get the number of one that is gone.
	Changed uint64 `btf:"changed_ns"`
	// Device is major << 20 | minor.
	Device uint32
	Kind   Kind
}

// Kind is what a mapping is of: enum stack_mapping_kind.
type Kind uint32

const (
	// KindFile is a mapping of a file.
	KindFile Kind = iota
	// KindAnonymous is memory without a file, as JIT compilers use it.
	KindAnonymous
	// KindVDSO is the code that the kernel maps into every process.
	KindVDSO
)
