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
