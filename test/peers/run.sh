#!/bin/sh
# Run a command of another Debian tree on this kernel: run.sh TREE COMMAND [ARG ...]. The mounts are
# in a private mount namespace and disappear when the command exits.
set -eu
exec unshare -m sh -euc '
tree=$1
shift
for dir in proc sys dev; do
	mount --rbind "/$dir" "$tree/$dir"
done
if ! mountpoint -q "$tree/sys/kernel/tracing"; then
	mount -t tracefs tracefs "$tree/sys/kernel/tracing"
fi
exec chroot "$tree" "$@"
' sh "$@"
