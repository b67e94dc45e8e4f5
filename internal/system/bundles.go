package system

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// bundles finds containers of containerd whose cgroup paths do not identify them, such as those of
// `ctr run`: the user chooses the ID and can choose the cgroup. Each running task has a bundle
// directory, STATE/io.containerd.runtime.v2.task/NAMESPACE/ID, with the cgroup's path in
// config.json.
type bundles struct {
	mu   sync.Mutex
	read time.Time
	// all maps paths of config.json files to bundles.
	all map[string]bundle
	// ids maps paths of cgroups to container IDs.
	ids map[string]string
}

// bundle is the content of a config.json.
type bundle struct {
	file       source
	id, cgroup string
}

// bundleOf returns the container of a cgroup or of its nearest ancestor that is the cgroup of a
// container. own reports that it is the container of the cgroup itself.
func (r *runtimes) bundleOf(cgroup string) (id string, own bool) {
	b := &r.bundles
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.now().Sub(b.read) >= missTTL {
		r.readBundles()
	}
	for dir := cgroup; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if id, ok := b.ids[dir]; ok {
			return id, dir == cgroup
		}
	}
	return "", false
}

// readBundles reads new and changed bundles, and drops those that are deleted.
func (r *runtimes) readBundles() {
	b := &r.bundles
	b.read = r.now()
	old := b.all
	b.all, b.ids = map[string]bundle{}, map[string]string{}
	for _, file := range r.bundleFiles("*") {
		current := old[file]
		if !current.file.isCurrent() {
			current = r.readBundle(file)
		}
		if current.file.path == "" {
			continue // still being written
		}
		b.all[file] = current
		if current.cgroup != "" {
			b.ids[current.cgroup] = current.id
		}
	}
}

func (r *runtimes) readBundle(file string) bundle {
	var spec struct{ Linux struct{ CgroupsPath string } }
	from, ok := r.readJSON(&spec, file)
	if !ok {
		return bundle{}
	}
	return bundle{from, filepath.Base(filepath.Dir(file)), cgroupOf(spec.Linux.CgroupsPath)}
}

// cgroupOf returns the cgroup that a runtime creates for a cgroupsPath of the OCI specification: an
// absolute path, or SLICE:PREFIX:NAME if systemd creates the cgroup. It returns "" for a relative
// path, because its meaning depends on the runtime.
func cgroupOf(cgroupsPath string) string {
	if path.IsAbs(cgroupsPath) {
		return path.Clean(cgroupsPath)
	}
	part := strings.Split(cgroupsPath, ":")
	if len(part) != 3 || part[2] == "" {
		return ""
	}
	unit := part[2]
	if !strings.HasSuffix(unit, ".slice") {
		if part[1] != "" {
			unit = part[1] + "-" + unit
		}
		unit += ".scope"
	}
	return path.Join(slicePath(first(part[0], "system.slice")), unit)
}

// slicePath returns the path of the cgroup of a systemd slice: /a.slice/a-b.slice for a-b.slice.
func slicePath(slice string) string {
	stem, ok := strings.CutSuffix(slice, ".slice")
	if !ok || strings.Contains(stem, "/") {
		return path.Join("/", slice)
	}
	dir := "/"
	for i, c := range stem + "-" {
		if c == '-' && i > 0 {
			dir = path.Join(dir, stem[:i]+".slice")
		}
	}
	return dir
}

// containerdStates are the default state directories of containerd, and of the instances in dockerd
// and in Kubernetes distributions.
var containerdStates = []string{
	"/run/containerd", "/run/docker/containerd/daemon", "/run/k3s/containerd", "/run/k0s/containerd",
	"/var/snap/microk8s/common/run/containerd", "/run/snap.microk8s/containerd",
}

// bundleFiles lists the config.json files of the tasks with this ID, or of all tasks for "*".
func (r *runtimes) bundleFiles(id string) []string {
	states := containerdStates
	if state := r.containerdState(); state != "" {
		states = append([]string{state}, states...)
	}
	var files []string
	for _, state := range states {
		found, _ := filepath.Glob(filepath.Join(r.root, state, "io.containerd.runtime.v2.task/*", id, "config.json"))
		files = append(files, found...)
	}
	return files
}

// containerdState returns the state directory in containerd's configuration, "" if none is
// configured. It is the line state = "/run/containerd" before the first [table].
func (r *runtimes) containerdState() string {
	data, err := readFile(filepath.Join(r.root, "/etc/containerd/config.toml"), 1<<20)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			break
		}
		key, val, ok := strings.Cut(line, "=")
		if dir := strings.Trim(strings.TrimSpace(val), `"'`); ok && strings.TrimSpace(key) == "state" && path.IsAbs(dir) {
			return dir
		}
	}
	return ""
}

// containerd reads the annotations in the OCI bundle of a running task. Containers that were
// created by neither CRI nor nerdctl have no name; their ID is used if it is not a hexadecimal
// number.
func (r *runtimes) containerd(id string, _ rootless) names {
	for _, file := range r.bundleFiles(id) {
		var spec struct{ Annotations map[string]string }
		from, ok := r.readJSON(&spec, file)
		if !ok {
			continue
		}
		n := criNames(spec.Annotations)
		n.file = from
		if spec.Annotations["nerdctl/name"] != "" {
			r.nerdctlName(&n, id, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
		if n.container == "" && !isContainerID(id) {
			n.container = id
		}
		n.runtime = "containerd"
		return n
	}
	return names{}
}

// nerdctlName sets the current name of a nerdctl container, which can have been renamed: the name
// of the file in nerdctl's directory of names that contains the ID. The directory's modification
// time changes when a container is renamed.
func (r *runtimes) nerdctlName(n *names, id, namespace string) {
	const store = "/var/lib/nerdctl/*"
	for _, pattern := range []string{filepath.Join(store, "names", namespace), filepath.Join(store, namespace)} {
		dirs, _ := filepath.Glob(filepath.Join(r.root, pattern))
		for _, dir := range dirs {
			if from, name := nameIn(dir, id); name != "" {
				n.container, n.file = name, from
				return
			}
		}
	}
}

// nameIn returns the name of the file in a directory that contains the ID.
func nameIn(dir, id string) (from source, name string) {
	from, ok := sourceOf(dir)
	entries, err := os.ReadDir(dir)
	if err != nil || !ok {
		return source{}, ""
	}
	for _, e := range entries {
		if data, err := readFile(filepath.Join(dir, e.Name()), 256); err == nil && strings.TrimSpace(string(data)) == id {
			return from, e.Name()
		}
	}
	return source{}, ""
}
