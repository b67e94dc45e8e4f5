#!/bin/sh
# Test `make new` in a copy of the tree: the created tool is defined correctly, builds and passes its
# own tests. If make new fails or is interrupted, the tree does not change.
set -eu
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
bin=$(mktemp -d)
trap 'rm -rf "$copy" "$bin"' EXIT
tar -c --exclude=./.git --exclude=./bin . | tar -x -C "$copy"
cd "$copy"

# A replacement of go that fails at one of its commands, or interrupts the script that calls it.
go=$(command -v go)
cat >"$bin/go" <<EOF
#!/bin/sh
case \$1 in
"\$FAIL_AT") exit 1 ;;
"\$INTERRUPT_AT") kill -TERM "\$PPID" ;;
esac
exec "$go" "\$@"
EOF
chmod +x "$bin/go"

tree() { find . -type f -exec sha256sum {} + | sort; }
tree >"$bin/before"
for at in generate vet build; do
	for mode in FAIL_AT INTERRUPT_AT; do
		if env FAIL_AT= INTERRUPT_AT= "$mode=$at" PATH="$bin:$PATH" scripts/new.sh newtool >"$bin/out" 2>&1; then
			echo "new.sh succeeds although go $at fails ($mode)" >&2
			exit 1
		fi
		tree >"$bin/after"
		if ! diff "$bin/before" "$bin/after" >&2; then
			echo "new.sh has changed the tree ($mode=$at)" >&2
			cat "$bin/out" >&2
			exit 1
		fi
	done
done
scripts/new.sh newtool >/dev/null

if [ "$(id -u)" -ne 0 ]; then
	set -- -exec 'sudo -E'
fi
go vet ./tools/newtool
go test -count=1 "$@" -run '^TestFoldersAreListed$|^TestCheck$/newtool' ./tools
go test -count=1 "$@" ./tools/newtool
