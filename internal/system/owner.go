package system

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Owner is the container, pod and systemd unit that a cgroup belongs to. Fields that do not apply
// or are unknown are empty.
type Owner struct {
	Container   string // name; POD for the sandbox of a pod
	ContainerID string // 64 hexadecimal digits; the name for a machine, an LXC or a ctr container
	Runtime     string // docker, containerd, cri-o, podman, lxc, nspawn, qemu
	Pod         string
	PodUID      string
	Namespace   string // of the pod
	Unit        string // innermost systemd unit that is not a slice, unescaped
	Slice       string // innermost systemd slice, unescaped
}

// Name returns the name of the container, or the first 12 digits of its ID if the name is unknown.
// It is "" outside containers.
func (o Owner) Name() string {
	if o.Container == "" {
		return o.ContainerID[:min(len(o.ContainerID), 12)]
	}
	return o.Container
}

// ParseOwner returns the parts of the owner that follow from the path of a cgroup: IDs, runtime,
// pod UID and units, and names if the runtime has only names (LXC, systemd-nspawn, libvirt). For
// nested containers it returns the innermost. It reads no files.
func ParseOwner(cgroup string) Owner { return parseCgroup(cgroup).Owner }

// parsed is an Owner and how it was found in the path.
type parsed struct {
	Owner
	ids  []string // IDs of all containers in the path except those with names, outermost first
	top  bool     // the last element of the path identifies the container
	user string   // UID of the user's slice, for rootless containers
}

func parseCgroup(cgroup string) parsed {
	var p parsed
	parent := ""
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+cgroup), "/"), "/") {
		p.top = false
		// If containerd is configured for systemd but does not use it, it takes the systemd
		// cgroupsPath for a path: kubepods-burstable-podUID.slice:cri-containerd:ID
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

// unitSuffixes are the types of units that have a cgroup, except slices.
var unitSuffixes = []string{".service", ".scope", ".socket", ".mount", ".swap"}

func (p *parsed) addUnit(name string) {
	// systemd prefixes names that could also be files of a cgroup, such as cpu.service, with "_".
	unit := unescapeUnit(strings.TrimPrefix(name, "_"))
	suffix := path.Ext(unit)
	if suffix == unit {
		return
	}
	if suffix == ".slice" {
		p.Slice = unit
		if uid, ok := between(unit, "user-", ".slice"); ok && p.ContainerID == "" {
			p.user = uid // a user of the host; below a container it would be a user of the container
		}
	}
	if slices.Contains(unitSuffixes, suffix) {
		p.Unit = unit
	}
}

// container is the container that one element of a path identifies.
type container struct{ id, name, runtime string }

// runtimeOf maps prefixes of cgroup names to runtimes. The cgroups of monitors (crio-conmon-ID,
// libpod-conmon-ID, lxc.monitor.NAME) are not included: monitors run outside the container.
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

// lxcName parses lxc.payload.NAME (LXC 4, LXD, Incus), lxc.payload/NAME (LXC 3.1) and lxc/NAME.
func lxcName(name, parent string) (string, bool) {
	if lxc, ok := strings.CutPrefix(name, "lxc.payload."); ok {
		return lxc, lxc != ""
	}
	return name, name != "" && (parent == "lxc" || parent == "lxc.payload")
}

// machineOf parses names of machines that are registered with systemd-machined: machine-NAME.scope,
// where NAME is qemu-N-NAME or lxc-N-NAME for libvirt, and systemd-nspawn@NAME.service.
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

// podUID parses podUID (cgroupfs driver of kubelet) and PARENT-podUID.slice (systemd driver, with
// "_" for each "-" of the UID). The UID of a static pod is a hash without "-".
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

// unescapeUnit decodes systemd's escapes, such as \x2d, of printable ASCII characters. It leaves
// others escaped.
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

// between returns the text between a prefix and a suffix, and whether s has both and the text is
// not empty.
func between(s, prefix, suffix string) (string, bool) {
	s, ok1 := strings.CutPrefix(s, prefix)
	s, ok2 := strings.CutSuffix(s, suffix)
	return s, ok1 && ok2 && s != ""
}

// isContainerID reports whether s has the form of the IDs that runtimes generate: 64 hexadecimal
// digits.
func isContainerID(s string) bool { return len(s) == 64 && isHex(s) }

// isHex reports whether s consists of lower case hexadecimal digits.
func isHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}

func isDecimal(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}
