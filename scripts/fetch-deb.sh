#!/bin/sh
# Download a package of any Debian suite and architecture, unpack it in a cache and print the
# directory. For a linux-image metapackage, this is the kernel that it depends on. The apt lists of
# the system are not changed. Packages in the cache are not downloaded again: remove the directory
# to update one.
set -eu

if [ $# -ne 3 ]; then
	echo "usage: $0 SUITE ARCHITECTURE PACKAGE" >&2
	exit 2
fi
suite=$1 arch=$2 package=$3

cache=${XDG_CACHE_HOME:-$HOME/.cache}/corescope/debian/$suite-$arch
if [ -d "$cache/$package" ]; then
	echo "$cache/$package"
	exit
fi

case $suite in
*-security) label=Debian-Security ;;
*) label=Debian ;;
esac
mirror_of() {
	apt-get indextargets --format '$(REPO_URI)' "Label: $1" | head -n1
}
mirror=$(mirror_of "$label")
if [ -z "$mirror" ] && [ "$(id -u)" -eq 0 ]; then # the apt lists of the system can be empty
	apt-get -qq update >&2
	mirror=$(mirror_of "$label")
fi
if [ -z "$mirror" ]; then
	echo "find mirror: apt has no list labelled $label (run apt-get update)" >&2
	exit 1
fi

mkdir -p "$cache"
tmp=$(mktemp -d "$cache/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/root"
echo "deb [target=Packages lang=none] $mirror $suite main" >"$tmp/sources.list"

with_suite() {
	"$@" -o Dir::Etc::SourceList="$tmp/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$tmp/lists" -o Dir::State::Status=/dev/null \
		-o Dir::Cache="$tmp/cache" -o Acquire::Retries=3 -o APT::Sandbox::User=root \
		-o APT::Architecture="$arch" -o APT::Architectures="$arch"
}

with_suite apt-get -qq update >&2
# Newer kernels are split into linux-image, linux-binary and linux-modules.
packages=$(with_suite apt-cache depends --recurse --important "$package" |
	grep -E '^linux-(image|binary|modules)-[0-9]') || packages=$package

cd "$tmp"
for name in $packages; do
	with_suite apt-get -qq download "$name" >&2
done
for deb in *.deb; do
	dpkg-deb -x "$deb" root
done
mv root "$cache/$package"
echo "$cache/$package"
