#!/bin/sh
# Install the components of the named tests of test/fleet in the user's cache. What is there is not installed
# again.
#
#	scripts/fleet.sh [prometheus] [collector] [kubernetes] [hosts]
#
# Prometheus, containerd, etcd and kubectl come from Debian sid. The OpenTelemetry Collector (five minutes on
# two CPUs), the programs of Kubernetes (ten minutes) and Helm are built from their modules. The server of
# OpenSSH comes from the Debian release of this machine, because it uses its libraries.
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

install_openssh() {
	suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
	mkdir -p "$cache/fleet"
	for package in openssh-server libwrap0; do
		ln -sfn "$(scripts/fetch-deb.sh "$suite" "$(dpkg --print-architecture)" "$package")" "$cache/fleet/$package"
	done
}

for component; do
	case $component in
	prometheus)
		for package in prometheus promtool; do
			scripts/fetch-deb.sh sid "$(dpkg --print-architecture)" "$package"
		done
		;;
	collector) [ -x "$cache/fleet/otelcol" ] || build_collector ;;
	hosts) install_openssh ;;
	kubernetes)
		scripts/fetch-root.sh fleet-root sid containerd runc etcd-server kubernetes-client containernetworking-plugins \
			iproute2 iptables busybox-static procps ca-certificates
		[ -d "$cache/fleet/kubernetes" ] || build_kubernetes
		scripts/deploy.sh check # builds Helm
		;;
	esac
done
