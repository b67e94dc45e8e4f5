#!/bin/sh
# Compile the BPF C of a tool for each architecture. This line in the directory of the tool
#
#	//go:generate ../../scripts/bpf2go.sh NAME.bpf.c
#
# creates bpf_{x86,arm64}_bpfel.{go,o.gz}. Further arguments are passed to bpf2go (-type ...). The C
# file needs "//go:build ignore" and an empty line after its SPDX line, because otherwise Go
# considers it to be cgo code.
#
# Builds are reproducible: the same source results in the same bytes in any checkout, because all
# tools are compiled with these flags. Kernels support -mcpu=v3 from 5.1 on.
#
# The objects in the tree are made by clang-19. A distribution can use its own: CLANG=clang-20, and
# LLVM_STRIP and LLVM_OBJCOPY if their names do not have the same suffix.
set -eu

export CLANG="${CLANG:-clang-19}"
suffix=${CLANG#"${CLANG%%clang*}clang"}
export LLVM_STRIP="${LLVM_STRIP:-llvm-strip$suffix}" LLVM_OBJCOPY="${LLVM_OBJCOPY:-llvm-objcopy$suffix}"

root=$(realpath "$(dirname "$0")/..")
directory=$(realpath --relative-to="$root" .)
source=$1
shift

# The order of types in BTF depends on the length of the absolute path of the source files, so they
# are compiled in a directory whose path always has the same length.
bpf2go=$(go tool -n bpf2go)
copy=$(mktemp -d /tmp/corescope.XXXXXX)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/$directory"
cp -r "$root/bpf" "$root/vmlinux" "$copy"
cp ./*.c "$copy/$directory"
cp ./*.h "$copy/$directory" 2>/dev/null || true
here=$PWD
cd "$copy/$directory"

# The order also depends on memory addresses in clang, so address space randomization is disabled,
# if that is permitted.
fixed=
if setarch -R true 2>/dev/null; then
	fixed='setarch -R'
fi

# Relative -I, because the BTF line information of the objects contains these paths.
up=$(realpath --relative-to=. "$copy")
$fixed "$bpf2go" -cc "$CLANG" -strip "$LLVM_STRIP" \
	-target amd64,arm64 -tags linux -no-global-types "$@" bpf "$source" -- \
	-mcpu=v3 -Wall -Werror "-I$up/bpf" "-I$up/vmlinux"

# The binary contains compressed objects, a tenth of the size, without types that no loader needs, and
# without sections that only linkers need.
for object in bpf_*_bpfel.o; do
	"$LLVM_OBJCOPY" -R .rel.BTF -R .rel.BTF.ext -R .llvm_addrsig "$object"
done
go -C "$root" run ./scripts/slimbtf "$PWD"/bpf_*_bpfel.o
gzip -9n bpf_*_bpfel.o
for code in bpf_*_bpfel.go; do
	sed -i -e '/^\t"\(bytes\|fmt\)"$/d' \
		-e 's|^\t"github.com/cilium/ebpf"$|&\n\t"github.com/corescope/corescope/internal/tool"|' \
		-e 's|^func loadBpf() (|func loadBpf(which ...tool.Variants) (|' \
		-e '/^\treader := bytes.NewReader(_BpfBytes)$/,/^\treturn spec, err$/c\\treturn tool.LoadObject(_BpfBytes, which...)' \
		-e 's|^//go:embed .*\.o$|&.gz|' "$code"
done
mv bpf_*_bpfel* "$here"
cd "$here"
case $directory in
tools/*) "$root/scripts/record-object.sh" "$source" "$copy/$directory" ;;
esac
