#!/bin/sh
# Check that the generated files are equal to the output of `make generate`, byte for byte. This runs
# in a copy of the files in git, so the tree can be built and tested at the same time. It needs the
# compiler that the files were generated with. If that is not installed, the check is skipped, which
# is an error in CI.
set -eu
cd "$(dirname "$0")/.."

unset CLANG LLVM_STRIP LLVM_OBJCOPY
scripts/toolchain.sh
here=$(clang-19 --version | head -n 1; dpkg-query -W libbpf-dev)
if [ "$here" != "$(cat scripts/toolchain.version)" ]; then
	printf 'generated files not checked: they need\n%s\nbut this machine has\n%s\n' "$(cat scripts/toolchain.version)" "$here" >&2
	[ -z "${CI:-}" ]
	exit
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' INT TERM HUP
git ls-files -z | tar -c --null -T - | tar -x -C "$copy"
cd "$copy"
git init -q
git add -A -f
git -c user.name=check -c user.email=check@localhost commit -q -m copy
# Go can use its build cache only if objects do not contain the path of the copy.
export GOFLAGS="-trimpath ${GOFLAGS:-}"
make --no-print-directory check-generated
