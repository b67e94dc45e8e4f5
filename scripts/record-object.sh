#!/bin/sh
# Record in tools/objects.txt how the BPF objects of the tool in the current directory were built, for
# corescope version --json: compiler, libbpf headers, and a hash of the source. bpf2go.sh runs it.
#
#	../../scripts/record-object.sh NAME.bpf.c DIRECTORY
#
# DIRECTORY is that of the tool in a tree with bpf/ and vmlinux/. The hash is that of the lines
# "SHA256  PATH" of all files of this project that the program includes on any architecture, as sha256sum
# prints them.
set -eu

root=$(realpath "$(dirname "$0")/..")
tool=$(basename "$PWD")
source=$1
cd "$2"

clang=${CLANG:-clang-19}
compiler=$("$clang" --version | head -n 1)
libbpf=$(dpkg-query -W -f '${Version}' libbpf-dev 2>/dev/null) ||
	libbpf=$(pkg-config --modversion libbpf 2>/dev/null) || libbpf=unknown
hash=$(for arch in x86 arm64; do
	"$clang" -target bpf "-D__TARGET_ARCH_$arch" -MM -I../../bpf -I../../vmlinux "$source"
done | tr ' \\' '\n\n' | grep '\.[ch]$' | xargs realpath --relative-to=../.. | sort -u |
	(cd ../.. && xargs sha256sum) | sha256sum | cut -d ' ' -f 1)

table=$root/tools/objects.txt
(
	flock 9
	touch "$table"
	{
		awk -F '\t' -v tool="$tool" '$1 != tool' "$table"
		printf '%s\t%s\t%s\t%s\n' "$tool" "$compiler" "$libbpf" "$hash"
	} | LC_ALL=C sort >"$table.tmp"
	mv "$table.tmp" "$table"
) 9>"$root/tools/.objects.lock"
