SUMMARY = "eBPF tools that observe Linux systems"
HOMEPAGE = "https://github.com/corescope/corescope"
LICENSE = "Apache-2.0 & (GPL-2.0-only | BSD-2-Clause)"
LIC_FILES_CHKSUM = "file://LICENSE-Apache-2.0;md5=3b83ef96387f14655fc854ddc3c6bd57 \
                    file://LICENSE-GPL-2.0-only;md5=b234ee4d69f5fce4486a80fdaf4a4263 \
                    file://LICENSE-BSD-2-Clause;md5=e5c9b767542c4b462e986a84c6ec724c"

SRC_URI = "git://github.com/corescope/corescope;protocol=https;branch=main"
SRCREV = "${AUTOREV}"
S = "${WORKDIR}/git"

inherit go-native goarch systemd

DEPENDS = "go-native"
COMPATIBLE_HOST = "(x86_64|aarch64).*-linux"

# do_compile has no network: fetch the modules with do_vendor of the class go-vendor, or go mod vendor.
export GOTOOLCHAIN = "local"
export GOFLAGS = "-mod=vendor -trimpath"
export GOPROXY = "off"

do_compile() {
	GOARCH=${TARGET_GOARCH} oe_runmake VERSION=${PV} all
}

do_install() {
	oe_runmake install DESTDIR=${D} PREFIX=${prefix} SYSCONFDIR=${sysconfdir} UNITDIR=${systemd_system_unitdir} TOOL_PREFIX=corescope-
}

PACKAGES =+ "${PN}-tools ${PN}-agent"
SYSTEMD_PACKAGES = "${PN}-agent"
SYSTEMD_SERVICE:${PN}-agent = "corescope-agent.service"
FILES:${PN}-agent = "${bindir}/corescope-agent ${sysconfdir}/corescope ${systemd_system_unitdir}"
FILES:${PN}-tools = "${bindir}/corescope-* ${bindir}/kubectl-corescope"
FILES:${PN} += "${datadir}/bash-completion ${datadir}/fish ${datadir}/zsh"
CONFFILES:${PN}-agent = "${sysconfdir}/corescope/agent.yaml"
RDEPENDS:${PN}-tools = "${PN}"
# Go programs are stripped by the linker.
INSANE_SKIP:${PN} += "already-stripped ldflags"
INSANE_SKIP:${PN}-agent += "already-stripped ldflags"
