#!/bin/sh
# Check and test everything, the live tests as root on the running kernel.
# Arguments go to go test. The last lines are go test's own.
set -eu
cd "$(dirname "$0")/.."

# A service may run this without a home, where go keeps its caches.
export HOME="${HOME:-${TMPDIR:-/tmp}/corescope-home}"
export CGO_ENABLED=0

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	printf 'not formatted (gofmt -w does it):\n%s\n' "$unformatted" >&2
	exit 1
fi
scripts/check-generated.sh
go vet ./...
GOARCH=arm64 go vet ./...
scripts/test-new.sh
scripts/test-kernels.sh

# Tests are compiled by the caller, so that root leaves nothing in his caches.
if [ "$(id -u)" -ne 0 ]; then
	set -- -exec 'sudo -E' "$@"
fi
# What a live test saw of the kernel is never taken from a cache. Benchmarks run once,
# so that they do not rot.
# One package at a time: the tools watch the whole machine, and some measure it.
exec go test -count=1 -p 1 -bench . -benchtime 1x "$@" ./...
