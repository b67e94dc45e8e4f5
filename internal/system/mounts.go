package system

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// Mount is a line of mountinfo.
type Mount struct {
	Dir     string // where, without the root of the tree
	Base    string // what of the file system, "/" as a rule
	Type    string
	Options string // of the file system
}

// ReadMounts returns what is mounted where this process can see it, in the order of
// mounting.
func ReadMounts(root string) ([]Mount, error) {
	data, err := readFile(filepath.Join("/", root, "proc/self/mountinfo"), 64<<20)
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

// parseMount reads a line of mountinfo (proc_pid_mountinfo(5)):
// id parent major:minor root mountpoint options [optional…] - type source superoptions
func parseMount(line string) (Mount, bool) {
	mount, super, ok := strings.Cut(strings.TrimSpace(line), " - ")
	left, right := strings.Fields(mount), strings.Fields(super)
	if !ok || len(left) < 6 || len(right) < 3 {
		return Mount{}, false
	}
	return Mount{
		Dir:  unescapeMount(left[4]),
		Base: path.Join("/", unescapeMount(left[3])), // "/../.." of an outer cgroup namespace is its root
		Type: right[0], Options: right[2],
	}, true
}

// unescapeMount undoes what the kernel does to blanks and the like in mountinfo.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\043`, "#", `\134`, `\`).Replace
