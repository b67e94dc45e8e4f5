#!/bin/sh
# Build the packages of packaging/debian as a distribution does: from HEAD with vendored modules, without a
# network, in a tree of Debian sid with its Go. Needs root. The packages are written to the directory that
# the argument names, by default dist/debian. With CLANG=clang, the tree's compiler rebuilds the BPF objects.
set -eu
cd "$(dirname "$0")/.."

out=$(realpath -m "${1:-dist/debian}")
# build-essential is not needed, because nothing is compiled as C for this machine (dpkg-checkbuilddeps -I).
tree=$(scripts/fetch-root.sh dist/build sid debhelper golang-any clang llvm libbpf-dev)
work=$(mktemp -d "${XDG_CACHE_HOME:-$HOME/.cache}/corescope/test-package.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP

cp -a "$tree" "$work/tree"
mkdir -p "$work/tree/build/corescope"
git archive HEAD | tar -x -C "$work/tree/build/corescope"
(
	cd "$work/tree/build/corescope"
	GOFLAGS='' go mod vendor
	cp -r packaging/debian debian
)
commit_time=$(git log -1 --format=%ct)
env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin SOURCE_DATE_EPOCH="$commit_time" \
	${CLANG:+CLANG="$CLANG"} ${DEB_BUILD_OPTIONS:+DEB_BUILD_OPTIONS="$DEB_BUILD_OPTIONS"} \
	unshare --mount --net --propagation private sh -euc '
		mount -t proc proc "$1/proc"
		mount --rbind /dev "$1/dev"
		exec chroot "$1" sh -euc "cd /build/corescope; dpkg-checkbuilddeps -I; dpkg-buildpackage -d -b -us -uc"
	' sh "$work/tree"
mkdir -p "$out"
cp "$work/tree/build/"*.deb "$out"
