#!/bin/sh
# Rebuild all BPF objects with a compiler and the libbpf headers of a Debian suite, as a distribution does:
# from HEAD with vendored modules, without a network. Then test them on this kernel: `corescope prove`, and
# the live tests of the tools. Needs root.
#
#	scripts/test-rebuild.sh SUITE CLANG [TOOL...]
#	scripts/test-rebuild.sh trixie clang-18 opensnoop profile
#
# Go is that of this machine. The tests of the given tools run, by default those of some tools of each kind.
# The last lines are the number of objects, the compiler, and the results.
set -eu
cd "$(dirname "$0")/.."

[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
suite=$1 clang=$2
shift 2
[ $# -gt 0 ] || set -- biolatency cachestat execsnoop futexctn opensnoop profile runqlat sockets syscount tcplife tcptop trace

fail() {
	echo "test-rebuild: $*" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || fail 'needs root to build a root file system and to load programs'
tree=$(scripts/fetch-root.sh "dist/rebuild-$suite-$clang" "$suite" "$clang" "llvm${clang#clang}" libbpf-dev)
work=$(mktemp -d "${XDG_CACHE_HOME:-$HOME/.cache}/corescope/test-rebuild.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP

mkdir "$work/source"
git archive HEAD | tar -x -C "$work/source"
GOFLAGS='' go -C "$work/source" mod vendor
# What the tree has of these objects must not be used again.
rm "$work/source"/tools/*/bpf_*.o.gz
: >"$work/source/tools/objects.txt"
env -i HOME=/tmp LANG=C.UTF-8 PATH=/srv/bin:/usr/sbin:/usr/bin:/sbin:/bin CLANG="$clang" \
	GOFLAGS='-mod=vendor -trimpath' GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0 \
	unshare --mount --net --propagation private sh -euc '
		mount --bind "$2" "$1/mnt"
		mount --bind "$3" "$1/srv"
		mount -t tmpfs tmpfs "$1/tmp"
		mount -t proc proc "$1/proc"
		mount --rbind /dev "$1/dev"
		exec chroot "$1" sh -euc "cd /mnt; go list -e ./tools/... | xargs -n 8 go generate"
	' sh "$tree" "$work/source" "$(go env GOROOT)"

cd "$work/source"
export GOFLAGS='-mod=vendor -trimpath' GOPROXY=off CGO_ENABLED=0
go build -ldflags '-s -w' -o "$work/corescope" ./cmd/corescope
objects=$(cut -f 1 tools/objects.txt | sort -u | wc -l)
[ "$objects" -eq "$(git -C "$OLDPWD" show HEAD:tools/objects.txt | wc -l)" ] || fail "only $objects tools have objects"
[ "$(cut -f 2 tools/objects.txt | sort -u | wc -l)" -eq 1 ] || fail 'several compilers built the objects'
result=0
"$work/corescope" prove >"$work/prove" 2>&1 || { result=1; grep -i contradict "$work/prove"; }
for tool; do
	go test -vet=off -count=1 -timeout 20m "./tools/$tool" || result=1
done
echo "test-rebuild: $objects objects by $(cut -f 2,3 tools/objects.txt | sort -u | tr '\t' ' '); $(stat -c %s "$work/corescope") bytes"
tail -n 3 "$work/prove"
exit "$result"
