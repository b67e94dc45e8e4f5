#!/bin/sh
# Create a Debian sid tree with the newest peers: install.sh TREE. It is separate from the system;
# tests find it with CORESCOPE_PEERS=TREE.
set -eu
tree=$1
[ ! -e "$tree/usr/sbin/opensnoop-libbpf" ] || exit 0
command -v debootstrap >/dev/null || {
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends debootstrap >/dev/null
}
# An interrupted installation starts from the beginning: the tree gets its name when it is complete.
rm -rf --one-file-system "$tree.part"
mkdir -p "$(dirname "$tree")"
debootstrap --variant=minbase --include=libbpf-tools,bpftrace sid "$tree.part" >/dev/null
rm -rf --one-file-system "$tree"
mv "$tree.part" "$tree"
