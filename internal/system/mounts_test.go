package system

import (
	"slices"
	"testing"
)

func TestReadMounts(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/mountinfo": "21 1 0:20 / /sys rw - sysfs sysfs rw\n" +
		"23 21 0:12 /../x /a\\040b rw shared:1 master:2 - tracefs none rw,gid=1\nbroken\n"})
	got, err := ReadMounts(root)
	want := []Mount{{20, "/sys", "/", "sysfs", "rw"}, {12, "/a b", "/x", "tracefs", "rw,gid=1"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("mounts %+v, %v, want %+v", got, err, want)
	}
	if _, err := ReadMounts(t.TempDir()); err == nil {
		t.Error("ReadMounts without mountinfo succeeds, want an error")
	}
}

func TestMounts(t *testing.T) {
	got := open(t, machine(t, mountsV1+mountHybrid)).Mounts()
	last := got[len(got)-1]
	if last.Path != "/sys/fs/cgroup/unified" || last.Version != 2 || last.Controllers != nil {
		t.Errorf("last mount %+v, want the v2 hierarchy at /sys/fs/cgroup/unified", last)
	}
	for _, m := range got[:len(got)-1] {
		if m.Version != 1 || m.Path == "/sys/fs/cgroup/pids" && !slices.Equal(m.Controllers, []string{"pids"}) {
			t.Errorf("mount %+v, want version 1 and, for pids, its controller", m)
		}
	}
}

func TestRuntimes(t *testing.T) {
	if got := Runtimes(t.TempDir()); got == nil || len(got) > 0 {
		t.Errorf("runtimes in an empty tree: %#v, want an empty list", got)
	}
	root := tree(t, map[string]string{"run/k3s/containerd/x": "", "run/docker.sock": "", "run/crio/x": "", "var/lib/containers/storage/x": ""})
	if got, want := Runtimes(root), []string{"containerd", "cri-o", "docker", "podman"}; !slices.Equal(got, want) {
		t.Errorf("runtimes %q, want %q", got, want)
	}
}
