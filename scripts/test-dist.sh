#!/bin/sh
# Test what `make dist` builds. Needs root.
#
#	scripts/test-dist.sh			# everything below
#	scripts/test-dist.sh reproducible	# the same bytes from two directories
#	scripts/test-dist.sh debian [SUITE...]	# install, upgrade, remove and purge beside similar packages
#	scripts/test-dist.sh arch		# install and remove with pacman
#	scripts/test-dist.sh image		# digests and programs of the OCI image
#	scripts/test-dist.sh lint		# pacman, lintian, rpmlint, rpm, apk, the unit, checksums
#	scripts/test-dist.sh autopkgtest	# packaging/debian/tests in Debian 13
#	scripts/test-dist.sh service		# the agent's service under systemd (scripts/test-service.sh)
#
# It tests HEAD; DIST=DIRECTORY tests the artifacts in that directory instead. Trees of Debian are kept in
# corescope/dist in the user's cache; MIRROR, COMPONENTS and SCRIPT (scripts/fetch-root.sh) select those of
# Ubuntu. RPM-based distributions and Alpine have no tree: .rpm are installed with Debian's rpm into a root with
# busybox only, and the format of .apk is checked (scripts/dist/apk_test.go), and they are unpacked into such a root.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
suites='bookworm trixie sid'

fail() {
	echo "test-dist: $*" >&2
	exit 1
}

# The commands that run inside a tree, with the artifacts in /dist.

version_of() { dpkg-deb -f "$1" Version; }

# explain COMMAND prints the tools whose --explain fails: name, exit status and last line. COMMAND is what precedes
# the name of a tool, such as "corescope " or "corescope-".
explain() {
	before=$1
	# shellcheck disable=SC2086 # several words
	for name in $(${before%[ -]} list --names); do
		case $name in
		argdist) set -- -C vfs_read ;;
		dirtop) set -- -d / ;;
		resettrace | reset-trace) continue ;; # needs tracefs, which other processes can mount meanwhile
		inject) set -- --dry-run bio 'vfs_read()' ;;
		funccount | funcinterval | funclatency | funcslower | ksnoop | stackcount | stacksnoop | trace) set -- vfs_read ;;
		*) set -- ;;
		esac
		code=0
		$before$name --explain "$@" >/tmp/explained 2>&1 || code=$?
		[ "$code" -eq 0 ] || echo "$name $code $(tail -n 1 /tmp/explained)"
	done
}

# explained COMMAND checks that --explain fails for the tools that it fails for outside of the tree: that depends on
# the kernel.
explained() {
	explain "$1" >/tmp/inside
	for file in /dist/.explained /tmp/inside; do
		cut -d ' ' -f 1,2 "$file" >"/tmp/codes.$(basename "$file")"
	done
	diff /tmp/codes..explained /tmp/codes.inside || fail "--explain differs from that outside of the tree: $(cat /tmp/inside)"
}

# older PACKAGE.deb makes an older version in /old, whose tools include one that the new version lacks.
older() {
	work=/old/work
	mkdir -p "$work"
	dpkg-deb -R "$1" "$work"
	sed -i -e 's/^Version: .*/Version: 0.0.0~old/' -e 's/corescope (= .*)/corescope (= 0.0.0~old)/' "$work/DEBIAN/control"
	if [ -L "$work/usr/bin/corescope-execsnoop" ]; then
		ln -s corescope "$work/usr/bin/corescope-oldtool"
		sed -i 's/for name in argdist/for name in oldtool argdist/' "$work/DEBIAN/postinst" "$work/DEBIAN/prerm"
	fi
	dpkg-deb --root-owner-group -Zgzip -b "$work" "/old/$(basename "$1")" >/dev/null
	rm -rf "$work"
}

# Files of the system that packages can leave behind.
listing() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /dist -o -path /old -o -path /tmp \
		-o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /run \) -prune -o -print | sort
}

# Ubuntu has no libbpf-tools.
similar() { dpkg-query -W -f '${Package}\n' | grep -Ex 'bpfcc-tools|libbpf-tools|bpftrace'; }

intact() {
	# shellcheck disable=SC2046 # one word per package
	changed=$(dpkg --verify $(similar))
	[ -z "$changed" ] || fail "$1 changed files of other packages: $changed"
}

inside_debian() {
	mkdir /old
	for package in /dist/*_amd64.deb /dist/*_all.deb; do
		older "$package"
	done
	listing >/tmp/before
	dpkg -i /old/*.deb >/tmp/log 2>&1 || fail "install: $(cat /tmp/log)"
	intact install
	[ -L /usr/bin/oldtool ] || fail 'the older version has no alternative oldtool'
	[ "$(readlink -f /usr/bin/opensnoop)" = /usr/bin/corescope ] || fail 'opensnoop is not corescope'
	echo '# changed' >>/etc/corescope/agent.yaml

	dpkg -i /dist/*_amd64.deb /dist/*_all.deb >/tmp/log 2>&1 || fail "upgrade: $(cat /tmp/log)"
	intact upgrade
	! grep -i 'warning' /tmp/log || fail 'the upgrade printed warnings'
	[ ! -L /usr/bin/oldtool ] || fail 'the alternative of a removed tool exists after the upgrade'
	tail -n 1 /etc/corescope/agent.yaml | grep -q changed || fail 'the upgrade replaced the configuration'

	corescope list >/tmp/out
	grep -q ' execsnoop ' /tmp/out || fail 'corescope list does not list execsnoop'
	for name in $(corescope list --names); do
		"corescope-$name" --help >/tmp/out || fail "corescope-$name --help failed"
		grep -q . /tmp/out || fail "corescope-$name --help printed nothing"
		man --warnings "corescope-$name" >/tmp/out 2>/tmp/err || fail "man corescope-$name failed"
		grep -q NAME /tmp/out || fail "man corescope-$name printed: $(cat /tmp/err)"
		case $(readlink "/usr/bin/$name" || true) in
		/etc/alternatives/*) [ "$(readlink -f "/usr/bin/$name")" = /usr/bin/corescope ] || fail "$name is not corescope" ;;
		esac
	done
	for name in trace tcpconnect maps files tasks profile; do
		[ ! -L "/etc/alternatives/$name" ] || fail "$name is an alternative"
	done
	for page in corescope corescope-agent; do
		man "$page" >/tmp/out 2>/dev/null || fail "man $page failed"
	done
	explained corescope-
	corescope-agent --check || fail 'the agent refuses its configuration'
	bash -n /usr/share/bash-completion/completions/corescope-tools

	dpkg -r corescope-tools corescope-agent corescope >/tmp/log 2>&1 || fail "remove: $(cat /tmp/log)"
	intact remove
	[ -e /etc/corescope/agent.yaml ] || fail 'remove deleted the configuration'
	dpkg -P corescope-tools corescope-agent corescope >/tmp/log 2>&1 || fail "purge: $(cat /tmp/log)"
	listing >/tmp/after
	diff /tmp/before /tmp/after || fail 'files differ after purge'
	intact purge

	# Without the agent and the names.
	dpkg -i "/dist/"corescope_*_amd64.deb >/tmp/log 2>&1 || fail "install of corescope alone: $(cat /tmp/log)"
	corescope execsnoop --explain >/dev/null
	dpkg -P corescope >/tmp/log 2>&1
	# An interrupted removal.
	dpkg -i /dist/*_amd64.deb /dist/*_all.deb >/tmp/log 2>&1
	dpkg -P corescope-agent >/tmp/log 2>&1 || fail "purge without remove: $(cat /tmp/log)"
	[ ! -e /etc/corescope ] || fail 'purge left /etc/corescope'
	dpkg -P corescope-tools corescope >/tmp/log 2>&1
}

inside_lint() {
	lintian --fail-on error --tag-display-limit 5 /dist/*.deb
	rpmlint -r /dist/.rpmlintrc /dist/*.rpm >/tmp/log 2>&1 || { grep ' E: ' /tmp/log; fail "rpmlint: $(tail -n 3 /tmp/log)"; }
	tail -n 1 /tmp/log
	inside_rpm
	# The unit starts a program that must exist.
	dpkg -i /dist/corescope-agent_*_amd64.deb >/dev/null
	systemd-analyze verify --man=no /usr/lib/systemd/system/corescope-agent.service
}

inside_rpm() {
	host=x86_64
	# Before version 4.20, the rpm of Debian refused to install anything without this option.
	force=
	! rpm --help | grep -q -e --force-debian || force=--force-debian
	rpm --initdb
	for package in /dist/*.rpm; do
		rpm -K --nosignature "$package" >/dev/null || fail "rpm -K $package"
		[ "$(rpm -qp --qf '%{BUILDHOST}' "$package")" = localhost ] || fail "$package names the machine that built it"
	done
	rpm -i --nodeps $force "/dist/"*".$host.rpm" /dist/*.noarch.rpm
	[ "$(readlink -f /usr/bin/execsnoop)" = /usr/bin/corescope ] || fail 'rpm: execsnoop is not corescope'
	corescope list >/dev/null
	corescope-agent --check
	rpm -U --nodeps --force $force "/dist/"*".$host.rpm" /dist/*.noarch.rpm
	[ "$(readlink -f /usr/bin/execsnoop)" = /usr/bin/corescope ] || fail 'rpm: execsnoop is not corescope after an upgrade'
	rpm -e --nodeps $force corescope-tools corescope-agent corescope
	[ ! -e /usr/bin/corescope ] && [ ! -L /usr/bin/execsnoop ] || fail 'rpm: removal left files'

	# A distribution that has nothing but a shell, and no alternatives.
	empty_root /empty
	rpm --root /empty --initdb
	find /empty -xdev -path /empty/var/lib/rpm -prune -o -print | sort >/tmp/before
	rpm --root /empty -i --nodeps $force "/dist/"*".$host.rpm" /dist/*.noarch.rpm 2>/tmp/err || fail "rpm --root: $(cat /tmp/err)"
	grep -v '^warning:' /tmp/err && fail 'rpm --root: the installation printed messages'
	programs_run /empty
	rpm --root /empty -V --nodeps corescope corescope-tools corescope-agent || fail 'rpm -V'
	echo '# changed' >>/empty/etc/corescope/agent.yaml
	rpm --root /empty -U --nodeps --force $force "/dist/"*".$host.rpm" /dist/*.noarch.rpm
	tail -n 1 /empty/etc/corescope/agent.yaml | grep -q changed || fail 'rpm: the upgrade replaced the configuration'
	programs_run /empty
	rpm --root /empty -e --nodeps $force corescope-tools corescope-agent corescope
	rm -f /empty/etc/corescope/agent.yaml.rpmsave
	find /empty -xdev -path /empty/var/lib/rpm -prune -o -print | sort >/tmp/after
	! grep -v -x -F -f /tmp/before /tmp/after | grep corescope | grep -v '^/empty/etc/corescope$' || fail 'rpm: removal left files'
	[ "$(rpm --root /empty -qa)" = '' ] || fail 'rpm: packages remain'
}

# empty_root DIRECTORY makes a root with a static busybox and nothing else.
empty_root() {
	mkdir -p "$1"
	mount --bind "$1" "$1" # dirtop wants the mount of /
	mkdir -p "$1/bin" "$1/tmp" "$1/proc" "$1/sys" "$1/dev"
	cp /dist/.busybox "$1/bin/busybox"
	ln -s busybox "$1/bin/sh"
	for directory in proc sys dev; do
		mount --rbind "/$directory" "$1/$directory"
	done
}

# programs_run ROOT runs the programs that are installed in an empty root.
programs_run() {
	explained "chroot $1 /usr/bin/corescope "
	for name in $(chroot "$1" /usr/bin/corescope list --names); do
		chroot "$1" "/usr/bin/corescope-$name" --help >/tmp/out || fail "$1: corescope-$name --help"
	done
	chroot "$1" /usr/bin/corescope-agent --check || fail "$1: the agent refuses its configuration"
}

inside_apk() {
	empty_root /alpine
	for package in /dist/*_x86_64.apk /dist/*_all.apk /dist/*_noarch.apk; do
		[ -e "$package" ] || continue
		tar -C /alpine --warning=no-unknown-keyword --exclude=.PKGINFO -xzf "$package" || fail "unpack $package"
	done
	programs_run /alpine
}

# The autopkgtest of packaging/debian with the packages of make dist. It wants a machine of its own; that the
# programs run on this kernel is no harm.
inside_autopkgtest() {
	mkdir /source
	cp -r /dist/.debian /source/debian
	autopkgtest --ignore-restrictions=isolation-machine --output-dir /tmp/results --no-built-binaries \
		/dist/*_amd64.deb /dist/*_all.deb /source -- null >/tmp/log 2>&1 || fail "autopkgtest: $(tail -n 40 /tmp/log)"
	grep -q '^tools *PASS$' /tmp/results/summary || fail "autopkgtest: $(cat /tmp/results/summary)"
	cat /tmp/results/summary
}

inside_pacman() {
	mkdir -p /var/lib/pacman
	sed -i /CheckSpace/d /etc/pacman.conf # the tree has no /etc/mtab
	pacman -U --noconfirm --noprogressbar -dd /dist/*-x86_64.pkg.tar.zst /dist/*-any.pkg.tar.zst >/tmp/log 2>&1 || fail "pacman: $(cat /tmp/log)"
	pacman -Qkk corescope corescope-tools corescope-agent >/tmp/out 2>&1 || fail "pacman -Qkk: $(cat /tmp/out)"
	corescope-execsnoop --help >/dev/null
	corescope-agent --check
	pacman -Rn --noconfirm corescope-tools corescope-agent corescope >/tmp/log 2>&1 || fail "pacman: $(cat /tmp/log)"
	[ ! -e /usr/bin/corescope ] || fail 'pacman: removal left files'
}

if [ "${1:-}" = --inside ]; then
	"inside_$2"
	exit
fi

# The commands that run outside.

[ "$(id -u)" -eq 0 ] || fail 'needs root to build root file systems and to mount'
work=$(mktemp -d "${XDG_CACHE_HOME:-$HOME/.cache}/corescope/test-dist.XXXXXX")
# Mounts exist only in the namespace of the tree, so only plain files are removed here.
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP

# build DIRECTORY builds HEAD in a clone at that directory.
build() {
	git clone -q --no-hardlinks "$root" "$1"
	DIST="$1.out" "$1/scripts/dist.sh"
}

reproducible() {
	[ -n "${DIST:-}" ] || { build "$work/a" && DIST=$work/a.out; }
	build "$work/a longer path/b"
	diff "$DIST/SHA256SUMS" "$work/a longer path/b.out/SHA256SUMS" || fail 'two directories produce different bytes'
	echo "test-dist: $(wc -l <"$DIST/SHA256SUMS") artifacts are equal"
}

# prepare makes what all trees need: the result of --explain on this system, and a static busybox.
prepare() {
	[ ! -e "$work/explained" ] || return 0
	mkdir "$work/here"
	tar -C "$work/here" --strip-components=1 -xzf "$DIST"/corescope-*-linux-amd64.tar.gz
	explain "$work/here/bin/corescope " >"$work/explained"
	! grep ' [123] ' "$work/explained" || fail '--explain of these tools fails'
	cp "$(scripts/fetch-deb.sh bookworm amd64 busybox-static)/bin/busybox" "$work/busybox"
}

# within TREE COMMAND runs a command of this script in a copy of a tree.
within() {
	prepare
	rm -rf --one-file-system "$work/tree"
	cp -a "$1" "$work/tree"
	mkdir "$work/tree/dist"
	cp "$DIST"/* "$work/tree/dist"
	cp "$root/packaging/rpmlintrc" "$work/tree/dist/.rpmlintrc"
	cp -r "$root/packaging/debian" "$work/tree/dist/.debian"
	cp "$work/explained" "$work/tree/dist/.explained"
	cp "$work/busybox" "$work/tree/dist/.busybox"
	cp "$root/scripts/test-dist.sh" "$work/tree/test-dist.sh"
	# shellcheck disable=SC2016
	env -i HOME=/root TERM=dumb LANG=C.UTF-8 MANPAGER=cat DEBIAN_FRONTEND=noninteractive \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		unshare --mount --propagation private sh -euc '
			mount --bind "$1" "$1"
			mount -t proc proc "$1/proc"
			mount --rbind /sys "$1/sys"
			mount --rbind /dev "$1/dev"
			mkdir "$1/old-root"
			cd "$1"
			pivot_root . old-root
			umount -l /old-root
			rmdir /old-root
			cd /
			rm -f /test-dist.copy
			sed "s|^cd \"\$(dirname \"\$0\")/..\"|cd /|" /test-dist.sh >/tmp/test-dist.sh
			rm /test-dist.sh
			sh /tmp/test-dist.sh --inside "$2"
		' sh "$work/tree" "$2"
}

debian() {
	for suite in ${*:-$suites}; do
		others='bpfcc-tools libbpf-tools bpftrace'
		[ -z "${MIRROR:-}" ] || others='bpfcc-tools bpftrace'
		# shellcheck disable=SC2086 # one word per package
		tree=$(scripts/fetch-root.sh "dist/$suite" "$suite" man-db ca-certificates $others)
		within "$tree" debian
		echo "test-dist: $suite: installed, upgraded, removed and purged"
	done
}

autopkgtest() {
	within "$(scripts/fetch-root.sh dist/autopkgtest trixie autopkgtest dpkg-dev man-db)" autopkgtest
	echo 'test-dist: the autopkgtest passed'
}

arch_linux() {
	within "$(scripts/fetch-root.sh dist/pacman bookworm pacman-package-manager libarchive-tools zstd)" pacman
	echo 'test-dist: pacman installed and removed the packages'
}

# image checks the digests of the image, and runs the program of this machine's architecture from it.
image() {
	mkdir "$work/image"
	tar -C "$work/image" -xf "$DIST"/corescope-*-oci.tar
	blobs=$work/image/blobs/sha256 ran=0
	grep -q '"org.opencontainers.image.ref.name"' "$work/image/index.json" || fail 'the image has no name'
	for blob in "$blobs"/*; do
		[ "$(sha256sum <"$blob" | cut -d ' ' -f 1)" = "${blob##*/}" ] || fail "image: wrong digest of $blob"
		if gzip -t "$blob" 2>/dev/null; then
			mkdir "$work/layer"
			tar -C "$work/layer" -xzf "$blob"
			[ -s "$work/layer/etc/ssl/certs/ca-certificates.crt" ] || fail 'image: no certificates'
			if chroot "$work/layer" /usr/bin/corescope list >/dev/null 2>&1 && chroot "$work/layer" /usr/bin/corescope-agent --version >/dev/null; then
				ran=$((ran + 1))
			fi
			rm -r "$work/layer"
		fi
	done
	[ "$ran" -ge 1 ] || fail 'image: no program runs on this machine'
	for arch in amd64 arm64; do
		grep -lq "\"architecture\": *\"$arch\"" "$blobs"/* || fail "image: no $arch"
	done
	echo 'test-dist: the image has both architectures, and its programs run'
}

lint() {
	(cd "$DIST" && sha256sum --quiet -c SHA256SUMS)
	tree=$(scripts/fetch-root.sh dist/lint trixie lintian rpmlint rpm dpkg-dev systemd)
	within "$tree" lint
	within "$tree" apk
	arch_linux
	image
	DIST=$(realpath "$DIST") go -C scripts/dist test -count=1 -run TestAPK .
	echo 'test-dist: packages, unit and checksums are correct'
}

command=${1:-all}
[ $# -eq 0 ] || shift
case $command in
reproducible) reproducible ;;
debian | autopkgtest | lint | arch | image | service | all)
	if [ "$command" = all ]; then
		go -C scripts/dist test ./...
		reproducible
	fi
	[ -n "${DIST:-}" ] || { build "$work/a" && DIST=$work/a.out; }
	case $command in
	all)
		debian
		autopkgtest
		lint
		scripts/test-service.sh "$DIST"
		;;
	arch) arch_linux ;;
	service) scripts/test-service.sh "$DIST" ;;
	*) "$command" "$@" ;;
	esac
	;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
