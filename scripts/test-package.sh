#!/bin/sh
# Build packages as a distribution does: from HEAD with vendored modules, without a network, in a tree of
# Debian sid with its Go. Needs root.
#
#	scripts/test-package.sh [debian [DIRECTORY]]	# packaging/debian
#	scripts/test-package.sh rpm [DIRECTORY]		# packaging/rpm, with Debian's rpmbuild
#
# The packages are written to the directory, by default dist/debian or dist/rpm. With CLANG=clang, the tree's
# compiler rebuilds the BPF objects of the Debian packages.
set -eu
cd "$(dirname "$0")/.."

kind=${1:-debian}
case $kind in
# build-essential is not needed, because nothing is compiled as C for this machine (dpkg-checkbuilddeps -I).
debian) tree=$(scripts/fetch-root.sh dist/build sid debhelper golang-any clang llvm libbpf-dev) ;;
rpm) tree=$(scripts/fetch-root.sh dist/build-rpm sid golang-any make rpm) ;;
*)
	echo "usage: $0 [debian|rpm [DIRECTORY]]" >&2
	exit 2
	;;
esac
out=$(realpath -m "${2:-dist/$kind}")
work=$(mktemp -d "${XDG_CACHE_HOME:-$HOME/.cache}/corescope/test-package.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP

cp -a "$tree" "$work/tree"
build=$work/tree/build

# in_tree SCRIPT runs the script in the tree, without a network.
in_tree() {
	commit_time=$(git log -1 --format=%ct)
	env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin SOURCE_DATE_EPOCH="$commit_time" \
		${CLANG:+CLANG="$CLANG"} ${DEB_BUILD_OPTIONS:+DEB_BUILD_OPTIONS="$DEB_BUILD_OPTIONS"} \
		unshare --mount --net --propagation private sh -euc '
			mount -t proc proc "$1/proc"
			mount --rbind /dev "$1/dev"
			exec chroot "$1" sh -euc "$2"
		' sh "$work/tree" "$1"
}

build_debian() {
	mkdir -p "$build/corescope"
	git archive HEAD | tar -x -C "$build/corescope"
	(
		cd "$build/corescope"
		GOFLAGS='' go mod vendor
		cp -r packaging/debian debian
	)
	in_tree 'cd /build/corescope; dpkg-checkbuilddeps -I; dpkg-buildpackage -d -b -us -uc'
	cp "$build/"*.deb "$out"
}

# build_rpm defines the macros of Fedora's systemd-rpm-macros, which Debian lacks, as empty.
build_rpm() {
	version=$(sed -n 's/^Version: *//p' packaging/rpm/corescope.spec)
	mkdir -p "$build/SOURCES" "$build/corescope-$version"
	git archive --prefix="corescope-$version/" -o "$build/SOURCES/corescope-$version.tar.gz" HEAD
	tar -xf "$build/SOURCES/corescope-$version.tar.gz" -C "$build"
	(
		cd "$build/corescope-$version"
		GOFLAGS='' go mod vendor
		tar -czf "../SOURCES/corescope-$version-vendor.tar.gz" vendor
	)
	cp packaging/rpm/corescope.spec "$build/"
	cat >"$build/macros" <<-EOF
		%_topdir /build
		%_unitdir %{_prefix}/lib/systemd/system
		%systemd_post() %{nil}
		%systemd_preun() %{nil}
		%systemd_postun_with_restart() %{nil}
	EOF
	in_tree 'cd /build; rpmbuild -bb --nodeps --load=/build/macros corescope.spec'
	cp "$build/RPMS/"*/*.rpm "$out"
}

mkdir -p "$out"
build_"$kind"
