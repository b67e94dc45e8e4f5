package system

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Owner is what a cgroup belongs to. Whatever does not apply or is not known is empty.
type Owner struct {
	Container   string // name; of a pod's sandbox it is POD
	ContainerID string // 64 hex digits; of a machine or LXC container its name
	Runtime     string // docker, containerd, cri-o, podman, lxc, nspawn, qemu
	Pod         string
	PodUID      string
	Namespace   string // of the pod
	Unit        string // innermost unit of systemd but slices, unescaped
	Slice       string // innermost slice of systemd, unescaped
}

// Name is that of the container, or the first 12 digits of its ID where no file tells
// its name; "" for what is in none.
func (o Owner) Name() string {
	if o.Container == "" {
		return o.ContainerID[:min(len(o.ContainerID), 12)]
	}
	return o.Container
}

// ParseOwner tells what the path of a cgroup says of its owner: IDs, runtime, pod UID and units; and
// the names of those who use none but names (LXC, systemd-nspawn, libvirt). Of nested containers it is
// the innermost. It reads nothing.
func ParseOwner(cgroup string) Owner { return parseCgroup(cgroup).Owner }

// parsed is an Owner and where in the path it was found.
type parsed struct {
	Owner
	ids  []string // of the containers in the path that have files by ID, outermost first
	top  bool     // whether the last element of the path is that which tells the container
	user string   // uid of the slice of a user, for rootless containers
}

func parseCgroup(cgroup string) parsed {
	var p parsed
	parent := ""
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+cgroup), "/"), "/") {
		p.top = false
		// A containerd set up for systemd's names but without systemd takes them as they are:
		// kubepods-burstable-podUID.slice:cri-containerd:ID
		if part := strings.Split(name, ":"); len(part) == 3 && isContainerID(part[2]) {
			p.addPod(part[0])
			p.addContainer(container{id: part[2], runtime: runtimeOf[part[1]]})
		} else {
			p.addUnit(name)
			p.addPod(name)
			p.addContainer(containerOf(name, parent))
		}
		parent = name
	}
	return p
}

func (p *parsed) addContainer(c container) {
	if c.id == "" {
		return
	}
	p.ContainerID, p.Runtime, p.Container = c.id, c.runtime, c.name
	p.top = true
	if c.name == "" {
		p.ids = append(p.ids, c.id)
	}
}

func (p *parsed) addPod(name string) {
	if uid := podUID(name); uid != "" {
		p.PodUID = uid
	}
}

// unitSuffixes are the types of units that have a cgroup, but for slices.
var unitSuffixes = []string{".service", ".scope", ".socket", ".mount", ".swap"}

func (p *parsed) addUnit(name string) {
	// systemd puts a "_" before names that are files of cgroups too, such as cpu.service.
	unit := unescapeUnit(strings.TrimPrefix(name, "_"))
	suffix := path.Ext(unit)
	if suffix == unit {
		return
	}
	if suffix == ".slice" {
		p.Slice = unit
		if uid, ok := between(unit, "user-", ".slice"); ok && p.ContainerID == "" {
			p.user = uid // of the host; below a container it would be one of the container
		}
	}
	if slices.Contains(unitSuffixes, suffix) {
		p.Unit = unit
	}
}

// container is what one element of a path tells.
type container struct{ id, name, runtime string }

// runtimeOf gives the runtime by the prefix it has for its cgroups. Those of monitors (crio-conmon-ID,
// libpod-conmon-ID, lxc.monitor.NAME) are missing on purpose: they run outside the container.
var runtimeOf = map[string]string{
	"docker": "docker", "cri-containerd": "containerd", "nerdctl": "containerd", "crio": "cri-o",
	"libpod": "podman", "libpod-payload": "podman",
}

func containerOf(name, parent string) container {
	stem := strings.TrimSuffix(name, ".scope")
	if isContainerID(stem) {
		return container{id: stem, runtime: runtimeOf[parent]}
	}
	if i := strings.LastIndexByte(stem, '-'); i > 0 && isContainerID(stem[i+1:]) {
		if runtime, ok := runtimeOf[stem[:i]]; ok {
			return container{id: stem[i+1:], runtime: runtime}
		}
	}
	if lxc, ok := lxcName(name, parent); ok {
		return container{lxc, lxc, "lxc"}
	}
	return machineOf(name)
}

// lxcName knows lxc.payload.NAME (LXC 4, LXD, Incus), lxc.payload/NAME (3.1) and lxc/NAME.
func lxcName(name, parent string) (string, bool) {
	if lxc, ok := strings.CutPrefix(name, "lxc.payload."); ok {
		return lxc, lxc != ""
	}
	return name, name != "" && (parent == "lxc" || parent == "lxc.payload")
}

// machineOf knows what systemd-machined registers, machine-NAME.scope, where NAME is qemu-N-NAME or
// lxc-N-NAME for those of libvirt, and systemd-nspawn@NAME.service.
func machineOf(name string) container {
	if machine, ok := between(name, "systemd-nspawn@", ".service"); ok {
		machine = unescapeUnit(machine)
		return container{machine, machine, "nspawn"}
	}
	machine, ok := between(name, "machine-", ".scope")
	if !ok {
		return container{}
	}
	machine = unescapeUnit(machine)
	part := strings.SplitN(machine, "-", 3)
	if len(part) == 3 && isDecimal(part[1]) && (part[0] == "qemu" || part[0] == "lxc") {
		return container{part[2], part[2], part[0]}
	}
	return container{machine, machine, "nspawn"}
}

// podUID knows podUID (cgroupfs driver of kubelet) and PARENT-podUID.slice (systemd driver, with _ for
// the - of the UID). The UID of a static pod is a hash without any.
func podUID(name string) string {
	uid, ok := strings.CutPrefix(name, "pod")
	if stem, isSlice := strings.CutSuffix(name, ".slice"); isSlice {
		if i := strings.LastIndex(stem, "-pod"); i >= 0 {
			uid, ok = strings.ReplaceAll(stem[i+len("-pod"):], "_", "-"), true
		}
	}
	if !ok || !isPodUID(uid) {
		return ""
	}
	return uid
}

func isPodUID(s string) bool {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = strings.ReplaceAll(s, "-", "")
	}
	return len(s) == 32 && isHex(s)
}

// unescapeUnit undoes systemd's \x2d and the like, for bytes that can be printed; the others stay
// as they are, which is the better for a reader.
func unescapeUnit(s string) string {
	head, rest, ok := strings.Cut(s, `\x`)
	if !ok {
		return s
	}
	if len(rest) >= 2 && isHex(rest[:2]) {
		if b, err := strconv.ParseUint(rest[:2], 16, 8); err == nil && b >= ' ' && b <= '~' {
			return head + string(rune(b)) + unescapeUnit(rest[2:])
		}
	}
	return head + `\x` + unescapeUnit(rest)
}

// between returns what is between a prefix and a suffix, if it is something.
func between(s, prefix, suffix string) (string, bool) {
	s, ok1 := strings.CutPrefix(s, prefix)
	s, ok2 := strings.CutSuffix(s, suffix)
	return s, ok1 && ok2 && s != ""
}

// isContainerID knows the IDs of all runtimes that number theirs: SHA-256 or as long.
func isContainerID(s string) bool { return len(s) == 64 && isHex(s) }

// isHex tells whether there are no characters but lower case hex digits.
func isHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}

func isDecimal(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}
