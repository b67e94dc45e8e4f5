#!/bin/sh
# Test the unit of corescope-agent under a real systemd: Debian in an emulated machine with a kernel of
# Debian. Needs root. DIRECTORY has the packages of make dist.
#
#	scripts/test-service.sh DIRECTORY
#
# The packages are installed, upgraded, removed and purged there, with the service running. Privileges and
# sandbox of the service are those that the unit states, its tools work with them, and it is restarted and
# reloaded. SUITE selects another suite of Debian than trixie. A machine takes some minutes. If Debian or
# the emulator cannot be installed, the exit status is 3, and the message names the command that failed.
set -eu

fail() {
	echo "test-service: $*" >&2
	exit 1
}

unit=corescope-agent.service

# The commands that run in the machine, by a unit.

property() { systemctl show --value --property "$1" "$unit"; }
status() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$(property MainPID)/status"; }
metrics() { curl -sS --fail http://127.0.0.1:9760/metrics; }

# metric NAME prints the sum of the series of a metric.
metric() { metrics | awk -v name="$1" '$1 == name || index($1, name "{") == 1 { sum += $2 } END { printf "%d\n", sum }'; }

# await WHAT COMMAND... repeats a command until it succeeds.
await() {
	what=$1 tries=0
	shift
	until "$@" >/tmp/await 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 600 ] || fail "$what: $(cat /tmp/await; systemctl status --no-pager -n 30 "$unit")"
		sleep 0.5
	done
}

ready() { curl -sS --fail-with-body http://127.0.0.1:9760/readyz; }
active() { systemctl is-active "$unit"; }
restarted() { [ "$(property MainPID)" != 0 ] && [ "$(property MainPID)" != "$pid" ] && ready; }
counted() { [ "$(metric "$1")" -ge "$2" ]; }
failed() { [ "$(property ActiveState)" = failed ]; }

# confined reports what the process of the service cannot do.
confined() {
	pid=$(property MainPID)
	uid=$(status Uid)
	[ "$uid" -ge 61184 ] && [ "$uid" -le 65519 ] || fail "the user of the service is $uid, not a dynamic user"
	# CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF
	want=$(printf '%016x' $((1 << 2 | 1 << 19 | 1 << 38 | 1 << 39)))
	for set in CapPrm CapEff CapBnd; do
		[ "$(status $set)" = "$want" ] || fail "$set is not $want: $(grep Cap "/proc/$pid/status")"
	done
	[ "$(status NoNewPrivs)" = 1 ] || fail 'the service can get new privileges'
	[ "$(status Seccomp)" = 2 ] || fail 'no filter of system calls'
	! nsenter -t "$pid" -m test -e /dev/vda || fail 'the service sees devices'
	nsenter -t "$pid" -m test -e /dev/null || fail 'the service has no /dev/null'
	for directory in /usr /etc /home /var; do
		! nsenter -t "$pid" -m touch "$directory/written" 2>/dev/null || fail "the service can write to $directory"
	done
	nsenter -t "$pid" -m touch /tmp/written
	[ ! -e /tmp/written ] || fail 'the service has no /tmp of its own'
	[ "$(cat "/sys/fs/cgroup$(property ControlGroup)/memory.max")" = 268435456 ] || fail 'no limit of memory'
}

# works reports that the tools see what the machine does.
works() {
	await 'the tools are not ready' ready
	before=$(metric corescope_execsnoop_events_total)
	for _ in $(seq 50); do
		/bin/true
	done
	await "execsnoop did not count 50 programs after $before" counted corescope_execsnoop_events_total $((before + 50))
	await 'runqlat counted nothing' counted corescope_runqlat_duration_seconds_count 1
}

inside() {
	exec </dev/null
	dpkg -i /dist/old/*.deb >/tmp/log 2>&1 || fail "install: $(cat /tmp/log)"
	[ "$(systemctl is-enabled "$unit")" = enabled ] || fail "the unit is $(systemctl is-enabled "$unit") after the installation"
	await 'the service is not active after the installation' active
	works
	confined
	echo "test-service: $(cat /etc/debian_version), Linux $(uname -r), $(systemctl --version | head -n 1)"
	echo "test-service: user $uid with CapEff $(status CapEff); $(systemd-analyze security --no-pager "$unit" | tail -n 1)"
	systemd-analyze verify --man=no "$unit" || fail 'systemd-analyze verify'

	dpkg -i /dist/*.deb >/tmp/log 2>&1 || fail "upgrade: $(cat /tmp/log)"
	await 'the upgrade did not restart the service' restarted
	confined

	kill -KILL "$pid"
	await 'the service was not restarted after it was killed' restarted
	[ "$(property NRestarts)" = 1 ] || fail "the service was restarted $(property NRestarts) times, want 1"
	works
	confined

	echo '  - tool: opensnoop' >>/etc/corescope/agent.yaml
	systemctl reload "$unit"
	await 'opensnoop does not run after the configuration was reloaded' counted corescope_opensnoop_events_total 1
	[ "$(property MainPID)" = "$pid" ] || fail 'reload started another process'

	install -m 600 /dev/null /etc/corescope/agent.env
	echo OTEL_SERVICE_NAME=tested >/etc/corescope/agent.env
	systemctl restart "$unit"
	await 'the service is not ready after a restart' restarted
	tr '\0' '\n' <"/proc/$(property MainPID)/environ" | grep -qx OTEL_SERVICE_NAME=tested || fail 'agent.env is not used'

	cp /etc/corescope/agent.yaml /tmp
	echo 'nothing: 1' >>/etc/corescope/agent.yaml
	systemctl restart "$unit" || true
	await 'an invalid configuration is accepted' failed
	[ "$(property ExecMainStatus)" = 2 ] || fail "the exit status for an invalid configuration is $(property ExecMainStatus), want 2"
	journalctl --no-pager -u "$unit" | grep -q 'nothing' || fail 'the journal does not name the key that is invalid'
	# If it had been restarted until the limit of starts, that would be the result.
	[ "$(property Result)" = exit-code ] || fail "the service was restarted with an invalid configuration: $(property Result)"
	cp /tmp/agent.yaml /etc/corescope/agent.yaml
	systemctl reset-failed "$unit"
	systemctl start "$unit"
	await 'the service is not ready' ready

	systemctl stop "$unit"
	[ "$(property Result)" = success ] || fail "stop: the result is $(property Result)"
	corescope bpflist -P --filter 'comm startsWith "corescope-agent"' --output csv >/tmp/programs
	[ "$(wc -l </tmp/programs)" -le 1 ] || fail "programs remain: $(cat /tmp/programs)"
	systemctl start "$unit"
	await 'the service is not ready' ready
	dpkg -r corescope-agent >/tmp/log 2>&1 || fail "remove: $(cat /tmp/log)"
	! systemctl is-active "$unit" >/dev/null || fail 'the service runs after its removal'
	! pgrep -f /usr/bin/corescope-agent >/dev/null || fail 'the agent runs after its removal'
	rm /etc/corescope/agent.env
	dpkg -P corescope-agent >/tmp/log 2>&1 || fail "purge: $(cat /tmp/log)"
	remains=$(find / -xdev -path /dist -prune -o -path /var/log -prune -o -path /tmp -prune -o -name '*corescope-agent*' -print)
	[ -z "$remains" ] || fail "purge left $remains"
	[ ! -e /etc/corescope ] || fail 'purge left /etc/corescope'
	echo 'test-service: passed'
}

if [ "${1:-}" = --inside ]; then
	inside
	exit
fi

# The commands that run outside.

[ $# -eq 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || fail 'needs root to build a root file system'
packages=$(realpath "$1")
cd "$(dirname "$0")/.."

skip() {
	echo "test-service: skipped: $*" >&2
	exit 3
}

export DEBIAN_FRONTEND=noninteractive
for program in qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs; do
	command -v "${program%:*}" >/dev/null && continue
	error=$(apt-get -qq install -y --no-install-recommends "${program#*:}" 2>&1) ||
		skip "apt-get install ${program#*:}: $error"
done
suite=${SUITE:-trixie}
tree=$(scripts/fetch-root.sh "dist/service-$suite" "$suite" systemd-sysv dbus udev linux-image-cloud-amd64 initramfs-tools zstd curl procps) ||
	skip "debootstrap of $suite failed, see above"

work=$(mktemp -d "${XDG_CACHE_HOME:-$HOME/.cache}/corescope/test-service.XXXXXX")
machine=
finish() {
	[ -z "$machine" ] || kill "$machine" 2>/dev/null || true
	rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

cp -a "$tree" "$work/tree"
mkdir -p "$work/tree/dist/old"
cp "$packages"/corescope_*_amd64.deb "$packages"/corescope-agent_*_amd64.deb "$work/tree/dist"
# The same package with an older version, to upgrade from.
for package in "$work/tree/dist"/*.deb; do
	dpkg-deb -R "$package" "$work/old"
	sed -i 's/^Version: .*/Version: 0.0.0~old/' "$work/old/DEBIAN/control"
	dpkg-deb --root-owner-group -Zgzip -b "$work/old" "$work/tree/dist/old/${package##*/}" >/dev/null
	rm -r "$work/old"
done
cp scripts/test-service.sh "$work/tree/dist/test-service.sh"
cat >"$work/tree/etc/systemd/system/test.service" <<'UNIT'
[Unit]
Description=Test
After=basic.target systemd-user-sessions.service
SuccessAction=poweroff-force
FailureAction=poweroff-force

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'exec sh /dist/test-service.sh --inside >/dev/ttyS1 2>&1'

[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$work/tree/etc/systemd/system/multi-user.target.wants"
ln -s ../test.service "$work/tree/etc/systemd/system/multi-user.target.wants/test.service"
: >"$work/tree/etc/fstab"
echo machine >"$work/tree/etc/hostname"
mv "$work/tree/boot"/vmlinuz-* "$work/vmlinuz"
mv "$work/tree/boot"/initrd.img-* "$work/initrd"
mke2fs -q -t ext4 -d "$work/tree" "$work/disk" 3G >/dev/null
rm -rf --one-file-system "$work/tree"

# As in test/kernels: both CPUs in one thread, no KVM, and a check of the timer that fails on a busy host
# is omitted.
: >"$work/results"
timeout 3600 qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 2 -m 2G -nodefaults -display none -no-reboot \
	-kernel "$work/vmlinuz" -initrd "$work/initrd" \
	-append 'root=/dev/vda rw console=ttyS0 panic=-1 no_timer_check tsc=reliable systemd.show_status=1' \
	-drive "if=none,id=disk,format=raw,cache=unsafe,file=$work/disk" -device virtio-blk-pci,drive=disk \
	-serial "file:$work/console" -serial "file:$work/results" &
machine=$!
code=0
wait "$machine" || code=$?
machine=
tr -d '\r' <"$work/results"
if ! grep -q '^test-service: passed' "$work/results"; then
	tail -n 30 "$work/console" >&2
	fail "the machine ended with status $code before the tests did, or they failed; end of its console above"
fi
