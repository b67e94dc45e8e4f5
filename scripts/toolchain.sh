#!/bin/sh
# Install the compiler and headers for BPF C, if they are missing.
set -eu

if command -v clang-19 >/dev/null && command -v llvm-strip-19 >/dev/null &&
	[ -f /usr/include/bpf/bpf_helpers.h ]; then
	exit
fi

export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --no-install-recommends clang-19 llvm-19 libbpf-dev >/dev/null
