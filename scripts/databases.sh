#!/bin/sh
# Install PostgreSQL and MariaDB of Debian in a root file system of their own, for the tests of
# dbslower and dbstat with real servers, and print its directory. With --path, only print it.
set -eu

exec "$(dirname "$0")/fetch-root.sh" databases trixie "${1:-postgresql}" mariadb-server
