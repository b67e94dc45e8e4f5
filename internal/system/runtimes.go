package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// runtimes finds the names of containers in the files of their runtimes, and remembers them: runtimes
// delete the files with the container, sometimes before its last event is read.
type runtimes struct {
	root  string
	users *Users
	now   func() time.Time

	mu    sync.Mutex
	known map[string]names
}

// names is what the runtime's files say of a container.
type names struct {
	container, pod, namespace string
	runtime                   string
	read                      time.Time
}

func (n names) found() bool { return n.container != "" }

func newRuntimes(root string) *runtimes {
	return &runtimes{root: root, users: NewUsers(root), now: time.Now, known: map[string]names{}}
}

// lookup returns the names of a container by its full ID, nothing if they are not found. user is the
// uid, in digits, of the one who may run it rootless. What is not found is looked for again after a
// second: some runtimes write their files late.
func (r *runtimes) lookup(id, user string) names {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[id]
	if !ok || (!known.found() && r.now().Sub(known.read) >= missTTL) {
		known = r.find(id, r.rootless(user))
		known.read = r.now()
		r.known[id] = known
	}
	return known
}

func (r *runtimes) find(id string, u rootless) names {
	for _, find := range []func(string, rootless) names{r.docker, r.containerd, r.crio, r.podman} {
		if n := find(id, u); n.found() {
			return n
		}
	}
	return names{}
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
		if !r.read(&config, dir, "containers", id, "config.v2.json") {
			continue
		}
		n := kubernetesNames(config.Config.Labels)
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
	if r.read(&daemon, "/etc/docker/daemon.json") && daemon.DataRoot != "" {
		dirs = append([]string{daemon.DataRoot}, dirs...)
	}
	if u.home != "" {
		dirs = append(dirs, filepath.Join(u.home, ".local/share/docker"))
	}
	return dirs
}

// containerdStates are the state directories of containerd itself, of the one in dockerd, and of those
// that come with Kubernetes.
var containerdStates = []string{
	"/run/containerd", "/run/docker/containerd/daemon", "/run/k3s/containerd", "/run/k0s/containerd",
	"/var/snap/microk8s/common/run/containerd", "/run/snap.microk8s/containerd",
}

// containerd reads the annotations in STATE/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json, the
// OCI bundle of a running task. Those that neither CRI nor nerdctl made have no names.
func (r *runtimes) containerd(id string, _ rootless) names {
	for _, state := range containerdStates {
		pattern := filepath.Join(r.root, state, "io.containerd.runtime.v2.task/*", id, "config.json")
		bundles, _ := filepath.Glob(pattern)
		for _, bundle := range bundles {
			var spec struct{ Annotations map[string]string }
			if !readJSON(&spec, bundle) {
				continue
			}
			n := criNames(spec.Annotations)
			n.runtime = "containerd"
			return n
		}
	}
	return names{}
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

// readJSON decodes a file, which need not be there.
func readJSON(into any, path string) bool {
	data, err := readFile(path, 16<<20)
	return err == nil && json.Unmarshal(data, into) == nil
}

func (r *runtimes) read(into any, path ...string) bool {
	return readJSON(into, filepath.Join(r.root, filepath.Join(path...)))
}
