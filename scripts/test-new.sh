#!/bin/sh
# Try `make new` in a copy of the tree: the tool that it makes is well stated, builds and
# passes its own tests.
set -eu
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar -c --exclude=./.git --exclude=./bin . | tar -x -C "$copy"
cd "$copy"
scripts/new.sh newtool >/dev/null

if [ "$(id -u)" -ne 0 ]; then
	set -- -exec 'sudo -E'
fi
go vet ./tools/newtool
go test -count=1 "$@" -run '^TestFoldersAreListed$|^TestCheck$/newtool' ./tools
go test -count=1 "$@" ./tools/newtool
