#!/bin/sh
# Install the components that test/fleet uses, in the user's cache: Prometheus from Debian sid, and an
# OpenTelemetry Collector that is built from its modules, which takes some minutes. With "kubernetes" also
# a one-node cluster: containerd, etcd and kubectl from Debian sid, the programs of Kubernetes and Helm
# built from their modules, which takes ten minutes on two CPUs. What is there is not installed again.
#
#	scripts/fleet.sh [kubernetes] && sudo -E go test ./test/fleet
set -eu
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/corescope
export CGO_ENABLED=0 GOFLAGS=-trimpath

build_collector() {
	mkdir -p "$cache/fleet"
	echo 'fleet: building the OpenTelemetry Collector' >&2
	(cd test/fleet/otelcol && go build -ldflags='-s -w' -o "$cache/fleet/otelcol.new" .)
	mv "$cache/fleet/otelcol.new" "$cache/fleet/otelcol"
}

build_kubernetes() {
	mkdir -p "$cache/fleet/kubernetes.new"
	echo 'fleet: building Kubernetes' >&2
	version=$(sed -n 's/^require k8s.io\/kubernetes \(v1\.\([0-9]*\)\..*\)/\1 \2/p' test/fleet/kubernetes/go.mod)
	package=k8s.io/component-base/version
	flags="-s -w -X $package.gitVersion=${version% *} -X $package.gitMajor=1 -X $package.gitMinor=${version#* }"
	(cd test/fleet/kubernetes && go build -ldflags="$flags" -o "$cache/fleet/kubernetes.new/" k8s.io/kubernetes/cmd/kubelet \
		k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kube-controller-manager)
	mv "$cache/fleet/kubernetes.new" "$cache/fleet/kubernetes"
}

scripts/fetch-deb.sh sid "$(dpkg --print-architecture)" prometheus
[ -x "$cache/fleet/otelcol" ] || build_collector
if [ "${1:-}" = kubernetes ]; then
	scripts/fetch-root.sh fleet-root sid containerd runc etcd-server kubernetes-client containernetworking-plugins \
		iproute2 iptables busybox-static procps ca-certificates
	[ -d "$cache/fleet/kubernetes" ] || build_kubernetes
	scripts/deploy.sh check # builds Helm
fi
