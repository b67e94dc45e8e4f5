package system

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns the values of /proc/meminfo in bytes, by name ("Cached"). It is empty if the file
// cannot be read.
func Memory(root string) map[string]uint64 {
	out := map[string]uint64{}
	text, err := readFile(filepath.Join(root, "proc/meminfo"), 64<<10)
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if n, ok := strings.CutSuffix(strings.TrimSpace(rest), " kB"); ok {
			if kb, err := strconv.ParseUint(n, 10, 64); err == nil {
				out[name] = kb << 10
			}
		}
	}
	return out
}

// MemoryNodes returns the number of possible NUMA nodes, 1 if the kernel supports only one.
func MemoryNodes(root string) uint32 {
	text, err := readFile(filepath.Join(root, "sys/devices/system/node/possible"), 4096)
	if err != nil {
		return 1
	}
	list := strings.FieldsFunc(string(text), func(c rune) bool { return c < '0' || c > '9' })
	if len(list) == 0 {
		return 1
	}
	last, err := strconv.ParseUint(list[len(list)-1], 10, 16)
	if err != nil {
		return 1
	}
	return uint32(last) + 1
}
