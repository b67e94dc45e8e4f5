#!/bin/sh
# Generate files from the definitions of the tools: the manual pages, the JSON schemas, the sizes of
# their programs, and the table in the README between <!-- tools --> and <!-- /tools -->.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
CGO_ENABLED=0 go build -o "$tmp/" ./cmd/corescope ./cmd/corescope-agent

mkdir -p man/man1 man/man8 docs/schema
rm -f man/man1/*.1 man/man8/*.8 docs/schema/*.json
"$tmp/corescope" man >man/man1/corescope.1
"$tmp/corescope-agent" --man >man/man8/corescope-agent.8
"$tmp/corescope" list --names >"$tmp/names"
"$tmp/corescope" list --aliases >"$tmp/aliases"
while read -r name; do
	tool=$(sed -n "s/^$name //p" "$tmp/aliases")
	if [ -n "$tool" ]; then
		ln -s "$tool.8" "man/man8/$name.8"
		continue
	fi
	"$tmp/corescope" man "$name" >"man/man8/$name.8"
	"$tmp/corescope" schema "$name" >"docs/schema/$name.json"
done <"$tmp/names"
"$tmp/corescope" schema doctor >docs/schema/doctor.json
"$tmp/corescope" schema prove >docs/schema/prove.json
CGO_ENABLED=0 go test ./tools -run '^(TestInstructions|TestCheatSheet|TestTldr)$' -update >/dev/null

if [ -f README.md ]; then
	"$tmp/corescope" list --markdown >"$tmp/table"
	awk -v table="$tmp/table" '
		/^<!-- \/tools -->/ { inside = 0 }
		!inside
		/^<!-- tools -->/ {
			inside = 1
			while ((getline line <table) > 0)
				print line
		}' README.md >"$tmp/README.md"
	cmp -s "$tmp/README.md" README.md || cat "$tmp/README.md" >README.md
fi
