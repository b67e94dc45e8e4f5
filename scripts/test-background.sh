#!/bin/sh
# The steps of `make test` that need a CPU all the time: compilers and virtual machines. They do
# not observe this machine, so test.sh runs them in the background of the live tests. After a failed
# step the next ones still run. The last lines of each failed step, with its name, are repeated at
# the end, and written to FILE if it is given.
#
#	scripts/test-background.sh [FILE]
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP
failures=${1:-$tmp/failures}
: >"$failures"

# step NAME COMMAND...
step() {
	name=$1
	shift
	code=0
	"$@" >"$tmp/output" 2>&1 || code=$?
	cat "$tmp/output"
	if [ "$code" -ne 0 ]; then
		tail -n 8 "$tmp/output" >>"$failures"
		printf 'FAIL\t%s\t(background step, exit status %d)\n' "$name" "$code" >>"$failures"
	fi
}

step check-generated scripts/check-generated.sh
step vet-arm64 env GOARCH=arm64 go vet ./...
step lint scripts/lint.sh
step site go -C scripts/site test -count=1 ./...
step test-new scripts/test-new.sh
step test-kernels scripts/test-kernels.sh

if [ -s "$failures" ]; then
	cat "$failures"
	exit 1
fi
