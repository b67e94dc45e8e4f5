#!/bin/sh
# Make a tree with the newest peers, from Debian sid: install.sh TREE. It is not part of
# the system; tests find it by CORESCOPE_PEERS=TREE.
set -eu
tree=$1
[ ! -e "$tree/usr/sbin/opensnoop-libbpf" ] || exit 0
command -v debootstrap >/dev/null || {
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends debootstrap >/dev/null
}
# What was interrupted is begun anew: the tree is there when it is whole.
rm -rf --one-file-system "$tree.part"
mkdir -p "$(dirname "$tree")"
debootstrap --variant=minbase --include=libbpf-tools,bpftrace sid "$tree.part" >/dev/null
rm -rf --one-file-system "$tree"
mv "$tree.part" "$tree"
