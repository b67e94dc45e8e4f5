package prove

import (
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

func ptr(s string) unsafe.Pointer { return unsafe.Pointer(&append([]byte(s), 0)[0]) }

// cgroupOf returns the directory of this process's cgroup in the cgroup v2 hierarchy, "" if there is none.
func cgroupOf() string {
	mount := mountOf("")
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && mount != "" {
			return filepath.Join(mount, path)
		}
	}
	return ""
}

// mountOf returns where the cgroup v1 hierarchy with these controllers is mounted, or with none cgroup v2.
func mountOf(controllers string) string {
	text, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		isV2 := f[2] == "cgroup2" && controllers == ""
		if isV2 || f[2] == "cgroup" && controllers != "" && strings.Contains(","+f[3]+",", ","+controllers+",") {
			return f[1]
		}
	}
	return ""
}

// newCgroup creates a cgroup below that of this process, "" if it cannot.
func newCgroup(name string) string {
	own := cgroupOf()
	if own == "" {
		return ""
	}
	dir := filepath.Join(own, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return ""
	}
	return dir
}

// cgroupIDs returns the IDs of this process's cgroups. With cgroup v1, tools show that of one hierarchy.
func cgroupIDs() []any {
	var ids []any
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) < 3 {
			continue
		}
		if id, err := inodeOf(filepath.Join(mountOf(f[1]), f[2])); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// leaveCgroup removes the cgroup that this process was started in, if it has this name: prove cannot do it if
// it was killed.
func leaveCgroup(name string) {
	own := cgroupOf()
	if filepath.Base(own) != name {
		return
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(own), "cgroup.procs"), []byte("0"), 0); err == nil {
		_ = os.Remove(own)
	}
}
