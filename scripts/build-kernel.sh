#!/bin/sh
# Build a small kernel from Debian's sources with the options of a file, in a cache, and print its
# directory: for what no kernel of Debian has (test/kernels/inject.config). Needs a C compiler. It is
# built again after the options have changed.
set -eu

if [ $# -ne 2 ]; then
	echo "usage: $0 SOURCE-PACKAGE OPTIONS" >&2
	exit 2
fi
package=$1 options=$(realpath "$2")
name=$(basename "$options" .config)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/corescope/kernels
if cmp -s "$options" "$cache/$name/options"; then
	echo "$cache/$name"
	exit
fi

missing=
for program in bc:bc bison:bison flex:flex gcc:gcc make:make pahole:pahole xz:xz-utils; do
	command -v "${program%:*}" >/dev/null || missing="$missing ${program#*:}"
done
[ -f /usr/include/gelf.h ] || missing="$missing libelf-dev"
if [ -n "$missing" ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update >&2
	# shellcheck disable=SC2086 # several packages
	apt-get -qq install --no-install-recommends $missing >&2
fi

source=$("$(dirname "$0")/fetch-deb.sh" bookworm amd64 "$package")
mkdir -p "$cache"
tmp=$(mktemp -d "$cache/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP
mkdir "$tmp/source" "$tmp/out" "$tmp/root"
# Large parts that the options do not select.
tar -xf "$source/usr/src/$package.tar.xz" -C "$tmp/source" --strip-components=1 \
	--exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/media/*.[ch]' \
	--exclude='*/drivers/staging/*.[ch]' --exclude='*/sound/*.[ch]'

cd "$tmp/out"
kernel_make() {
	make -s -C ../source O="$tmp/out" "$@" >&2
}
kernel_make tinyconfig
../source/scripts/kconfig/merge_config.sh -m -O . .config "$options" >&2
kernel_make olddefconfig
# An option without what it depends on is dropped without a word.
grep '^CONFIG_' "$options" | while read -r option; do
	grep -qx "$option" .config || {
		echo "$options: the kernel does not accept $option" >&2
		exit 1
	}
done
kernel_make -j"$(nproc)" bzImage
release=$(cat include/config/kernel.release)
mkdir -p "$tmp/root/boot" "$tmp/root/lib/modules/$release"
cp arch/x86/boot/bzImage "$tmp/root/boot/vmlinuz-$release"
cp .config "$tmp/root/boot/config-$release"
cp "$options" "$tmp/root/options"
rm -rf "${cache:?}/$name"
mv "$tmp/root" "$cache/$name"
echo "$cache/$name"
