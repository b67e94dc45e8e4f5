package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// apkStreams splits a package into its gzip streams: control information, then files. A signature would be
// before them.
func apkStreams(content []byte) (streams [][]byte, err error) {
	r := bytes.NewReader(content)
	for r.Len() > 0 {
		start := len(content) - r.Len()
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("stream %d: %w", len(streams), err)
		}
		z.Multistream(false)
		if _, err := io.Copy(io.Discard, z); err != nil {
			return nil, fmt.Errorf("stream %d: %w", len(streams), err)
		}
		streams = append(streams, content[start:len(content)-r.Len()])
	}
	return streams, nil
}

// apkEntries calls f for each entry of a stream.
func apkEntries(stream []byte, f func(h *tar.Header, content []byte) error) error {
	z, err := gzip.NewReader(bytes.NewReader(stream))
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := f(h, content); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// checkAPK checks a package of Alpine against the format: its streams, the fields and the version, the hash of
// the files and the checksum of each. It returns the fields. No tool of Alpine was available to compare with.
func checkAPK(content []byte) (fields map[string][]string, err error) {
	streams, err := apkStreams(content)
	if err != nil {
		return nil, err
	}
	if len(streams) != 2 {
		return nil, fmt.Errorf("%d gzip streams, want control information and files", len(streams))
	}
	fields = map[string][]string{}
	err = apkEntries(streams[0], func(h *tar.Header, content []byte) error {
		if h.Name != ".PKGINFO" {
			return nil
		}
		for s := bufio.NewScanner(bytes.NewReader(content)); s.Scan(); {
			if key, value, ok := strings.Cut(s.Text(), " = "); ok && !strings.HasPrefix(key, "#") {
				fields[key] = append(fields[key], value)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"pkgname", "pkgver", "pkgdesc", "url", "size", "arch", "license", "datahash"} {
		if len(fields[key]) != 1 {
			return nil, fmt.Errorf(".PKGINFO: %s is %q", key, fields[key])
		}
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(streams[1])); got != fields["datahash"][0] {
		return nil, fmt.Errorf("datahash is %s, but the files have %s", fields["datahash"][0], got)
	}
	// The versions of APKBUILD(5).
	if !regexp.MustCompile(`^[0-9]+(\.[0-9]+)*[a-z]?(_(alpha|beta|pre|rc|cvs|svn|git|hg|p)[0-9]*)*(-r[0-9]+)?$`).MatchString(fields["pkgver"][0]) {
		return nil, fmt.Errorf("apk refuses the version %s", fields["pkgver"][0])
	}
	return fields, apkEntries(streams[1], func(h *tar.Header, content []byte) error {
		// nfpm gives symbolic links the checksum of no content.
		sum := fmt.Sprintf("%x", sha1.Sum(content))
		switch got := h.PAXRecords["APK-TOOLS.checksum.SHA1"]; {
		case strings.HasPrefix(h.Name, "/") || strings.Contains(h.Name, ".."):
			return errors.New("the path is not below the root")
		case h.Typeflag != tar.TypeDir && got != sum:
			return fmt.Errorf("checksum %q, want %s", got, sum)
		case h.Uid != 0 || h.Gid != 0:
			return fmt.Errorf("owner %d:%d", h.Uid, h.Gid)
		}
		return nil
	})
}

// TestAPK checks the packages of Alpine in the directory DIST.
func TestAPK(t *testing.T) {
	if os.Getenv("DIST") == "" {
		t.Skip("DIST does not name a directory with packages")
	}
	packages, err := filepath.Glob(os.Getenv("DIST") + "/*.apk")
	if err != nil || len(packages) != 5 {
		t.Fatalf("%d packages in %s, want 5 (%v)", len(packages), os.Getenv("DIST"), err)
	}
	for _, path := range packages {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := checkAPK(content)
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(path), err)
			continue
		}
		if want := fmt.Sprintf("%s_%s_%s.apk", fields["pkgname"][0], fields["pkgver"][0], fields["arch"][0]); filepath.Base(path) != want && fields["arch"][0] != "noarch" {
			t.Errorf("%s has the name, version and architecture of %s", filepath.Base(path), want)
		}
	}
}
