package system

import (
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	idA  = "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"
	idB  = "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d"
	uid  = "74c13223-5a00-11e9-b385-42010a80018d"
	uidU = "74c13223_5a00_11e9_b385_42010a80018d"
	hash = "6a5c1f1e1c3b1d0e9a8b7c6d5e4f3a2b"
)

var owners = []struct {
	name, path string
	want       Owner
}{
	{"root", "/", Owner{}},
	{"empty", "", Owner{}},
	{"plain directory", "/plain/" + hash, Owner{}},
	{"service", "/system.slice/ssh.service", Owner{Unit: "ssh.service", Slice: "system.slice"}},
	{"slice only", "/system.slice", Owner{Slice: "system.slice"}},
	{"nested slices", "/a.slice/a-b.slice", Owner{Slice: "a-b.slice"}},
	{"dash in a unit", `/system.slice/system-getty.slice/dev-disk-by\x2duuid.swap`, Owner{Unit: "dev-disk-by-uuid.swap", Slice: "system-getty.slice"}},
	{"escape sequence in a unit", `/system.slice/a\x1b\x5bm\x20b\x.service`, Owner{Unit: `a\x1b[m b\x.service`, Slice: "system.slice"}},
	{"name of a cgroup file", "/system.slice/_cpu.service", Owner{Unit: "cpu.service", Slice: "system.slice"}},
	{"user unit", "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox@1.service", Owner{Unit: "app-firefox@1.service", Slice: "app.slice"}},
	{"delegated below a service", "/system.slice/x.service/worker", Owner{Unit: "x.service", Slice: "system.slice"}},
	{"suffix without a name", "/.slice/.service", Owner{}},

	{"docker, cgroupfs", "/docker/" + idA, Owner{ContainerID: idA, Runtime: "docker"}},
	{"docker, systemd", "/system.slice/docker-" + idA + ".scope",
		Owner{ContainerID: idA, Runtime: "docker", Unit: "docker-" + idA + ".scope", Slice: "system.slice"}},
	{"docker, other parent", "/my/parent/" + idA, Owner{ContainerID: idA}},
	{"docker, rootless", "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + idA + ".scope",
		Owner{ContainerID: idA, Runtime: "docker", Unit: "docker-" + idA + ".scope", Slice: "user.slice"}},
	{"systemd in docker", "/docker/" + idA + "/system.slice/nginx.service",
		Owner{ContainerID: idA, Runtime: "docker", Unit: "nginx.service", Slice: "system.slice"}},

	{"kubelet cgroupfs, guaranteed", "/kubepods/pod" + uid + "/" + idA, Owner{ContainerID: idA, PodUID: uid}},
	{"kubelet cgroupfs, static pod", "/kubepods/burstable/pod" + hash + "/" + idA, Owner{ContainerID: idA, PodUID: hash}},
	{"kubelet systemd, containerd", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidU + ".slice/cri-containerd-" + idA + ".scope",
		Owner{ContainerID: idA, Runtime: "containerd", PodUID: uid, Unit: "cri-containerd-" + idA + ".scope", Slice: "kubepods-burstable-pod" + uidU + ".slice"}},
	{"kubelet systemd, cri-o", "/kubepods.slice/kubepods-pod" + uidU + ".slice/crio-" + idA + ".scope/container",
		Owner{ContainerID: idA, Runtime: "cri-o", PodUID: uid, Unit: "crio-" + idA + ".scope", Slice: "kubepods-pod" + uidU + ".slice"}},
	{"cri-o, cgroupfs", "/kubepods/besteffort/pod" + uid + "/crio-" + idA, Owner{ContainerID: idA, Runtime: "cri-o", PodUID: uid}},
	{"cri-o's monitor", "/kubepods.slice/kubepods-pod" + uidU + ".slice/crio-conmon-" + idA + ".scope",
		Owner{PodUID: uid, Unit: "crio-conmon-" + idA + ".scope", Slice: "kubepods-pod" + uidU + ".slice"}},
	{"pod without container", "/kubepods/pod" + uid, Owner{PodUID: uid}},
	{"no pod", "/kubepods/podium/pod-" + hash, Owner{}},
	{"containerd taking systemd's names literally", "/system.slice/containerd.service/kubepods-burstable-pod" + uidU + ".slice:cri-containerd:" + idA,
		Owner{ContainerID: idA, Runtime: "containerd", PodUID: uid, Unit: "containerd.service", Slice: "system.slice"}},
	{"nerdctl", "/system.slice/nerdctl-" + idA + ".scope",
		Owner{ContainerID: idA, Runtime: "containerd", Unit: "nerdctl-" + idA + ".scope", Slice: "system.slice"}},

	{"podman", "/machine.slice/libpod-" + idA + ".scope/container",
		Owner{ContainerID: idA, Runtime: "podman", Unit: "libpod-" + idA + ".scope", Slice: "machine.slice"}},
	{"podman, cgroupfs", "/libpod_parent/libpod-" + idA, Owner{ContainerID: idA, Runtime: "podman"}},
	{"podman in a service", "/system.slice/web.service/libpod-payload-" + idA,
		Owner{ContainerID: idA, Runtime: "podman", Unit: "web.service", Slice: "system.slice"}},
	{"podman's monitor", "/machine.slice/libpod-conmon-" + idA + ".scope",
		Owner{Unit: "libpod-conmon-" + idA + ".scope", Slice: "machine.slice"}},

	{"lxc", "/lxc/web/init.scope", Owner{Container: "web", ContainerID: "web", Runtime: "lxc", Unit: "init.scope"}},
	{"lxc 3.1", "/lxc.payload/web", Owner{Container: "web", ContainerID: "web", Runtime: "lxc"}},
	{"lxd", "/lxc.payload.project_web/system.slice/ssh.service",
		Owner{Container: "project_web", ContainerID: "project_web", Runtime: "lxc", Unit: "ssh.service", Slice: "system.slice"}},
	{"lxc's monitor", "/lxc.monitor.web", Owner{}},
	{"nspawn", `/machine.slice/machine-my\x2dbox.scope/payload/system.slice/ssh.service`,
		Owner{Container: "my-box", ContainerID: "my-box", Runtime: "nspawn", Unit: "ssh.service", Slice: "system.slice"}},
	{"nspawn as a service", `/machine.slice/systemd-nspawn@my\x2dbox.service/payload`,
		Owner{Container: "my-box", ContainerID: "my-box", Runtime: "nspawn", Unit: "systemd-nspawn@my-box.service", Slice: "machine.slice"}},
	{"libvirt", `/machine.slice/machine-qemu\x2d12\x2dmy\x2dvm.scope/libvirt/emulator`,
		Owner{Container: "my-vm", ContainerID: "my-vm", Runtime: "qemu", Unit: "machine-qemu-12-my-vm.scope", Slice: "machine.slice"}},

	{"kind in docker", "/docker/" + idA + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + uidU + ".slice/cri-containerd-" + idB + ".scope",
		Owner{ContainerID: idB, Runtime: "containerd", PodUID: uid, Unit: "cri-containerd-" + idB + ".scope", Slice: "kubelet-kubepods-pod" + uidU + ".slice"}},
	{"docker in a pod", "/kubepods/pod" + uid + "/" + idA + "/docker/" + idB, Owner{ContainerID: idB, Runtime: "docker", PodUID: uid}},
	{"docker in lxc", "/lxc/web/docker/" + idA, Owner{ContainerID: idA, Runtime: "docker"}},
	{"lxc in docker", "/docker/" + idA + "/lxc/web", Owner{Container: "web", ContainerID: "web", Runtime: "lxc"}},

	{"63 digits", "/docker/" + idA[1:], Owner{}},
	{"upper case", "/docker/" + strings.ToUpper(idA), Owner{}},
	{"unknown prefix", "/x-" + idA, Owner{}},
}

func TestParseOwner(t *testing.T) {
	for _, test := range owners {
		t.Run(test.name, func(t *testing.T) {
			if got := ParseOwner(test.path); got != test.want {
				t.Errorf("ParseOwner(%q)\n got %+v\nwant %+v", test.path, got, test.want)
			}
		})
	}
}

// TestParseTop expects that only the topmost cgroup of a container is used to filter by it.
func TestParseTop(t *testing.T) {
	for path, top := range map[string]bool{
		"/docker/" + idA:                                        true,
		"/docker/" + idA + "/init.scope":                        false,
		"/docker/" + idA + "/docker/" + idB:                     true,
		"/docker/" + idA + "/docker":                            false,
		"/machine.slice/libpod-" + idA + ".scope":               true,
		"/machine.slice/libpod-" + idA + ".scope/container":     false,
		"/lxc.payload.web":                                      true,
		"/lxc.payload.web/x":                                    false,
		"/system.slice/a.service/b.slice:cri-containerd:" + idA: true,
		"/": false,
	} {
		if got := parseCgroup(path).top; got != top {
			t.Errorf("%s: top is %v, want %v", path, got, top)
		}
	}
}

// TestParseUser expects the user of the host, also if systemd in a container has slices of other
// users.
func TestParseUser(t *testing.T) {
	for path, user := range map[string]string{
		"/user.slice/user-1000.slice/user@1000.service/x.scope":                                 "1000",
		"/user.slice/user-1000.slice/docker-" + idA + ".scope/user.slice/user-33.slice/x.scope": "1000",
		"/docker/" + idA + "/user.slice/user-33.slice/x.scope":                                  "",
		"/system.slice/x.service": "",
	} {
		if got := parseCgroup(path).user; got != user {
			t.Errorf("%s: user %q, want %q", path, got, user)
		}
	}
}

func FuzzParseOwner(f *testing.F) {
	for _, test := range owners {
		f.Add(test.path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p := parseCgroup(path)
		o := p.Owner
		if o.ContainerID != "" && o.Container == "" && (!isContainerID(o.ContainerID) || !strings.Contains(path, o.ContainerID)) {
			t.Errorf("ID %q is invalid or not in %q", o.ContainerID, path)
		}
		if (o.ContainerID == "") != (o.Runtime == "" && len(p.ids) == 0) {
			t.Errorf("ID %q with runtime %q and IDs %q", o.ContainerID, o.Runtime, p.ids)
		}
		for _, id := range p.ids { // they become part of file names
			if !isContainerID(id) {
				t.Errorf("invalid ID %q", id)
			}
		}
		if p.top && o.ContainerID == "" {
			t.Errorf("%q is the top of a container, but has no ID", path)
		}
		// A child whose name identifies nothing has the same owner.
		below := parseCgroup(path + "/x")
		if o != below.Owner && !strings.HasSuffix(path, "..") && !strings.HasSuffix(strings.TrimRight(path, "/."), "lxc") &&
			!strings.HasSuffix(strings.TrimRight(path, "/."), "lxc.payload") {
			t.Errorf("owner of %q: %+v, but of its child: %+v", path, o, below.Owner)
		}
		for _, unit := range []string{o.Unit, o.Slice} {
			if utf8.ValidString(path) && !utf8.ValidString(unit) {
				t.Errorf("%q unescaped to invalid %q", path, unit)
			}
		}
		if got := unescapeUnit(path); len(got) > len(path) {
			t.Errorf("%q grew to %q", path, got)
		}
	})
}

func BenchmarkParseOwner(b *testing.B) {
	path := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidU + ".slice/cri-containerd-" + idA + ".scope"
	for b.Loop() {
		ParseOwner(path)
	}
}
