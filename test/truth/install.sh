#!/bin/sh
# Install the references that are missing.
set -eu
missing=
for pair in strace:strace perf:linux-perf fio:fio ss:iproute2 lsof:lsof ps:procps \
	bpftool:bpftool valgrind:valgrind cc:build-essential readelf:binutils openssl:openssl curl:curl tcpdump:tcpdump git:git xz:xz-utils javac:default-jdk-headless; do
	command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
[ -n "$missing" ] || exit 0
apt-get -qq update
# shellcheck disable=SC2086 # one word per package
DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $missing >/dev/null
