#!/bin/sh
# Install the components that test/fleet uses, in the user's cache: Prometheus from Debian sid, and an
# OpenTelemetry Collector that is built from its modules, which takes some minutes. What is there is not
# installed again.
#
#	scripts/fleet.sh && sudo -E go test ./test/fleet
set -eu
cd "$(dirname "$0")/.."

scripts/fetch-deb.sh sid "$(dpkg --print-architecture)" prometheus

dir=${XDG_CACHE_HOME:-$HOME/.cache}/corescope/fleet
if [ ! -x "$dir/otelcol" ]; then
	mkdir -p "$dir"
	echo 'fleet: building the OpenTelemetry Collector' >&2
	(cd test/fleet/otelcol && CGO_ENABLED=0 GOFLAGS=-trimpath go build -ldflags='-s -w' -o "$dir/otelcol.new" .)
	mv "$dir/otelcol.new" "$dir/otelcol"
fi
echo "$dir/otelcol"
