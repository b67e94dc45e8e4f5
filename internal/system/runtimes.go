package system

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/limit"
)

// runtimes finds the names of containers in the files of their runtimes, and remembers them: runtimes
// delete the files with the container, sometimes before its last event is read.
type runtimes struct {
	root  string
	users *Users
	now   func() time.Time
	// limits reports files that are too large.
	limits *limit.Reporter

	mu      sync.Mutex
	known   map[string]names
	bundles bundles
}

// names is what the runtime's files say of a container.
type names struct {
	container, pod, namespace string
	runtime                   string
	file                      source // that has the name
	read                      time.Time
}

func (n names) found() bool { return n.container != "" }

func newRuntimes(root string) *runtimes {
	return &runtimes{root: root, users: NewUsers(root), now: time.Now, known: map[string]names{}}
}

// lookup returns the names of a container by its full ID, nothing if they are not found. user is the
// uid, in digits, of the one who may run it rootless. Each second it is looked whether there are names
// now, as some runtimes write their files late, or others, as containers can be renamed. Names that no
// file has any more are kept.
func (r *runtimes) lookup(id, user string) names {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[id]
	if ok && r.now().Sub(known.read) < missTTL {
		return known
	}
	if !known.found() || !known.file.isCurrent() {
		if found := r.find(id, r.rootless(user)); found.found() {
			known = found
		}
	}
	known.read = r.now()
	r.known[id] = known
	return known
}

func (r *runtimes) find(id string, u rootless) names {
	for _, find := range []func(string, rootless) names{r.docker, r.containerd, r.crio, r.podman} {
		if n := find(id, u); n.found() {
			return r.bounded(n)
		}
	}
	return names{}
}

// bounded returns the names, or nothing if they are longer than any runtime allows.
func (r *runtimes) bounded(n names) names {
	for _, name := range []string{n.container, n.pod, n.namespace} {
		if len(name) > limit.RuntimeName {
			r.exceeded(&limit.Error{Input: "a name in " + n.file.path, Max: limit.RuntimeName, Unit: "bytes"})
			return names{}
		}
	}
	return n
}

func (r *runtimes) exceeded(err error) {
	r.limits.Report(0, err, "containers have no names from this file")
}

// rootless is where a user keeps containers, without the root; empty if nobody does.
type rootless struct{ home, run string }

func (r *runtimes) rootless(user string) rootless {
	uid, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		return rootless{}
	}
	home, ok := r.users.home(uint32(uid))
	if !ok || !filepath.IsAbs(home) {
		return rootless{}
	}
	return rootless{home, "/run/user/" + strconv.FormatUint(uid, 10)}
}

// docker reads DATA-ROOT/containers/ID/config.v2.json. Containers of kubelet (by cri-dockerd) have the
// names of Kubernetes as labels.
func (r *runtimes) docker(id string, u rootless) names {
	for _, dir := range r.dockerRoots(u) {
		var config struct {
			Name   string
			Config struct{ Labels map[string]string }
		}
		from, ok := r.read(&config, dir, "containers", id, "config.v2.json")
		if !ok {
			continue
		}
		n := kubernetesNames(config.Config.Labels)
		n.file = from
		if n.container == "" {
			n.container = strings.TrimPrefix(config.Name, "/")
		}
		n.runtime = "docker"
		return n
	}
	return names{}
}

// dockerRoots returns where dockerd may keep its containers: as its configuration says, in the default
// place, in the snap, and rootless.
func (r *runtimes) dockerRoots(u rootless) []string {
	dirs := []string{"/var/lib/docker", "/var/snap/docker/common/var-lib-docker"}
	var daemon struct {
		DataRoot string `json:"data-root"`
	}
	if _, ok := r.read(&daemon, "/etc/docker/daemon.json"); ok && daemon.DataRoot != "" {
		dirs = append([]string{daemon.DataRoot}, dirs...)
	}
	if u.home != "" {
		dirs = append(dirs, filepath.Join(u.home, ".local/share/docker"))
	}
	return dirs
}

// criNames picks names out of the annotations of containerd's CRI service and of nerdctl.
func criNames(annotations map[string]string) names {
	const cri = "io.kubernetes.cri."
	n := names{
		container: annotations[cri+"container-name"],
		pod:       annotations[cri+"sandbox-name"],
		namespace: annotations[cri+"sandbox-namespace"],
	}
	if n.container == "" && annotations[cri+"container-type"] == "sandbox" {
		n.container = "POD" // as the others call it
	}
	if n.container == "" {
		n.container = annotations["nerdctl/name"]
	}
	return n
}

// kubernetesNames picks names out of the labels or annotations of cri-dockerd and CRI-O.
func kubernetesNames(labels map[string]string) names {
	return names{
		container: labels["io.kubernetes.container.name"],
		pod:       labels["io.kubernetes.pod.name"],
		namespace: labels["io.kubernetes.pod.namespace"],
	}
}

// stateDirs are directories that a runtime makes when it is started or installed.
func stateDirs() map[string][]string {
	return map[string][]string{
		"docker":     {"/run/docker.sock", "/var/lib/docker", "/var/snap/docker/common/var-lib-docker"},
		"containerd": containerdStates,
		"cri-o":      {"/run/crio", "/var/lib/crio"},
		"podman":     {"/var/lib/containers/storage", "/run/podman"},
	}
}

// Runtimes lists the container runtimes that have left traces on the machine below root:
// their sockets or directories, running or not, those of rootless users left out.
func Runtimes(root string) []string {
	found := []string{}
	for runtime, dirs := range stateDirs() {
		if slices.ContainsFunc(dirs, func(dir string) bool {
			_, err := os.Lstat(filepath.Join("/", root, dir))
			return err == nil
		}) {
			found = append(found, runtime)
		}
	}
	slices.Sort(found)
	return found
}

// source is a file at the time that it was read, or a directory.
type source struct {
	path       string
	dev, inode uint64
	size       int64
	changed    unix.Timespec
	// fresh tells that it had just been changed: another change may have left the same time,
	// which the kernel counts by ticks.
	fresh bool
}

func sourceOf(path string) (source, bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return source{}, false
	}
	return source{path, st.Dev, st.Ino, st.Size, st.Mtim, time.Since(time.Unix(st.Mtim.Unix())) < 100*time.Millisecond}, true
}

// isCurrent reports whether the file is surely as it was.
func (s source) isCurrent() bool {
	now, ok := sourceOf(s.path)
	return ok && !s.fresh && now == s
}

// readJSON decodes a file, which need not be there.
func (r *runtimes) readJSON(into any, path string) (source, bool) {
	from, _ := sourceOf(path) // ahead of the contents, which may change any time
	data, err := readFile(path, limit.RuntimeFile)
	if errors.Is(err, limit.ErrExceeded) {
		r.exceeded(err)
	}
	return from, err == nil && json.Unmarshal(data, into) == nil
}

func (r *runtimes) read(into any, path ...string) (source, bool) {
	return r.readJSON(into, filepath.Join(r.root, filepath.Join(path...)))
}
