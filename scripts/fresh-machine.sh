#!/bin/sh
# Run the README's commands on a fresh Debian 13: a root file system with Go, a C compiler and
# little else, in a mount namespace of its own, on the running kernel. Needs root.
#
#	scripts/fresh-machine.sh start	# make && sudo bin/execsnoop
#	scripts/fresh-machine.sh ci	# start, and the tests that depend on the machine most
#	scripts/fresh-machine.sh all	# start, and make test (the default)
#	scripts/fresh-machine.sh shell	# a shell in the machine
#	scripts/fresh-machine.sh -- COMMAND...	# that command, in the cloned tree
#
# It exits with 3 if Debian cannot be installed, for example without a network.
#
# The machine has a clone of HEAD: uncommitted changes are not tested. The root file system is built
# once and copied for each run. It is stored in corescope/fresh in the user's cache, together with
# the downloads and build caches of the machine. Remove that directory to start from scratch.
set -eu
cd "$(dirname "$0")/.."

suite=trixie
packages=git,make,gcc,libc6-dev,ca-certificates,sudo,procps,iproute2

# The commands that run inside the machine, in the tree.

start_tools() {
	make
	# execsnoop ends after one row: it must see a program that starts while it runs.
	ln -sf /bin/true /tmp/fresh-program
	sudo bin/execsnoop --limit 1 --name fresh-program &
	snoop=$!
	while kill -0 "$snoop" 2>/dev/null; do
		/tmp/fresh-program
	done
	wait "$snoop"
}

inside() {
	case $1 in
	start)
		start_tools
		;;
	ci)
		start_tools
		# Packages that depend on the machine: timing, stacks, symbols of libraries, privileges and
		# process life cycles. make test outside of the machine covers the others.
		CGO_ENABLED=0 go test -count=1 -p 1 ./internal/binary ./internal/compile ./internal/stack ./internal/unwind \
			./test/privileges ./test/stacks ./tools/bashreadline ./tools/execsnoop ./tools/filetop \
			./tools/profile ./tools/runqlat ./tools/syscount ./tools/trace
		;;
	all)
		start_tools
		make test
		;;
	shell)
		exec bash
		;;
	--)
		shift
		"$@"
		;;
	*)
		echo "usage: $0 [start|ci|all|shell|-- COMMAND...]" >&2
		exit 2
		;;
	esac
}

if [ "${1:-}" = --inside ]; then
	shift
	inside "$@"
	exit
fi

if [ "$(id -u)" -ne 0 ]; then
	echo "fresh-machine: needs root to build a root file system and to mount" >&2
	exit 1
fi
[ $# -gt 0 ] || set -- all

arch=$(dpkg --print-architecture)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/corescope/fresh
base=$cache/$suite-$arch
mkdir -p "$cache/root-cache"

work=$(mktemp -d "$cache/tmp.XXXXXX")
# Mounts exist only in the namespace of the machine, so only plain files are removed here.
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP

# The base has the packages, and the certificates and the Go toolchain of this machine.
make_base() {
	if ! command -v debootstrap >/dev/null; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get -qq update
		apt-get -qq install --no-install-recommends debootstrap >/dev/null
	fi
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1)
	debootstrap --variant=minbase --include="$packages" "$suite" "$work/base" ${mirror:+"$mirror"} >"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		echo 'fresh-machine: cannot install Debian (check the network)' >&2
		exit 3
	}
	rm -rf "$work/base/var/cache/apt/archives/"*.deb
	if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
		cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/ca-certificates.crt"
	fi
	mkdir -p "$work/base/usr/local"
	cp -a "$(go env GOROOT)" "$work/base/usr/local/go"
	mv "$work/base" "$base"
}

version=$(go env GOVERSION)
if [ -d "$base" ] && [ "$(head -n 1 "$base/usr/local/go/VERSION")" != "$version" ]; then
	rm -rf "$base"
fi
[ -d "$base" ] || make_base

root=$work/root
cp -a "$base" "$root"
rm -f "$root/etc/resolv.conf"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
hostname >"$root/etc/hostname"
echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"
git clone -q --no-hardlinks . "$root/root/corescope"
mkdir "$root/root/.cache"

# The new namespace mounts the kernel's file systems and the build cache.
cat >"$work/enter" <<'END'
set -eu
root=$1 cache=$2
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$cache" "$root/root/.cache"
mkdir "$root/old"
cd "$root"
pivot_root . old
cd /root/corescope
umount -l /old
rmdir /old
exec "$@"
END

code=0
env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 CI="${CI:-}" \
	PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	GOTOOLCHAIN=local GOFLAGS=-trimpath GOMODCACHE=/root/.cache/go-mod \
	${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${GOPROXY:+GOPROXY="$GOPROXY"} \
	unshare --mount --propagation private sh "$work/enter" "$root" "$cache/root-cache" \
	scripts/fresh-machine.sh --inside "$@" || code=$?
exit "$code"
