package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is a file or a symbolic link of an artifact.
type entry struct {
	path    string
	content []byte
	link    string
	mode    os.FileMode
	// config is set for files that the administrator changes.
	config bool
}

// tree is the contents of an artifact.
type tree struct {
	entries []entry
	err     error
}

func (t *tree) file(path string, content []byte, mode os.FileMode) {
	t.entries = append(t.entries, entry{path: path, content: content, mode: mode})
}

func (t *tree) link(path, target string) {
	t.entries = append(t.entries, entry{path: path, link: target, mode: 0o777})
}

// gzip adds a file that is compressed as by gzip -9n.
func (t *tree) gzip(path string, content []byte) {
	packed, err := compress(content)
	if err != nil {
		t.err = err
		return
	}
	t.file(path, packed, 0o644)
}

func compress(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return b.Bytes(), nil
}

// copy adds a file of the source.
func (t *tree) copy(r *release, path, source string) {
	if content := t.read(r, source); content != nil {
		t.file(path, content, 0o644)
	}
}

// read returns a file of the source.
func (t *tree) read(r *release, source string) []byte {
	content, err := os.ReadFile(filepath.Join(r.root, source))
	if err != nil {
		t.err = fmt.Errorf("read source: %w", err)
		return nil
	}
	return content
}

// completion returns the completion script of a shell for these names, like corescope completion.
func (t *tree) completion(r *release, shell string, names []string) []byte {
	script := t.read(r, "internal/command/completion/"+shell)
	return bytes.ReplaceAll(script, []byte("@NAMES@"), []byte(strings.Join(names, " ")))
}

// completions adds the completion scripts for these names. file is the name of the scripts.
func (t *tree) completions(r *release, share, zshDir, file string, names []string) {
	bash, fish := share+"/bash-completion/completions/", share+"/fish/vendor_completions.d/"
	t.file(bash+file, t.completion(r, "bash", names), 0o644)
	t.file(fish+file+".fish", t.completion(r, "fish", names), 0o644)
	t.file(share+"/"+zshDir+"/_"+file, t.completion(r, "zsh", names), 0o644)
	// bash and fish find scripts by the name of the command.
	for _, name := range names {
		if name != file {
			t.link(bash+name, file)
			t.link(fish+name+".fish", file+".fish")
		}
	}
}

// manuals adds the manual pages of the tools, under names with this prefix.
func (t *tree) manuals(r *release, dir, prefix string) {
	for _, name := range r.names {
		path := dir + "/" + prefix + name + ".8.gz"
		if p := r.pages[name]; p.link != "" {
			t.link(path, prefix+p.link+".8.gz")
		} else {
			t.gzip(path, p.text)
		}
	}
}

var licences = []string{"LICENSE", "LICENSE-Apache-2.0", "LICENSE-BSD-2-Clause", "LICENSE-GPL-2.0-only"}

// sorted returns the entries by path.
func (t *tree) sorted() ([]entry, error) {
	slices.SortFunc(t.entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return t.entries, t.err
}
