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
debootstrap --variant=minbase --include=libbpf-tools,bpftrace sid "$tree" >/dev/null
