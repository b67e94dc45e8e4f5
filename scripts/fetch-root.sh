#!/bin/sh
# Install packages of a Debian suite in a root file system of their own, and print its directory.
# Needs root. Nothing else of this system changes, except that debootstrap is installed if it is
# missing. It is installed once: remove the directory to update it. With --path, only print it.
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
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1)
mkdir -p "$(dirname "$root")"
work=$(mktemp -d "$root.XXXXXX")
# Mounts exist only in a namespace of their own, so only plain files are removed here.
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$work"
packages=$(echo "$*" | tr ' ' ,)
unshare --mount --propagation private debootstrap --variant=minbase --include="$packages" \
	"$suite" "$work/root" ${mirror:+"$mirror"} >&2
rm -rf "$work/root/var/cache/apt/archives/"*.deb "$work/root/var/lib/apt/lists/"*
mv "$work/root" "$root"
echo "$root"
