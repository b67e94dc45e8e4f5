package system

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// bundles finds the containers of containerd whose cgroup says nothing of them, as those of `ctr run`:
// their IDs are words of the user's choice, and so may their cgroups be. Each running task has a
// bundle, STATE/io.containerd.runtime.v2.task/NAMESPACE/ID, whose config.json has the cgroup's path.
type bundles struct {
	mu   sync.Mutex
	read time.Time
	// all are the bundles by the paths of their config.json.
	all map[string]bundle
	// ids are the IDs of the containers by the paths of their cgroups.
	ids map[string]string
}

// bundle is what was read of a config.json.
type bundle struct {
	file       source
	id, cgroup string
}

// bundleOf returns the container of a cgroup, which is the one of the cgroup itself or of the nearest
// above it, and whether it is that of the cgroup itself.
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

// readBundles reads what is new.
func (r *runtimes) readBundles() {
	b := &r.bundles
	b.read = r.now()
	old := b.all
	b.all, b.ids = map[string]bundle{}, map[string]string{}
	for _, file := range r.bundleFiles("*") {
		known := old[file]
		if !known.file.isCurrent() {
			known = r.readBundle(file)
		}
		if known.file.path == "" {
			continue // it is still being written
		}
		b.all[file] = known
		if known.cgroup != "" {
			b.ids[known.cgroup] = known.id
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

// cgroupOf returns the cgroup that a runtime makes for a cgroupsPath of the OCI specification: a path,
// or SLICE:PREFIX:NAME where the runtime has systemd make it. Relative paths depend on the runtime.
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

// slicePath returns where the cgroup of a slice of systemd lies: a-b.slice in /a.slice/a-b.slice.
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

// containerdStates are the state directories of containerd itself, of the one in dockerd, and of those
// that come with Kubernetes.
var containerdStates = []string{
	"/run/containerd", "/run/docker/containerd/daemon", "/run/k3s/containerd", "/run/k0s/containerd",
	"/var/snap/microk8s/common/run/containerd", "/run/snap.microk8s/containerd",
}

// bundleFiles lists the config.json of the tasks with this ID, of all for "*".
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

// containerdState returns the state directory that containerd's configuration names, "" for none:
// state = "/run/containerd", ahead of the first [table].
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

// containerd reads the annotations in the OCI bundle of a running task. Containers that neither CRI nor
// nerdctl made have no other name than their ID, which is one unless it is a number.
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
			r.renamed(&n, id, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
		if n.container == "" && !isContainerID(id) {
			n.container = id
		}
		n.runtime = "containerd"
		return n
	}
	return names{}
}

// renamed takes the name that a container of nerdctl has now: that of the file in its directory of
// names that has the container's ID in it. The directory changes with each name.
func (r *runtimes) renamed(n *names, id, namespace string) {
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

// nameIn returns the name of the file of a directory that has the ID in it.
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
