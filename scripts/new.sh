#!/bin/sh
# Make a tool from the one in internal/template: its folder, its line in the list of
# tools, its objects and its documentation.
set -eu
cd "$(dirname "$0")/.."

name=${1:-}
case $name in
'' | [!a-z]* | *[!a-z0-9]*)
	echo "usage: make new TOOL=NAME, of small letters and digits" >&2
	exit 2
	;;
esac
if ! mkdir "tools/$name"; then
	echo "make tools/$name: it is there already" >&2
	exit 1
fi

for part in .bpf.c .go _test.go; do
	sed "s/template/$name/g" "internal/template/template$part" >"tools/$name/$name$part"
done

# Both lists in tools.go are in the order of the names.
LC_ALL=C awk -v import="	\"github.com/corescope/corescope/tools/$name\"" -v entry="		$name.Tool," '
	function put(line) { if (!(line in done)) print line; done[line] }
	/\/tools\/[a-z0-9]+"$/ && $0 > import { put(import) }
	/^\)$/ { put(import) }
	/^\t\t[a-z0-9]+\.Tool,$/ && $0 > entry { put(entry) }
	/^\t}$/ { put(entry) }
	{ print }' tools/tools.go >"tools/$name/list"
mv "tools/$name/list" tools/tools.go

scripts/toolchain.sh
go generate "./tools/$name"
scripts/docs.sh
echo "tools/$name is there; now: sudo -E go test ./tools/$name"
