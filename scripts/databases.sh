#!/bin/sh
# Install PostgreSQL and MariaDB of Debian in a root file system of their own, for the tests of
# dbslower with real servers, and print its directory. Needs root. It is installed once: remove the
# directory to update it. With --path, only print the directory.
set -eu

root=${XDG_CACHE_HOME:-$HOME/.cache}/corescope/databases
if [ "${1:-}" = --path ] || [ -d "$root" ]; then
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
unshare --mount --propagation private debootstrap --variant=minbase --include=postgresql,mariadb-server \
	trixie "$work/root" ${mirror:+"$mirror"} >&2
rm -rf "$work/root/var/cache/apt/archives/"*.deb "$work/root/var/lib/apt/lists/"*
mv "$work/root" "$root"
echo "$root"
