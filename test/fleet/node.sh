#!/bin/sh
# One node of Kubernetes with its control plane, for TestKubernetes, which runs this script in mount and
# network namespaces of its own:
#
#	unshare --mount --net --propagation private test/fleet/node.sh ROOT PROGRAMS DIR
#
# ROOT is a Debian tree with containerd, runc, etcd and kubectl. PROGRAMS has the programs of Kubernetes, and
# images as archives. DIR, on a disk, gets all data. It prints "ready" when the node is ready, and ends with
# its standard input.
set -eu
root=$1 programs=$2 dir=$3

# A tree that nothing of this machine can be removed from: the Debian tree is the lower layer, and DIR is
# where containerd keeps its layers, because overlayfs cannot be stacked on itself.
mkdir -p "$dir/upper" "$dir/work" "$dir/root" "$dir/data"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
cd "$dir/root"
mkdir -p programs data old run/containerd etc/cni/net.d var/lib/kubelet
mount --bind "$programs" programs
mount --bind "$dir/data" data
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
pivot_root . old
umount -l /old
# runc and kubelet expect cgroup v1 or v2, not both.
! grep -q ' /sys/fs/cgroup/unified ' /proc/self/mounts || umount /sys/fs/cgroup/unified
mount -t tmpfs tmpfs /run
mkdir -p /run/containerd
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
cd /data
export PATH=/programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export KUBECONFIG=/data/kubeconfig

# The node needs an address and a default route.
ip link set lo up
ip link add eth9 type veth peer name eth8
ip link set eth8 up
ip addr add 10.97.0.1/24 dev eth9
ip link set eth9 up
ip route add default via 10.97.0.2

cat >containerd.toml <<END
version = 3
root = "/data/containerd"
state = "/run/containerd"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "test.local/pause:1"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
END
cat >/etc/cni/net.d/10-bridge.conflist <<END
{"cniVersion": "1.0.0", "name": "bridge", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
"ipMasq": false, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}}]}
END
cat >kubeconfig <<END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:16443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admintoken}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
END
echo 'admintoken,admin,1,"system:masters"' >tokens.csv
cat >kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failSwapOn: false
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
clusterDomain: test
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
END

pids=
start() {
	name=$(basename "$1")
	"$@" >"$name.log" 2>&1 &
	pids="$! $pids"
}
finish() {
	for task in $(ctr -n k8s.io task ls -q 2>/dev/null); do
		ctr -n k8s.io task kill -s KILL "$task" || true
	done
	# The API server waits for requests to etcd when it ends: nothing here is worth it.
	# shellcheck disable=SC2086 # one word per process
	kill -9 $pids 2>/dev/null || true
	wait
	# What a killed shim leaves behind.
	for proc in /proc/[0-9]*; do
		case $(cat "$proc/cmdline" 2>/dev/null | tr '\0' ' ') in
		*containerd-shim*"-namespace k8s.io"*) kill -9 "${proc#/proc/}" || true ;;
		esac
	done
}
trap finish EXIT
# until_succeeds COMMAND...: every half second, for two minutes.
until_succeeds() {
	for _ in $(seq 240); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.5
	done
	echo "node: '$*' still fails after two minutes" >&2
	tail -n 5 ./*.log >&2
	exit 1
}

start containerd -c containerd.toml
start etcd --data-dir etcd --listen-client-urls http://127.0.0.1:12379 --advertise-client-urls http://127.0.0.1:12379 \
	--listen-peer-urls http://127.0.0.1:12380 --initial-advertise-peer-urls http://127.0.0.1:12380 \
	--initial-cluster default=http://127.0.0.1:12380
until_succeeds ctr version
for image in /programs/*.tar; do
	ctr -n k8s.io image import --all-platforms "$image" >&2
done
start kube-apiserver --etcd-servers=http://127.0.0.1:12379 --secure-port=16443 --bind-address=127.0.0.1 --cert-dir=certs \
	--token-auth-file=tokens.csv --authorization-mode=RBAC --service-account-key-file=/programs/sa.pub \
	--service-account-signing-key-file=/programs/sa.key --service-account-issuer=https://test \
	--service-cluster-ip-range=10.98.0.0/24 --allow-privileged=true --kubelet-preferred-address-types=InternalIP
until_succeeds kubectl get --raw /readyz
start kube-scheduler --kubeconfig kubeconfig --leader-elect=false --secure-port=0
start kube-controller-manager --kubeconfig kubeconfig --leader-elect=false --secure-port=0 \
	--service-account-private-key-file=/programs/sa.key --use-service-account-credentials=false
start kubelet --config kubelet.yaml --kubeconfig kubeconfig --root-dir=/data/kubelet --hostname-override=n1 --node-ip=10.97.0.1
until_succeeds sh -c "kubectl get node n1 | grep -q ' Ready'"
until_succeeds kubectl get serviceaccount default
echo ready
cat >/dev/null
