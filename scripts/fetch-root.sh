#!/bin/sh
# Install packages of a Debian suite in a root file system of their own, and print its directory.
# Needs root. Nothing else of this system changes, except that debootstrap is installed if it is
# missing. It is installed once: remove the directory to update it. With --path, only print it.
# MIRROR selects another mirror than the one of this system, for example of a distribution made from
# Debian; COMPONENTS its components, by default main; SCRIPT the suite whose script debootstrap uses, if it
# has none for this one.
set -eu

if [ $# -lt 3 ]; then
	echo "usage: $0 NAME SUITE --path|PACKAGE..." >&2
	exit 2
fi
root=${XDG_CACHE_HOME:-$HOME/.cache}/corescope/$1 suite=$2
shift 2
if [ "$1" = --path ] || [ -d "$root" ]; then
	echo "$root"
	exit
fi
if ! command -v debootstrap >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update >&2
	apt-get -qq install --no-install-recommends debootstrap >/dev/null
fi
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1)}
mkdir -p "$(dirname "$root")"
work=$(mktemp -d "$root.XXXXXX")
# Mounts exist only in a namespace of their own, so only plain files are removed here.
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$work"
# debootstrap does not resolve all dependencies, so apt installs the packages. No service is started. A
# mirror can be behind, so that its lists are older than Debian wants.
unshare --mount --propagation private sh -euc '
	root=$1 components=$2 suite=$3 mirror=$4 script=$5
	shift 5
	unset COMPONENTS MIRROR SCRIPT # debootstrap has variables with these names
	debootstrap --variant=minbase --components="$components" "$suite" "$root" $mirror $script
	mount -t proc proc "$root/proc"
	printf "#!/bin/sh\nexit 101\n" >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
	apt() { chroot "$root" apt-get -q -y -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root "$@"; }
	apt update
	apt install --no-install-recommends "$@"
	rm "$root/usr/sbin/policy-rc.d"
' sh "$work/root" "${COMPONENTS:-main}" "$suite" "$mirror" \
	"${SCRIPT:+/usr/share/debootstrap/scripts/$SCRIPT}" "$@" >&2
rm -rf "$work/root/var/cache/apt/archives/"*.deb "$work/root/var/lib/apt/lists/"*
mv "$work/root" "$root"
echo "$root"
