#!/bin/sh
# Install the compilers and interpreters of the test programs.
set -eu
missing=
for pair in gcc:gcc g++:g++ rustc:rustc node:nodejs python3:python3 objcopy:binutils xz:xz-utils; do
	command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
[ -n "$missing" ] || exit 0
apt-get -qq update
# shellcheck disable=SC2086 # a word for each package
DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $missing >/dev/null
