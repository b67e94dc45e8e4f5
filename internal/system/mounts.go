package system

import (
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Mount is a line of /proc/PID/mountinfo.
type Mount struct {
	Dev     uint32 // of the file system, major << 20 | minor
	Dir     string // mount point, without the root of the tree
	Base    string // the directory of the file system that is mounted, usually "/"
	Type    string
	Options string // of the file system
}

// ReadMounts returns the mounts of this process's mount namespace, in the order in which they were
// mounted.
func ReadMounts(root string) ([]Mount, error) {
	return readMountinfo(filepath.Join("/", root, "proc/self/mountinfo"))
}

func readMountinfo(path string) ([]Mount, error) {
	data, err := readFile(path, 64<<20)
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var mounts []Mount
	for line := range strings.Lines(string(data)) {
		if m, ok := parseMount(line); ok {
			mounts = append(mounts, m)
		}
	}
	return mounts, nil
}

// parseMount parses a line of mountinfo (proc_pid_mountinfo(5)):
// id parent major:minor root mountpoint options [optional…] - type source superoptions
func parseMount(line string) (Mount, bool) {
	mount, super, ok := strings.Cut(strings.TrimSpace(line), " - ")
	left, right := strings.Fields(mount), strings.Fields(super)
	if !ok || len(left) < 6 || len(right) < 3 {
		return Mount{}, false
	}
	return Mount{
		Dev: parseDevice(left[2]), Dir: unescapeMount(left[4]),
		Base: path.Join("/", unescapeMount(left[3])), // "/../.." of an outer cgroup namespace is its root
		Type: right[0], Options: right[2],
	}, true
}

// parseDevice parses major:minor; it returns 0 for anything else.
func parseDevice(text string) uint32 {
	first, second, _ := strings.Cut(text, ":")
	major, err1 := strconv.ParseUint(first, 10, 12)
	minor, err2 := strconv.ParseUint(second, 10, 20)
	if err1 != nil || err2 != nil {
		return 0
	}
	return uint32(major<<20 | minor)
}

// unescapeMount decodes the kernel's octal escapes of special characters in mountinfo.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\043`, "#", `\134`, `\`).Replace
