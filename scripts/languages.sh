#!/bin/sh
# Install runtimes of languages in a root file system of their own, for the tests of ucalls, uflow,
# ugc, uobjnew, ustat and uthreads with real runtimes, and print its directory. With --path, only
# print it. Debian 12 has probes in OpenJDK, PHP, Python and Ruby; Debian 13 no longer has those of
# PHP and Ruby. Python 3.9 of Debian 11 is added, because the probe at the entry of functions does
# not fire in Python 3.11.
set -eu

scripts=$(dirname "$0")
root=$("$scripts/fetch-root.sh" languages bookworm "${1:-openjdk-17-jdk-headless}" php-cli ruby nodejs tcl perl python3)
if [ "${1:-}" != --path ] && [ ! -e "$root/usr/bin/python3.9" ]; then
	for package in libpython3.9-minimal libpython3.9-stdlib python3.9-minimal; do
		cp -a "$("$scripts/fetch-deb.sh" bullseye "$(dpkg --print-architecture)" "$package")/usr" "$root"
	done
fi
echo "$root"
