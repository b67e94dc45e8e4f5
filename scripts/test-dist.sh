#!/bin/sh
# Test what `make dist` builds. Needs root.
#
#	scripts/test-dist.sh			# everything below
#	scripts/test-dist.sh reproducible	# the same bytes from two directories
#	scripts/test-dist.sh debian [SUITE...]	# install, upgrade, remove and purge beside similar packages
#	scripts/test-dist.sh arch		# install and remove with pacman
#	scripts/test-dist.sh image		# digests and programs of the OCI image
#	scripts/test-dist.sh lint		# pacman, lintian, rpmlint, rpm, the unit, versions of apk, checksums
#
# It tests HEAD; DIST=DIRECTORY tests the artifacts in that directory instead. Trees of Debian are kept in
# corescope/dist in the user's cache. apk and RPM-based distributions have no tree: .rpm are installed with
# Debian's rpm, and of .apk only the metadata is tested.
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

intact() {
	changed=$(dpkg --verify bpfcc-tools libbpf-tools bpftrace)
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
	for name in execsnoop opensnoop runqlat; do
		"/usr/bin/$name" --explain >/tmp/out 2>&1 || fail "$name --explain: $(cat /tmp/out)"
	done
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
	rpm --initdb
	for package in /dist/*.rpm; do
		rpm -K --nosignature "$package" >/dev/null || fail "rpm -K $package"
		[ "$(rpm -qp --qf '%{BUILDHOST}' "$package")" = localhost ] || fail "$package names the machine that built it"
	done
	rpm -i --nodeps --force-debian "/dist/"*".$host.rpm" /dist/*.noarch.rpm
	[ "$(readlink -f /usr/bin/execsnoop)" = /usr/bin/corescope ] || fail 'rpm: execsnoop is not corescope'
	corescope list >/dev/null
	corescope-agent --check
	rpm -U --nodeps --force --force-debian "/dist/"*".$host.rpm" /dist/*.noarch.rpm
	[ "$(readlink -f /usr/bin/execsnoop)" = /usr/bin/corescope ] || fail 'rpm: execsnoop is not corescope after an upgrade'
	rpm -e --nodeps --force-debian corescope-tools corescope-agent corescope
	[ ! -e /usr/bin/corescope ] && [ ! -L /usr/bin/execsnoop ] || fail 'rpm: removal left files'
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

# within TREE COMMAND runs a command of this script in a copy of a tree.
within() {
	rm -rf --one-file-system "$work/tree"
	cp -a "$1" "$work/tree"
	mkdir "$work/tree/dist"
	cp "$DIST"/* "$work/tree/dist"
	cp "$root/packaging/rpmlintrc" "$work/tree/dist/.rpmlintrc"
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
		tree=$(scripts/fetch-root.sh "dist/$suite" "$suite" man-db bpfcc-tools libbpf-tools bpftrace ca-certificates)
		within "$tree" debian
		echo "test-dist: $suite: installed, upgraded, removed and purged"
	done
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
	within "$(scripts/fetch-root.sh dist/lint trixie perl-openssl-defaults lintian rpmlint rpm dpkg-dev systemd)" lint
	arch_linux
	image
	for package in "$DIST"/*.apk; do
		tar -xOzf "$package" .PKGINFO 2>/dev/null | grep -Eq '^pkgver = [0-9]+(\.[0-9]+)*(_(alpha|beta|rc|git)[0-9]*)*-r[0-9]+$' ||
			fail "$package: version is not one of apk"
	done
	echo 'test-dist: packages, unit and checksums are correct'
}

command=${1:-all}
[ $# -eq 0 ] || shift
case $command in
reproducible) reproducible ;;
debian | lint | arch | image | all)
	if [ "$command" = all ]; then
		go -C scripts/dist test ./...
		reproducible
	fi
	[ -n "${DIST:-}" ] || { build "$work/a" && DIST=$work/a.out; }
	case $command in
	all)
		debian
		lint
		;;
	arch) arch_linux ;;
	*) "$command" "$@" ;;
	esac
	;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
