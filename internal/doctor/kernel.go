package doctor

import (
	"os"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/system"
)

// ownBTF is the path of the kernel's BTF.
const ownBTF = "sys/kernel/btf/vmlinux"

// readBTF finds the BTF and the features that its types reveal.
func (r *reader) readBTF(given string) {
	path, name := given, given
	if given == "" {
		path, name = r.path(ownBTF), "/"+ownBTF
	}
	types, err := btf.LoadSpec(path)
	if err != nil {
		r.unknown("ring_buffer")
		r.unknown("memlock_counts")
		return
	}
	r.BTF = name
	ring := hasMapType(types, "BPF_MAP_TYPE_RINGBUF")
	r.RingBuffer = &ring
	// Maps had a member of this type for their locked memory until 5.11 (80ee81e0403c).
	_, err = types.AnyTypesByName("bpf_map_memory")
	counts := err == nil
	r.MemlockCounts = &counts
}

func hasMapType(types *btf.Spec, name string) bool {
	var enum *btf.Enum
	if err := types.TypeByName("bpf_map_type", &enum); err != nil {
		return false
	}
	for _, v := range enum.Values {
		if v.Name == name {
			return true
		}
	}
	return false
}

// readMounts finds tracefs and securityfs.
func (r *reader) readMounts() {
	mounts, err := system.ReadMounts(r.root)
	if err != nil {
		r.unknown("tracefs")
		r.unknown("lockdown")
		return
	}
	security := ""
	for _, m := range mounts {
		switch {
		case m.Type == "tracefs" && r.Tracefs == "":
			r.Tracefs = m.Dir
			r.TracefsReadable = isReadable(r.path(m.Dir + "/events"))
		case m.Type == "securityfs":
			security = m.Dir
		}
	}
	r.readLockdown(security)
}

func isReadable(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// readLockdown parses the mode in brackets in "none [integrity] confidentiality". A kernel without
// lockdown has no such file.
func (r *reader) readLockdown(security string) {
	if security == "" {
		r.unknown("lockdown")
		return
	}
	data, err := os.ReadFile(r.path(security + "/lockdown"))
	_, rest, _ := strings.Cut(string(data), "[")
	mode, _, marked := strings.Cut(rest, "]")
	switch {
	case os.IsNotExist(err):
		r.Lockdown = "none"
	case err != nil || !marked:
		r.unknown("lockdown")
	default:
		r.Lockdown = mode
	}
}
