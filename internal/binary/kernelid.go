package binary

// KernelID identifies a mapped file in BPF programs: struct unwind_file_id. Device and inode are
// those of /proc/PID/maps; stat returns different ones on btrfs and overlayfs.
type KernelID struct {
	Inode uint64
	// Changed is the inode's ctime in ns, because inode numbers of deleted files are reused.
	Changed uint64 `btf:"changed_ns"`
	// Device is major << 20 | minor.
	Device uint32
	Kind   Kind
}

// Kind is the type of a mapping: enum stack_mapping_kind.
type Kind uint32

const (
	// KindFile is a mapping of a file.
	KindFile Kind = iota
	// KindAnonymous is memory without a file, for example from a JIT compiler.
	KindAnonymous
	// KindVDSO is the vDSO, the code that the kernel maps into every process.
	KindVDSO
)
