package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes an OCI layout, as a tarball, with an index of one image per architecture.
func (r *release) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		img, err := r.imageFor(arch)
		if err != nil {
			return fmt.Errorf("create image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp("", "corescope-image")
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	defer os.RemoveAll(dir)
	// The layout has one entry, the index, under the name that tools such as skopeo and podman ask for.
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	ref := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": strings.ReplaceAll(r.version.String(), "+", "_")})
	if err := path.AppendIndex(index, ref); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	var t tree
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		t.file(strings.TrimPrefix(name, dir+"/"), content, 0o644)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	entries, err := t.sorted()
	if err != nil {
		return err
	}
	archive, err := tarOf(entries, "", r.time)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("corescope-%s-oci.tar", r.version), archive)
}

func (r *release) imageFor(arch string) (v1.Image, error) {
	var t tree
	for name, program := range r.programs[arch] {
		t.file("usr/bin/"+name, program, 0o755)
	}
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	t.file("etc/ssl/certs/ca-certificates.crt", roots, 0o644)
	for _, name := range licences {
		t.copy(r, "usr/share/doc/corescope/"+name, name)
	}
	entries, err := t.sorted()
	if err != nil {
		return nil, err
	}
	archive, err := tarOf(entries, "", r.time)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9))
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make dist"}})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: r.time}
	file.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/corescope"},
		Env:        []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "corescope",
			"org.opencontainers.image.version":  r.version.String(),
			"org.opencontainers.image.revision": r.version.hash,
			"org.opencontainers.image.source":   homepage,
			"org.opencontainers.image.licenses": licence,
		},
	}
	return mutate.ConfigFile(img, file)
}

// certificates returns the root certificates of Mozilla, for the agent's connections to collectors.
func certificates() ([]byte, error) {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		// A program that reads the file cannot know of constraints.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("encode certificate: %w", err)
		}
	}
	return b.Bytes(), nil
}
