// Command dist builds the files of a release: see scripts/dist.sh. It is a module of its own, so that the
// libraries for packages do not become dependencies of corescope.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// architectures are those of Go that a release contains.
var architectures = []string{"amd64", "arm64"}

// release is what all artifacts have in common.
type release struct {
	root, out string
	version   version
	time      time.Time
	// names are all names of tools; pages are their manual pages, or the names of the pages they are links to.
	names []string
	pages map[string]page
	// programs are the programs by architecture and name.
	programs map[string]map[string][]byte
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "dist: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	root := flag.String("root", ".", "directory of the source")
	out := flag.String("out", "dist", "directory to write to; it is emptied first")
	describe := flag.String("describe", "", "output of git describe --long")
	epoch := flag.Int64("epoch", 0, "time of all files, in seconds since 1970")
	flag.Parse()

	v, err := parseVersion(*describe)
	if err != nil {
		return err
	}
	r := &release{root: *root, out: *out, version: v, time: time.Unix(*epoch, 0).UTC()}
	if err := r.readTools(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return fmt.Errorf("empty %s: %w", r.out, err)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", r.out, err)
	}
	for _, step := range []func() error{r.build, r.tarballs, r.packages, r.image, r.sbom, r.checksums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// write writes an artifact.
func (r *release) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// checksums writes SHA256SUMS, in the format of sha256sum.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return fmt.Errorf("list artifacts: %w", err)
	}
	var text bytes.Buffer
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return fmt.Errorf("read %s: %w", e.Name(), err)
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return r.write("SHA256SUMS", text.Bytes())
}

// page is a manual page in section 8: its text, or the name of the tool whose page it is a link to.
type page struct {
	text []byte
	link string
}

// readTools finds the names of tools by their manual pages.
func (r *release) readTools() error {
	r.pages = map[string]page{}
	dir := filepath.Join(r.root, "man/man8")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list manual pages: %w", err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".8")
		if e.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil {
				return fmt.Errorf("read manual page: %w", err)
			}
			r.pages[name] = page{link: strings.TrimSuffix(target, ".8")}
		} else {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return fmt.Errorf("read manual page: %w", err)
			}
			r.pages[name] = page{text: text}
		}
		if name != "corescope-agent" {
			r.names = append(r.names, name)
		}
	}
	slices.Sort(r.names)
	return nil
}
