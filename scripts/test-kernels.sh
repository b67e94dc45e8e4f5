#!/bin/sh
# Run the live tests of some tools of each kind on the oldest and the newest kernel of test/kernels,
# with the default attach types. This takes some minutes; `make test-kernels` runs everything and
# takes hours. If the emulator or a kernel is not available, this is an error in CI only.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/kernels" ./test/kernels

code=0
TOOLS="biolatency execsnoop opensnoop runqlat tcplife cachestat profile sockets syscount tcptop trace" \
	SHORT=1 KERNELS="5.10 7.2" "$tmp/kernels" || code=$?
if [ "$code" -eq 3 ] && [ -z "${CI:-}" ]; then
	echo 'test-kernels: skipped: the emulator or a kernel is not available' >&2
	exit
fi
exit "$code"
