package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path"
	"time"
)

const unit = "deploy/systemd/corescope-agent.service"

// tarballs writes a tarball for each architecture, with the layout of PREFIX in make install.
func (r *release) tarballs() error {
	for _, arch := range architectures {
		var t tree
		top := fmt.Sprintf("corescope-%s-linux-%s", r.version, arch)
		for name, program := range r.programs[arch] {
			t.file("bin/"+name, program, 0o755)
		}
		t.link("bin/kubectl-corescope", "corescope")
		for _, name := range r.names {
			t.link("bin/"+name, "corescope")
		}
		t.gzip("share/man/man1/corescope.1.gz", t.read(r, "man/man1/corescope.1"))
		t.gzip("share/man/man8/corescope-agent.8.gz", r.pages["corescope-agent"].text)
		t.manuals(r, "share/man/man8", "")
		t.completions(r, "share", "zsh/site-functions", "corescope", append([]string{"corescope"}, r.names...))
		t.copy(r, "lib/systemd/system/corescope-agent.service", unit)
		t.copy(r, "etc/corescope/agent.yaml", "internal/agent/default.yaml")
		for _, name := range append([]string{"README.md", "CHANGELOG.md", "SECURITY.md"}, licences...) {
			t.copy(r, name, name)
		}
		entries, err := t.sorted()
		if err != nil {
			return err
		}
		archive, err := tarOf(entries, top, r.time)
		if err != nil {
			return err
		}
		packed, err := compress(archive)
		if err != nil {
			return err
		}
		if err := r.write(top+".tar.gz", packed); err != nil {
			return err
		}
	}
	return nil
}

// tarOf returns an archive of sorted entries below the directory top, with the directories that they need.
func tarOf(entries []entry, top string, mtime time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	add := func(h *tar.Header, content []byte) error {
		h.ModTime, h.Format = mtime, tar.FormatPAX
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s to archive: %w", h.Name, err)
		}
		if _, err := w.Write(content); err != nil {
			return fmt.Errorf("write %s to archive: %w", h.Name, err)
		}
		return nil
	}
	var directory func(dir string) error
	directory = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := directory(path.Dir(dir)); err != nil {
			return err
		}
		return add(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
	}
	for _, e := range entries {
		name := path.Join(top, e.path)
		if err := directory(path.Dir(name)); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(e.mode), Size: int64(len(e.content))}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := add(h, e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write archive: %w", err)
	}
	return b.Bytes(), nil
}
