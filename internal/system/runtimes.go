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

// runtimes reads the names of containers from the files of their runtimes and caches them, because
// runtimes delete the files with the container, sometimes before its last event is read.
type runtimes struct {
	root  string
	users *Users
	now   func() time.Time
	// limits reports files that are too large.
	limits *limit.Reporter

	mu      sync.Mutex
	cached  map[string]names // by container ID
	bundles bundles
}

// names are the names of a container in the files of its runtime.
type names struct {
	container, pod, namespace string
	runtime                   string
	file                      source // file with the name
	read                      time.Time
}

func (n names) found() bool { return n.container != "" }

func newRuntimes(root string) *runtimes {
	return &runtimes{root: root, users: NewUsers(root), now: time.Now, cached: map[string]names{}}
}

// lookup returns the names of a container by its full ID, or empty names if it finds none. user is
// the UID, in digits, of the user whose rootless runtimes are searched too. After a second it reads
// the files again if they have changed, because containers can be renamed, or if it found no names,
// because some runtimes write their files late. It keeps the names when the files are deleted.
func (r *runtimes) lookup(id, user string) names {
	r.mu.Lock()
	defer r.mu.Unlock()
	cached, ok := r.cached[id]
	if ok && r.now().Sub(cached.read) < missTTL {
		return cached
	}
	if !cached.found() || !cached.file.isCurrent() {
		if found := r.find(id, r.rootless(user)); found.found() {
			cached = found
		}
	}
	cached.read = r.now()
	r.cached[id] = cached
	return cached
}

func (r *runtimes) find(id string, u rootless) names {
	for _, find := range []func(string, rootless) names{r.docker, r.containerd, r.crio, r.podman} {
		if n := find(id, u); n.found() {
			return r.bounded(n)
		}
	}
	return names{}
}

// bounded returns the names, or empty names if one is longer than any runtime allows.
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
	r.limits.Report(0, err, "names of containers in this file are ignored")
}

// rootless has the directories of a user's rootless containers, without the root. It is empty if
// there is no user.
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

// docker reads DATA-ROOT/containers/ID/config.v2.json. Containers of Kubernetes (with cri-dockerd)
// have labels with their names in Kubernetes.
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

// dockerRoots returns the possible data directories of dockerd: the configured one, the default,
// that of the snap, and that of a rootless dockerd.
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

// criNames returns the names in the annotations of containerd's CRI service or of nerdctl.
func criNames(annotations map[string]string) names {
	const cri = "io.kubernetes.cri."
	n := names{
		container: annotations[cri+"container-name"],
		pod:       annotations[cri+"sandbox-name"],
		namespace: annotations[cri+"sandbox-namespace"],
	}
	if n.container == "" && annotations[cri+"container-type"] == "sandbox" {
		n.container = "POD" // the name of sandboxes in other runtimes
	}
	if n.container == "" {
		n.container = annotations["nerdctl/name"]
	}
	return n
}

// kubernetesNames returns the names in the labels or annotations of cri-dockerd or CRI-O.
func kubernetesNames(labels map[string]string) names {
	return names{
		container: labels["io.kubernetes.container.name"],
		pod:       labels["io.kubernetes.pod.name"],
		namespace: labels["io.kubernetes.pod.namespace"],
	}
}

// stateDirs returns, for each runtime, files and directories that it creates when it is installed
// or started.
func stateDirs() map[string][]string {
	return map[string][]string{
		"docker":     {"/run/docker.sock", "/var/lib/docker", "/var/snap/docker/common/var-lib-docker"},
		"containerd": containerdStates,
		"cri-o":      {"/run/crio", "/var/lib/crio"},
		"podman":     {"/var/lib/containers/storage", "/run/podman"},
	}
}

// Runtimes lists the container runtimes whose sockets or directories exist below root, whether they
// run or not. It does not find rootless runtimes.
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

// source is the state of a file or directory when it was read.
type source struct {
	path       string
	dev, inode uint64
	size       int64
	changed    unix.Timespec
	// fresh reports that it had changed less than 100 ms before. Another change can then have the
	// same time, because the kernel's timestamps have the resolution of a tick.
	fresh bool
}

func sourceOf(path string) (source, bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return source{}, false
	}
	return source{path, st.Dev, st.Ino, st.Size, st.Mtim, time.Since(time.Unix(st.Mtim.Unix())) < 100*time.Millisecond}, true
}

// isCurrent reports whether the file has certainly not changed since it was read.
func (s source) isCurrent() bool {
	now, ok := sourceOf(s.path)
	return ok && !s.fresh && now == s
}

// readJSON decodes a file. It returns false if the file is missing or invalid.
func (r *runtimes) readJSON(result any, path string) (source, bool) {
	from, _ := sourceOf(path) // before the content is read, because it can change at any time
	data, err := readFile(path, limit.RuntimeFile)
	if errors.Is(err, limit.ErrExceeded) {
		r.exceeded(err)
	}
	return from, err == nil && json.Unmarshal(data, result) == nil
}

func (r *runtimes) read(result any, path ...string) (source, bool) {
	return r.readJSON(result, filepath.Join(r.root, filepath.Join(path...)))
}
