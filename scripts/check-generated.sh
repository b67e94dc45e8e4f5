#!/bin/sh
# Prove that what is generated is what `make generate` makes, byte for byte. That takes
# the very compiler it was made with; with another one there is nothing to compare, which
# only CI does not forgive.
set -eu
cd "$(dirname "$0")/.."

scripts/toolchain.sh
here=$(clang-19 --version | head -n 1; dpkg-query -W libbpf-dev)
if [ "$here" != "$(cat scripts/toolchain.version)" ]; then
	printf 'generated files not checked: made with\n%s\nhere is\n%s\n' "$(cat scripts/toolchain.version)" "$here" >&2
	[ -z "${CI:-}" ]
	exit
fi
make --no-print-directory check-generated
