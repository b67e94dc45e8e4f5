package system

import "path/filepath"

// storageDrivers are the common drivers of containers/storage. Each has its own directories.
var storageDrivers = []string{"overlay", "vfs", "btrfs", "zfs"}

// crio reads the annotations in RUN-ROOT/overlay-containers/ID/userdata/config.json. Podman writes
// the same file, but without these annotations.
func (r *runtimes) crio(id string, _ rootless) names {
	for _, driver := range storageDrivers {
		var spec struct{ Annotations map[string]string }
		from, ok := r.read(&spec, "/run/containers/storage", driver+"-containers", id, "userdata/config.json")
		if !ok {
			continue
		}
		n := kubernetesNames(spec.Annotations)
		n.file = from
		n.runtime = "cri-o"
		return n
	}
	return names{}
}

// podman reads the lists of containers in the storage of root, and in that of the user, for
// rootless podman.
func (r *runtimes) podman(id string, u rootless) names {
	dirs := []string{"/var/lib/containers/storage", "/run/containers/storage"}
	if u.home != "" {
		dirs = append(dirs, filepath.Join(u.home, ".local/share/containers/storage"), filepath.Join(u.run, "containers"))
	}
	for _, dir := range dirs {
		for _, driver := range storageDrivers {
			if from, name := r.storageName(filepath.Join(dir, driver+"-containers"), id); name != "" {
				return names{container: name, runtime: "podman", file: from}
			}
		}
	}
	return names{}
}

// storageName searches the two lists of a storage. The second contains the containers that are
// removed when they exit, and can also be below /run.
func (r *runtimes) storageName(dir, id string) (from source, name string) {
	for _, list := range []string{"containers.json", "volatile-containers.json"} {
		var containers []struct {
			ID    string   `json:"id"`
			Names []string `json:"names"`
		}
		from, ok := r.read(&containers, dir, list)
		if !ok {
			continue
		}
		for _, c := range containers {
			if c.ID == id && len(c.Names) > 0 {
				return from, c.Names[0]
			}
		}
	}
	return source{}, ""
}
