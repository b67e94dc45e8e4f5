package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	criAnnotations = `{"ociVersion":"1.1.0","annotations":{"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.container-type":"container",
		"io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop"}}`
	criSandbox = `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",
		"io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop"}}`
	crioAnnotations = `{"annotations":{"io.kubernetes.container.name":"nginx","io.kubernetes.pod.name":"web-1","io.kubernetes.pod.namespace":"shop"}}`
	podmanList      = `[{"id":"` + idB + `","names":["other"]},{"id":"` + idA + `","names":["web","alias"],"image":"x"}]`
)

// runtimeTrees are the files of each runtime for the container idA.
var runtimeTrees = []struct {
	name   string
	cgroup string
	files  map[string]string
	want   Owner // Container, Pod, Namespace, Runtime; the rest is that of ParseOwner
}{
	{"docker", "/docker/" + idA,
		map[string]string{"var/lib/docker/containers/" + idA + "/config.v2.json": `{"ID":"` + idA + `","Name":"/web","Config":{"Labels":{}}}`},
		Owner{Container: "web", Runtime: "docker"}},
	{"docker below another parent", "/jobs/" + idA,
		map[string]string{"var/lib/docker/containers/" + idA + "/config.v2.json": `{"Name":"/web"}`},
		Owner{Container: "web", Runtime: "docker"}},
	{"docker with data-root", "/docker/" + idA,
		map[string]string{"etc/docker/daemon.json": `{"data-root":"/srv/docker"}`, "srv/docker/containers/" + idA + "/config.v2.json": `{"Name":"/web"}`},
		Owner{Container: "web", Runtime: "docker"}},
	{"docker, rootless", "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + idA + ".scope",
		map[string]string{"etc/passwd": "max:x:1000:1000::/home/max:/bin/sh\n",
			"home/max/.local/share/docker/containers/" + idA + "/config.v2.json": `{"Name":"/web"}`},
		Owner{Container: "web", Runtime: "docker"}},
	{"docker with kubelet", "/kubepods/pod" + uid + "/" + idA,
		map[string]string{"var/lib/docker/containers/" + idA + "/config.v2.json": `{"Name":"/k8s_nginx_web-1_shop_x_0","Config":{"Labels":{
			"io.kubernetes.container.name":"nginx","io.kubernetes.pod.name":"web-1","io.kubernetes.pod.namespace":"shop"}}}`},
		Owner{Container: "nginx", Pod: "web-1", Namespace: "shop", Runtime: "docker"}},
	{"docker and its containerd", "/docker/" + idA,
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/moby/" + idA + "/config.json": `{"annotations":{}}`,
			"var/lib/docker/containers/" + idA + "/config.v2.json": `{"Name":"/web"}`},
		Owner{Container: "web", Runtime: "docker"}},
	{"containerd by CRI", "/kubepods/pod" + uid + "/" + idA,
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/k8s.io/" + idA + "/config.json": criAnnotations},
		Owner{Container: "nginx", Pod: "web-1", Namespace: "shop", Runtime: "containerd"}},
	{"containerd's sandbox", "/kubepods/pod" + uid + "/" + idA,
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/k8s.io/" + idA + "/config.json": criSandbox},
		Owner{Container: "POD", Pod: "web-1", Namespace: "shop", Runtime: "containerd"}},
	{"k3s", "/kubepods/pod" + uid + "/" + idA,
		map[string]string{"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/" + idA + "/config.json": criAnnotations},
		Owner{Container: "nginx", Pod: "web-1", Namespace: "shop", Runtime: "containerd"}},
	{"nerdctl", "/system.slice/nerdctl-" + idA + ".scope",
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/" + idA + "/config.json": `{"annotations":{"nerdctl/name":"web"}}`},
		Owner{Container: "web", Runtime: "containerd"}},
	{"containerd without names", "/default/" + idA,
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/" + idA + "/config.json": `{}`}, Owner{}},
	{"ctr run", "/default/box",
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("/default/box")},
		Owner{ContainerID: "box", Container: "box", Runtime: "containerd"}},
	{"descendant of ctr run", "/default/box/child/grandchild",
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("/default/box")},
		Owner{ContainerID: "box", Container: "box", Runtime: "containerd"}},
	{"ctr run --cgroup", "/jobs/a",
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("/jobs/a")},
		Owner{ContainerID: "box", Container: "box", Runtime: "containerd"}},
	{"ctr run --runc-systemd-cgroup", "/my.slice/my-jobs.slice/ctr-box.scope",
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("my-jobs.slice:ctr:box")},
		Owner{ContainerID: "box", Container: "box", Runtime: "containerd"}},
	{"ctr with configured state directory", "/default/box",
		map[string]string{"etc/containerd/config.toml": "version = 2\nstate = \"/srv/state\"\n[grpc]\n  state = \"/no\"\n",
			"srv/state/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("/default/box")},
		Owner{ContainerID: "box", Container: "box", Runtime: "containerd"}},
	{"docker in ctr run", "/default/box/docker/" + idA,
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("/default/box")},
		Owner{ContainerID: idA, Runtime: "docker"}},
	{"path that ends like that of ctr run", "/user.slice/default/box",
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("/default/box")}, Owner{}},
	{"path with that of ctr run as a prefix", "/default/box2",
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/default/box/config.json": ctrSpec("/default/box")}, Owner{}},
	{"cri-o", "/kubepods.slice/kubepods-pod" + uidU + ".slice/crio-" + idA + ".scope",
		map[string]string{"run/containers/storage/overlay-containers/" + idA + "/userdata/config.json": crioAnnotations},
		Owner{Container: "nginx", Pod: "web-1", Namespace: "shop", Runtime: "cri-o"}},
	{"podman", "/machine.slice/libpod-" + idA + ".scope",
		map[string]string{"var/lib/containers/storage/overlay-containers/containers.json": podmanList,
			"run/containers/storage/overlay-containers/" + idA + "/userdata/config.json": `{"annotations":{"io.container.manager":"libpod"}}`},
		Owner{Container: "web", Runtime: "podman"}},
	{"podman --rm", "/machine.slice/libpod-" + idA + ".scope",
		map[string]string{"var/lib/containers/storage/overlay-containers/containers.json": "[]",
			"var/lib/containers/storage/overlay-containers/volatile-containers.json": podmanList},
		Owner{Container: "web", Runtime: "podman"}},
	{"podman, transient", "/machine.slice/libpod-" + idA + ".scope",
		map[string]string{"run/containers/storage/overlay-containers/volatile-containers.json": podmanList},
		Owner{Container: "web", Runtime: "podman"}},
	{"podman, rootless", "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope/container",
		map[string]string{"etc/passwd": "max:x:1000:1000::/home/max:/bin/sh\n",
			"home/max/.local/share/containers/storage/vfs-containers/containers.json": podmanList},
		Owner{Container: "web", Runtime: "podman"}},
	{"rootless podman of another user", "/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-" + idA + ".scope",
		map[string]string{"etc/passwd": "max:x:1000:1000::/home/max:/bin/sh\neve:x:1001:1001::/home/eve:/bin/sh\n",
			"home/max/.local/share/containers/storage/overlay-containers/containers.json": podmanList},
		Owner{Runtime: "podman"}},
	{"broken file", "/docker/" + idA,
		map[string]string{"var/lib/docker/containers/" + idA + "/config.v2.json": `{"Name":"/web"`}, Owner{Runtime: "docker"}},
	{"kind in docker", "/docker/" + idB + "/kubelet/kubepods/pod" + uid + "/" + idA,
		map[string]string{"var/lib/docker/containers/" + idB + "/config.v2.json": `{"Name":"/kind-control-plane"}`}, Owner{}},
	{"docker in a pod", "/kubepods/pod" + uid + "/" + idB + "/docker/" + idA,
		map[string]string{"run/containerd/io.containerd.runtime.v2.task/k8s.io/" + idB + "/config.json": criAnnotations},
		Owner{Pod: "web-1", Namespace: "shop", Runtime: "docker"}},
}

func TestOwner(t *testing.T) {
	for _, test := range runtimeTrees {
		t.Run(test.name, func(t *testing.T) {
			root := machine(t, mountsV2, "/sys/fs/cgroup"+test.cgroup)
			for name, text := range test.files {
				add(t, root, name, text)
			}
			want := ParseOwner(test.cgroup)
			want.Container, want.Pod, want.Namespace, want.Runtime =
				test.want.Container, test.want.Pod, test.want.Namespace, test.want.Runtime
			want.ContainerID = first(want.ContainerID, test.want.ContainerID)
			if got := open(t, root).Owner(inode(t, root, "/sys/fs/cgroup"+test.cgroup)); got != want {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

// ctrSpec returns the config.json of a container without annotations.
func ctrSpec(cgroupsPath string) string {
	return `{"ociVersion":"1.0.2-dev","linux":{"cgroupsPath":"` + cgroupsPath + `"}}`
}

// TestOwnerRenamed expects the new name of a container a second after it is renamed, for each
// runtime that can rename containers.
func TestOwnerRenamed(t *testing.T) {
	const nerdctl = "run/containerd/io.containerd.runtime.v2.task/default/" + idA + "/config.json"
	for _, test := range []struct {
		name, cgroup  string
		before, after map[string]string
	}{
		{"docker", "/docker/" + idA,
			map[string]string{"var/lib/docker/containers/" + idA + "/config.v2.json": `{"Name":"/old"}`},
			map[string]string{"var/lib/docker/containers/" + idA + "/config.v2.json": `{"Name":"/new"}`}},
		{"podman", "/machine.slice/libpod-" + idA + ".scope",
			map[string]string{"var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"` + idA + `","names":["old"]}]`},
			map[string]string{"var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"` + idA + `","names":["new"]}]`}},
		{"nerdctl", "/system.slice/nerdctl-" + idA + ".scope",
			map[string]string{nerdctl: `{"annotations":{"nerdctl/name":"old"}}`, "var/lib/nerdctl/1935db59/names/default/old": idA},
			map[string]string{"var/lib/nerdctl/1935db59/names/default/new": idA, "var/lib/nerdctl/1935db59/names/default/old": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, now := machine(t, mountsV2, "/sys/fs/cgroup"+test.cgroup), newClock()
			cgroups := open(t, root)
			cgroups.now, cgroups.runtimes.now = now.now, now.now
			expect := func(when, want string) {
				t.Helper()
				if got := cgroups.Owner(inode(t, root, "/sys/fs/cgroup"+test.cgroup)); got.Container != want || got.ContainerID != idA {
					t.Errorf("%s: %+v, want container %q", when, got, want)
				}
			}
			for name, text := range test.before {
				add(t, root, name, text)
			}
			expect("before", "old")
			for name, text := range test.after {
				check(t, os.RemoveAll(filepath.Join(root, name)))
				if text != "" {
					add(t, root, name, text)
				}
			}
			now.add(missTTL)
			expect("after", "new")
			if got, err := cgroups.FindContainer("new"); err != nil || len(got) != 1 {
				t.Errorf("FindContainer(new) = %v, %v, want 1 cgroup", got, err)
			}
		})
	}
}

// TestOwnerOfShortID expects a container of `ctr run` a second after it has started, and still
// after it has ended.
func TestOwnerOfShortID(t *testing.T) {
	const dir, bundles = "/sys/fs/cgroup/default/box", "run/containerd/io.containerd.runtime.v2.task/"
	root, now := machine(t, mountsV2, dir, "/sys/fs/cgroup/other/box"), newClock()
	id := inode(t, root, dir)
	cgroups := open(t, root)
	cgroups.now, cgroups.runtimes.now = now.now, now.now
	expect := func(when, want string) {
		t.Helper()
		if got := cgroups.Owner(id); got.Container != want || got.ContainerID != want {
			t.Errorf("%s: %+v, want container %q", when, got, want)
		}
	}
	expect("before its bundle exists", "")
	add(t, root, bundles+"default/box/config.json", ctrSpec("/default/box"))
	now.add(missTTL)
	expect("a second later", "box")
	if got, err := cgroups.FindContainer("box"); err != nil || len(got) != 1 || got[0].Path != "/default/box" {
		t.Errorf("FindContainer(box) = %+v, %v, want /default/box", got, err)
	}
	add(t, root, bundles+"other/box/config.json", ctrSpec("/other/box"))
	now.add(missTTL)
	if got, err := cgroups.FindContainer("box"); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), `(cgroup "/other/box")`) {
		t.Errorf("FindContainer(box) with two containers = %+v, %v, want %v with both cgroups", got, err, ErrAmbiguous)
	}
	check(t, os.RemoveAll(filepath.Join(root, "run")))
	now.add(missTTL)
	expect("after its end", "box")
}

// TestOwnerOverTime expects that a file that is written late is found a second later, not at each
// event, and that names stay cached when the container is removed.
func TestOwnerOverTime(t *testing.T) {
	const dir, config = "/sys/fs/cgroup/docker/" + idA, "var/lib/docker/containers/" + idA + "/config.v2.json"
	root, now := machine(t, mountsV2, dir), newClock()
	id := inode(t, root, dir)
	cgroups := open(t, root)
	cgroups.now, cgroups.runtimes.now = now.now, now.now
	expect := func(when, want string) {
		t.Helper()
		if got := cgroups.Owner(id); got.Container != want || got.ContainerID != idA {
			t.Errorf("%s: %+v, want container %q", when, got, want)
		}
	}
	expect("before the file exists", "")
	add(t, root, config, `{"Name":"/web"}`)
	expect("immediately after it is written", "")
	now.add(missTTL)
	expect("a second later", "web")
	check(t, os.RemoveAll(filepath.Join(root, "var")))
	check(t, os.RemoveAll(filepath.Join(root, "sys/fs/cgroup/docker")))
	now.add(missTTL)
	expect("after the container is removed", "web")
	if got := cgroups.runtimes.lookup(idA, ""); got.container != "web" {
		t.Errorf("names of a removed container: %+v, want web", got)
	}
	clear(cgroups.paths)
	expect("from the cache", "web")
	if got := cgroups.Owner(1 << 60); got != (Owner{}) {
		t.Errorf("owner of an unused ID: %+v, want none", got)
	}
}

// TestOwnerOfHostileUser reads malicious files of a rootless runtime: a list that is too large, and
// a link to /dev/zero.
func TestOwnerOfHostileUser(t *testing.T) {
	cgroup := "/sys/fs/cgroup/user.slice/user-1000.slice/libpod-" + idA + ".scope"
	storage := "home/max/.local/share/containers/storage/overlay-containers/"
	root := machine(t, mountsV2, cgroup)
	add(t, root, "etc/passwd", "max:x:1000:1000::/home/max:/bin/sh\n")
	add(t, root, storage+"containers.json", `[{"id":"`+idA+`","names":["`+strings.Repeat("x", 17<<20)+`"]}]`)
	add(t, root, storage+"volatile-containers.json", "-> /dev/zero")
	if got := open(t, root).Owner(inode(t, root, cgroup)); got.Container != "" || got.ContainerID != idA {
		t.Errorf("name of %d bytes, ID %q, want no name and ID %s", len(got.Container), got.ContainerID, idA)
	}
}

func containerMachine(t *testing.T) string {
	const c = "/sys/fs/cgroup"
	pod := c + "/kubepods.slice/kubepods-pod" + uidU + ".slice/cri-containerd-"
	root := machine(t, mountsV2,
		c+"/docker/"+idA+"/init.scope", c+"/docker/"+idA+"/docker/"+idB, c+"/docker/"+idA,
		c+"/lxc.payload.box/system.slice", pod+nginx1+".scope", pod+nginx2+".scope/container")
	add(t, root, "var/lib/docker/containers/"+idA+"/config.v2.json", `{"Name":"/web"}`)
	task := "run/containerd/io.containerd.runtime.v2.task/k8s.io/"
	add(t, root, task+nginx1+"/config.json", criAnnotations)
	add(t, root, task+nginx2+"/config.json", strings.ReplaceAll(criAnnotations, "web-1", "web-2"))
	return root
}

const (
	nginx1 = "aaaa1000c3b1d0e9a8b7c6d5e4f3a2b14f797c539e6c745de61a93ca3ff89235"
	nginx2 = "aaaa2000c3b1d0e9a8b7c6d5e4f3a2b14f797c539e6c745de61a93ca3ff89235"
)

func TestFindContainer(t *testing.T) {
	root := containerMachine(t)
	pod := "/kubepods.slice/kubepods-pod" + uidU + ".slice/cri-containerd-"
	cgroups := open(t, root)
	for arg, want := range map[string]string{
		"web": "/docker/" + idA, idA: "/docker/" + idA, idA[:4]: "/docker/" + idA, idA[:63]: "/docker/" + idA,
		idB: "/docker/" + idA + "/docker/" + idB, idB[:12]: "/docker/" + idA + "/docker/" + idB,
		"box": "/lxc.payload.box", nginx1[:5]: pod + nginx1 + ".scope",
		"web-1/nginx": pod + nginx1 + ".scope", "shop/web-2/nginx": pod + nginx2 + ".scope",
	} {
		got, err := cgroups.FindContainer(arg)
		if err != nil || len(got) != 1 {
			t.Errorf("FindContainer(%q) = %+v, %v, want %s", arg, got, err, want)
			continue
		}
		if target := (Target{ID: inode(t, root, "/sys/fs/cgroup"+want), Path: want}); got[0] != target {
			t.Errorf("FindContainer(%q) = %+v, want %+v", arg, got[0], target)
		}
	}
	for arg, want := range map[string]error{
		"": ErrNoContainer, "we": ErrNoContainer, "nosuch": ErrNoContainer, idA[:3]: ErrNoContainer, idA + "0": ErrNoContainer,
		"aaaa": ErrAmbiguous, "nginx": ErrAmbiguous, "shop/nginx": ErrNoContainer, strings.ToUpper(idA): ErrNoContainer,
	} {
		if got, err := cgroups.FindContainer(arg); !errors.Is(err, want) || got != nil {
			t.Errorf("FindContainer(%q) = %+v, %v; want %v", arg, got, err, want)
		}
	}
}

func TestFindContainerError(t *testing.T) {
	_, err := open(t, containerMachine(t)).FindContainer("nginx")
	want := `find container "nginx": more than one container matches: "aaaa1000c3b1" ("shop/web-1/nginx"), "aaaa2000c3b1" ("shop/web-2/nginx")`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestFindContainerManyCandidates(t *testing.T) {
	var dirs []string
	for i := range 30 {
		dirs = append(dirs, fmt.Sprintf("/sys/fs/cgroup/docker/abcd%060x", i))
	}
	_, err := open(t, machine(t, mountsV2, dirs...)).FindContainer("abcd")
	if !errors.Is(err, ErrAmbiguous) || !strings.HasSuffix(err.Error(), ", 20 more") {
		t.Errorf("got %v, want 10 candidates and 20 more", err)
	}
}

// TestFindContainerPrecedence expects that a name is preferred to a prefix of an ID, and a full ID
// to a name.
func TestFindContainerPrecedence(t *testing.T) {
	const c = "/sys/fs/cgroup/docker/"
	root := machine(t, mountsV2, c+idA, c+idB)
	add(t, root, "var/lib/docker/containers/"+idA+"/config.v2.json", `{"Name":"/`+idB[:6]+`"}`)
	got, err := open(t, root).FindContainer(idB[:6])
	if err != nil || len(got) != 1 || got[0].Path != "/docker/"+idA {
		t.Errorf("name or prefix of an ID: %+v, %v, want the name's /docker/%s", got, err, idA)
	}
	add(t, root, "var/lib/docker/containers/"+idB+"/config.v2.json", `{"Name":"/`+idA+`"}`)
	got, err = open(t, root).FindContainer(idA)
	if err != nil || len(got) != 1 || got[0].Path != "/docker/"+idA {
		t.Errorf("ID or name: %+v, %v, want the ID's /docker/%s", got, err, idA)
	}
}

func TestFindContainerInTwoCgroups(t *testing.T) {
	root := machine(t, mountsV1, "/sys/fs/cgroup/memory/a/"+idA, "/sys/fs/cgroup/memory/b/"+idA)
	got, err := open(t, root).FindContainer(idA)
	if err != nil || len(got) != 2 || got[0].Controller != "memory" || got[0].ID == got[1].ID {
		t.Errorf("got %+v, %v; want both cgroups", got, err)
	}
}
