#!/bin/sh
# Install the compiler and headers for BPF C, if they are missing. With CLANG set (scripts/bpf2go.sh),
# nothing is installed.
set -eu

if [ -n "${CLANG:-}" ]; then
	command -v "$CLANG" >/dev/null || { echo "toolchain: $CLANG (variable CLANG) is not installed" >&2; exit 1; }
	exit
fi
if command -v clang-19 >/dev/null && command -v llvm-strip-19 >/dev/null &&
	[ -f /usr/include/bpf/bpf_helpers.h ]; then
	exit
fi

export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --no-install-recommends clang-19 llvm-19 libbpf-dev >/dev/null
