#!/bin/sh
# Create a tool from internal/template: its directory, its line in the list of tools, its objects and
# its documentation. On an error or a signal, all changes to the tree are undone.
set -eu
cd "$(dirname "$0")/.."

name=${1:-}
case $name in
'' | [!a-z]* | *[!a-z0-9]*)
	echo "usage: make new TOOL=NAME (lower-case letters and digits, starting with a letter)" >&2
	exit 2
	;;
esac
if [ -e "tools/$name" ]; then
	echo "create tools/$name: it exists already" >&2
	exit 1
fi

# The tool is created in a directory that ./... does not match. Its path is as long as the final one,
# because the bytes of an object depend on the length.
stage=_make/$name
saved=$(mktemp -d)
complete=
restore() {
	rm -rf _make
	if [ -z "$complete" ]; then
		rm -rf "tools/$name"
		if [ -e "$saved/man" ]; then
			rm -rf man docs/schema
			cp -a "$saved/." .
		fi
		echo "create tools/$name: failed; all changes are undone" >&2
	fi
	rm -rf "$saved"
}
trap restore EXIT
trap 'exit 1' HUP INT TERM

mkdir -p "$stage"
for part in .bpf.c .go _test.go; do
	sed "s/template/$name/g" "internal/template/template$part" >"$stage/$name$part"
done
scripts/toolchain.sh
go generate "./$stage"
go vet "./$stage"

mkdir -p "$saved/tools" "$saved/docs"
cp -a README.md "$saved"
cp -a docs/schema "$saved/docs"
cp -a tools/tools.go tools/instructions.txt "$saved/tools"
cp -a man "$saved"

# Both lists in tools.go are sorted by name.
LC_ALL=C awk -v import="	\"github.com/corescope/corescope/tools/$name\"" -v entry="		$name.Tool," '
	function put(line) { if (!(line in done)) print line; done[line] }
	/\/tools\/[a-z0-9]+"$/ && $0 > import { put(import) }
	/^\)$/ { put(import) }
	/^\t\t[a-z0-9]+\.Tool,$/ && $0 > entry { put(entry) }
	/^\t}$/ { put(entry) }
	{ print }' tools/tools.go >"_make/tools.go"
mv "$stage" "tools/$name"
mv _make/tools.go tools/tools.go
scripts/docs.sh
complete=yes
echo "created tools/$name; test it with: sudo -E go test ./tools/$name"
