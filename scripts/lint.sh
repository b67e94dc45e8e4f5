#!/bin/sh
# Check the sources with clang-format, staticcheck and the race detector. Nothing is changed.
#
#	scripts/lint.sh			# all checks
#	scripts/lint.sh format|static|race	# one of them
set -eu
cd "$(dirname "$0")/.."

# missing MESSAGE reports a check that cannot run here, which is an error in CI only.
missing() {
	echo "lint: $1" >&2
	[ -z "${CI:-}" ]
}

# The BPF C code of the tools has the format of .clang-format and lines of at most 120 columns.
# clang-format of other versions formats differently.
check_format() {
	if ! command -v clang-format-19 >/dev/null; then
		{
			export DEBIAN_FRONTEND=noninteractive
			apt-get -qq install --no-install-recommends clang-format-19 ||
				{ apt-get -qq update && apt-get -qq install --no-install-recommends clang-format-19; }
		} >/dev/null 2>&1 || {
			missing 'format not checked: cannot install clang-format-19'
			return
		}
	fi
	git ls-files 'bpf/*.h' 'tools/*.[ch]' 'internal/*.c' >"$tmp/sources"
	xargs clang-format-19 --dry-run --Werror <"$tmp/sources" || {
		echo 'lint: wrong format (clang-format-19 -i FILE corrects it)' >&2
		return 1
	}
	while read -r file; do
		expand -t 8 "$file" | awk -v file="$file" 'length($0) > 120 {
			printf "%s:%d: %d columns, more than 120\n", file, NR, length($0)
			long = 1
		}
		END { exit long }' >&2 || return 1
	done <"$tmp/sources"
}

# The version of staticcheck is pinned in scripts/lint.mod, so go.mod has only what corescope needs.
check_static() {
	go tool -modfile=scripts/lint.mod staticcheck ./...
}

# The race detector needs cgo and a C compiler, which the binary must not need, so its tests are
# compiled apart. Only packages that start goroutines are tested, in short mode: compilation and
# tests cost ten times as much as without the detector, and everything else that tools do
# concurrently is done by these packages. Of the tests left out, TestConfine needs a binary
# without cgo (AllThreadsSyscall); the others parse large files in one goroutine.
check_race() {
	if ! command -v gcc >/dev/null; then
		missing 'race detector not run: it needs gcc'
		return
	fi
	CGO_ENABLED=1 go test -race -short -vet=off -count=1 -timeout 20m \
		-skip '^(TestConfine.*|TestUnxz|TestKernelLive|TestGoFunctions.*|TestRelocate)$' \
		./internal/binary ./internal/fetch ./internal/probe ./internal/ring ./internal/stack \
		./internal/metric ./internal/otlp ./internal/prometheus ./internal/push ./internal/pyroscope \
		./internal/source ./internal/stacktrace \
		./internal/system ./internal/tool ./internal/webconfig ./test/summary
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP
export GOFLAGS="-trimpath ${GOFLAGS:-}"

case ${1:-all} in
format) check_format ;;
static) check_static ;;
race) check_race ;;
all)
	failed=
	check_format || failed="$failed format"
	check_static || failed="$failed static"
	check_race || failed="$failed race"
	[ -z "$failed" ] || {
		echo "lint: these checks failed (scripts/lint.sh CHECK repeats one):$failed" >&2
		exit 1
	}
	;;
*)
	echo "usage: $0 [format|static|race]" >&2
	exit 2
	;;
esac
