#!/bin/sh
# Compile a tool's BPF C for each architecture. In a tool's folder:
#
#	//go:generate ../../scripts/bpf2go.sh NAME.bpf.c
#
# makes bpf_{x86,arm64}_bpfel.{go,o.gz}. More arguments go to bpf2go (-type ...).
# The C file has "//go:build ignore" and an empty line after its SPDX line, or
# Go takes it for cgo.
# All flags are here so that every object is made alike: the same source gives
# the same bytes in any checkout. -mcpu=v3 is understood from kernel 5.1 on.
set -eu

root=$(realpath "$(dirname "$0")/..")
folder=$(realpath --relative-to="$root" .)
source=$1
shift

# The order of types in BTF follows the length of the path that the files really have, of
# all things, so they are compiled in a folder whose name has always the same length.
bpf2go=$(go tool -n bpf2go)
copy=$(mktemp -d /tmp/corescope.XXXXXX)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/$folder"
cp -r "$root/bpf" "$root/vmlinux" "$copy"
cp ./*.c "$copy/$folder"
cp ./*.h "$copy/$folder" 2>/dev/null || true
here=$PWD
cd "$copy/$folder"

# It follows the addresses of clang's memory too, which are therefore not random here,
# where the machine lets that be asked for.
fixed=
if setarch -R true 2>/dev/null; then
	fixed='setarch -R'
fi

# Relative -I, as paths are kept in the objects' BTF line info.
up=$(realpath --relative-to=. "$copy")
$fixed "$bpf2go" -cc clang-19 -strip llvm-strip-19 \
	-target amd64,arm64 -tags linux -no-global-types "$@" bpf "$source" -- \
	-mcpu=v3 -Wall -Werror "-I$up/bpf" "-I$up/vmlinux"

# The binary has objects compressed, which is a fifth, and without what only a linker reads.
for object in bpf_*_bpfel.o; do
	llvm-objcopy-19 -R .rel.BTF -R .rel.BTF.ext -R .llvm_addrsig "$object"
	gzip -9n "$object"
done
for code in bpf_*_bpfel.go; do
	sed -i -e '/^\t"bytes"$/d' \
		-e 's|^\t"github.com/cilium/ebpf"$|&\n\t"github.com/corescope/corescope/internal/tool"|' \
		-e 's|^\treader := bytes.NewReader(_BpfBytes)$|\treader := tool.Object(_BpfBytes)|' \
		-e 's|^//go:embed .*\.o$|&.gz|' "$code"
done
mv bpf_*_bpfel* "$here"
