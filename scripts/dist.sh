#!/bin/sh
# Build what a release consists of, in dist/: tarballs, packages and an OCI image for amd64 and arm64, an
# SBOM and checksums. The same commit results in the same bytes in any directory: times are that of the
# commit (SOURCE_DATE_EPOCH). Needs git, Go and its modules. ALLOW_DIRTY=1 accepts uncommitted changes.
set -eu
cd "$(dirname "$0")/.."
root=$PWD

if [ -n "$(git status --porcelain)" ] && [ -z "${ALLOW_DIRTY:-}" ]; then
	echo 'dist: the tree has uncommitted changes: commit them, or set ALLOW_DIRTY=1' >&2
	exit 1
fi
# The length of abbreviated hashes would depend on the objects in the clone.
commit=$(git rev-parse --short=12 HEAD)
describe=$(git describe --tags --long --abbrev=12 --match 'v[0-9]*' 2>/dev/null ||
	echo "v0.0.0-$(git rev-list --count HEAD)-g$commit")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP
CGO_ENABLED=0 go -C scripts/dist build -trimpath -o "$tmp/dist" .
"$tmp/dist" -root "$root" -describe "$describe" -epoch "$SOURCE_DATE_EPOCH" -out "${DIST:-$root/dist}"
