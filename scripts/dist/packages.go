package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/arch"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const (
	homepage   = "https://github.com/corescope/corescope"
	licence    = "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"
	maintainer = "The corescope authors <corescope@users.noreply.github.com>"
)

// prefix distinguishes the commands of corescope-tools, which always exist under this name.
const prefix = "corescope-"

// taken are names of tools that programs with another purpose, or other tools in a directory of PATH, have
// in a distribution. These tools have only the name with the prefix.
var taken = []string{
	"bpftop", "files", "maps", "profile", "sslsniff", "tasks", "tcpconnect", "trace", "ttysnoop",
}

//go:embed scripts
var scripts embed.FS

// pack is one package, for each architecture or for all.
type pack struct {
	name, summary, description string
	// perArch is set if the package contains programs.
	perArch  bool
	contents func(r *release, t *tree, format, arch string)
}

func packs() []pack {
	return []pack{
		{
			"corescope", "eBPF tools that observe Linux systems",
			"One static program with tools that show what a system does: processes that\nstart, files that are opened, disk latency, TCP connections, run queue latency,\nstack traces, memory leaks. It needs neither a compiler nor kernel headers.",
			true, (*release).mainContents,
		},
		{
			"corescope-tools", "eBPF tools that observe Linux systems - names of the tools",
			"Links from the name of each tool, such as corescope-execsnoop, to corescope,\nwith manual pages, and the kubectl plugin. Where the system has alternatives,\nthe names without a prefix are alternatives too.",
			false, (*release).toolsContents,
		},
		{
			"corescope-agent", "eBPF tools that observe Linux systems - agent",
			"A service that runs tools of corescope and exports what they observe to\nPrometheus and OpenTelemetry.",
			true, (*release).agentContents,
		},
	}
}

// packages writes all packages.
func (r *release) packages() error {
	for _, format := range []string{"deb", "rpm", "apk", "archlinux"} {
		for _, p := range packs() {
			archs := architectures
			if !p.perArch {
				archs = []string{"all"}
			}
			for _, arch := range archs {
				if err := r.pack(p, format, arch); err != nil {
					return fmt.Errorf("create %s of %s for %s: %w", format, p.name, arch, err)
				}
			}
		}
	}
	return nil
}

func (r *release) pack(p pack, format, arch string) error {
	stage, err := os.MkdirTemp("", "corescope-package")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	var t tree
	p.contents(r, &t, format, arch)
	r.documents(&t, p.name, format)
	entries, err := t.sorted()
	if err != nil {
		return err
	}
	info := r.info(p, format, arch)
	for i, e := range entries {
		c := &files.Content{Destination: e.path, Source: e.link, Type: files.TypeSymlink, FileInfo: &files.ContentFileInfo{Mode: e.mode, MTime: r.time}}
		if e.link == "" {
			c.Source, c.Type = filepath.Join(stage, strconv.Itoa(i)), files.TypeFile
			switch {
			case e.config:
				c.Type = files.TypeConfigNoReplace
			case format == "rpm" && strings.HasPrefix(e.path, "/usr/share/man/"):
				c.Type = files.TypeRPMDoc
			case format == "rpm" && strings.HasPrefix(e.path, "/usr/share/licenses/"):
				c.Type = files.TypeRPMLicense
			}
			if err := os.WriteFile(c.Source, e.content, 0o600); err != nil {
				return err
			}
		}
		info.Contents = append(info.Contents, c)
	}
	if err := r.scripts(info, p.name, format, stage); err != nil {
		return err
	}
	if format == "rpm" {
		// Otherwise these directories remain when the package is removed.
		for _, dir := range []string{"/usr/share/licenses/" + p.name, "/etc/corescope"} {
			if slices.ContainsFunc(entries, func(e entry) bool { return strings.HasPrefix(e.path, dir+"/") }) {
				info.Contents = append(info.Contents, &files.Content{
					Destination: dir, Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time},
				})
			}
		}
		// nfpm reads the change log from a file; a .deb has its own (documents).
		info.Changelog = filepath.Join(stage, "changelog")
		text := fmt.Sprintf("- semver: %s-1\n  date: %s\n  packager: %s\n  changes:\n    - note: Built by make dist from commit %s.\n",
			info.Version, r.time.Format(time.RFC3339), maintainer, r.version.hash)
		if err := os.WriteFile(info.Changelog, []byte(text), 0o600); err != nil {
			return err
		}
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	name := packager.ConventionalFileName(info)
	var b bytes.Buffer
	if err := packager.Package(info, &b); err != nil {
		return err
	}
	return r.write(name, b.Bytes())
}

// info returns the metadata. Releases of the formats are part of the version where the format has no other
// place for them, because nfpm does not parse it (VersionSchema).
func (r *release) info(p pack, format, arch string) *nfpm.Info {
	info := &nfpm.Info{
		Name: p.name, Arch: arch, Platform: "linux", VersionSchema: "none", MTime: r.time, DisableGlobbing: true,
		Section: "utils", Priority: "optional", Maintainer: maintainer, Homepage: homepage, License: licence,
		Description: p.summary + "\n" + p.description,
	}
	// The default would be the name of this machine.
	info.RPM.BuildHost = "localhost"
	info.RPM.Summary, info.RPM.Group, info.RPM.Packager = p.summary, "System/Base", maintainer
	info.RPM.Compression, info.Deb.Compression = "xz", "xz"
	info.ArchLinux.Packager = maintainer
	same := ""
	switch format {
	case "deb":
		info.Version, info.License = r.version.deb(), "" // the licence is in copyright
		same = "corescope (= " + info.Version + ")"
	case "rpm":
		info.Version, info.Release, info.Description = r.version.rpm(), "1", p.description
		same = "corescope = " + info.Version + "-1"
	case "apk":
		info.Version, info.Release, info.Description = r.version.apk(), "r0", p.summary
		if arch == "all" {
			info.APK.Arch = "noarch"
		}
		same = "corescope=" + info.Version + "-r0"
	case "archlinux":
		info.Version, info.Release, info.Description = r.version.arch(), "1", p.summary
		same = "corescope=" + info.Version + "-1"
	}
	if p.name != "corescope" {
		info.Depends = []string{same}
	}
	if p.name == "corescope-agent" {
		info.Depends = nil // a program of its own
		if format == "deb" {
			info.Depends = []string{"init-system-helpers (>= 1.54~)"}
		}
	}
	return info
}

// scripts sets the maintainer scripts of a package: the files scripts/PACKAGE.FORMAT.KIND.
func (r *release) scripts(info *nfpm.Info, name, format, stage string) error {
	kinds := map[string]*string{
		"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove, "postrm": &info.Scripts.PostRemove,
	}
	var plain []string
	for _, n := range r.names {
		if !slices.Contains(taken, n) {
			plain = append(plain, n)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		text, err := scripts.ReadFile("scripts/" + name + "." + format + "." + kind)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return err
		}
		path := filepath.Join(stage, kind)
		text = bytes.ReplaceAll(text, []byte("@NAMES@"), []byte(strings.Join(plain, " ")))
		if err := os.WriteFile(path, text, fs.FileMode(0o755)); err != nil {
			return err
		}
		*kinds[kind] = path
	}
	return nil
}

func (r *release) mainContents(t *tree, format, arch string) {
	t.file("/usr/bin/corescope", r.programs[arch]["corescope"], 0o755)
	t.gzip("/usr/share/man/man1/corescope.1.gz", t.read(r, "man/man1/corescope.1"))
	t.completions(r, "/usr/share", zshDir(format), "corescope", []string{"corescope"})
}

func (r *release) toolsContents(t *tree, format, _ string) {
	t.link("/usr/bin/kubectl-corescope", "corescope")
	var names []string
	for _, name := range r.names {
		names = append(names, prefix+name)
		t.link("/usr/bin/"+prefix+name, "corescope")
	}
	t.manuals(r, "/usr/share/man/man8", prefix)
	t.completions(r, "/usr/share", zshDir(format), "corescope-tools", names)
}

func (r *release) agentContents(t *tree, format, arch string) {
	t.file("/usr/bin/corescope-agent", r.programs[arch]["corescope-agent"], 0o755)
	t.gzip("/usr/share/man/man8/corescope-agent.8.gz", r.pages["corescope-agent"].text)
	t.copy(r, "/etc/corescope/agent.yaml", "internal/agent/default.yaml")
	t.entries[len(t.entries)-1].config = true
	if format != "apk" { // Alpine has no systemd
		t.copy(r, "/usr/lib/systemd/system/corescope-agent.service", unit)
	}
}

func zshDir(format string) string {
	if format == "deb" {
		return "zsh/vendor-completions"
	}
	return "zsh/site-functions"
}

// documents adds the licences and the list of changes, where a format wants them.
func (r *release) documents(t *tree, name, format string) {
	if format != "deb" {
		for _, file := range licences {
			t.copy(r, "/usr/share/licenses/"+name+"/"+file, file)
		}
		return
	}
	doc := "/usr/share/doc/" + name + "/"
	t.copy(r, doc+"copyright", "packaging/debian/copyright")
	t.gzip(doc+"changelog.gz", []byte(fmt.Sprintf("corescope (%s) unstable; urgency=medium\n\n  * Built by make dist from commit %s. CHANGELOG.md of the source has the changes.\n\n -- %s  %s\n",
		r.version.deb(), r.version.hash, maintainer, r.time.Format(time.RFC1123Z))))
	if name != "corescope-tools" {
		t.file("/usr/share/lintian/overrides/"+name, []byte("# Go programs are static.\n"+name+": statically-linked-binary\n"), 0o644)
	}
}
