#!/bin/sh
# Compile a tool's BPF C for each architecture. In a tool's folder:
#
#	//go:generate ../../scripts/bpf2go.sh NAME.bpf.c
#
# makes bpf_{x86,arm64}_bpfel.{go,o}. More arguments go to bpf2go (-type ...).
# The C file has "//go:build ignore" and an empty line after its SPDX line, or
# Go takes it for cgo.
# All flags are here so that every object is made alike: the same source gives
# the same bytes in any checkout. -mcpu=v3 is understood from kernel 5.1 on.
set -eu

root=$(realpath --relative-to=. "$(dirname "$0")/..")
source=$1
shift

# Relative -I, as paths are kept in the objects' BTF line info.
exec go tool bpf2go -cc clang-19 -strip llvm-strip-19 \
	-target amd64,arm64 -tags linux -no-global-types "$@" bpf "$source" -- \
	-mcpu=v3 -Wall -Werror "-I$root/bpf" "-I$root/vmlinux"
